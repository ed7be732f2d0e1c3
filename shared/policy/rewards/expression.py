"""A reward as an expression over named features: ``1 - nodes_used / nodes if latency_ms <= 20 else -1``.

Python's own parser reads it, and nothing of Python but arithmetic is left: numbers, names of features, ``+ - * /``,
comparisons, ``and or not``, ``x if c else y``, and ``min max abs clip``. No attribute, index, string, power or other
call; a bounded length, size and depth; each name checked against the features there are. So it can come from a
configuration file: it computes a number in a time that its size bounds, and does nothing else. What it is worth may
still not be finite (a division by 0): then it raises ``RewardFailed``, and whoever asked decides what that costs.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
from collections.abc import Callable, Collection, Mapping

from shared.errors import ConclaveError, ConfigError

MOST_CHARACTERS, MOST_PARTS, MOST_DEPTH = 2_000, 200, 20
MOST_NUMBER = 1e12

Values = Mapping[str, float]
Node = Callable[[Values], float]


class RewardInvalid(ConfigError):
    """A reward that cannot be used. The message names the place and the remedy."""

    code = "reward_invalid"


class RewardFailed(ConclaveError):
    """A reward gave no finite number for these values."""

    code = "reward_failed"


def clip(value: float, low: float, high: float) -> float:
    """``value``, or the bound that it is beyond."""
    return min(max(value, low), high)


FUNCTIONS: Mapping[str, tuple[Callable[..., float], int, int]] = {
    "abs": (abs, 1, 1), "clip": (clip, 3, 3), "max": (max, 2, 16), "min": (min, 2, 16),
}  # fmt: skip
"""What may be called: the function, and with how many numbers (least, most)."""

_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_UNARY: Mapping[type[ast.unaryop], Callable[[float], float]] = {
    ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Not: lambda value: float(not value),
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


class RewardExpression:
    """An expression that was checked. ``names``: the features it reads."""

    def __init__(self, text: str, features: Collection[str], *, field: str = "reward") -> None:
        """Raises ``RewardInvalid`` naming the column, where one is to blame."""
        self.text = text
        self.names: frozenset[str] = frozenset()
        self._field = field
        self._features = features
        self._parts = 0
        if len(text) > MOST_CHARACTERS:
            raise RewardInvalid(f"{field}: {len(text)} characters are more than {MOST_CHARACTERS}; shorten it")
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            where = f", column {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
            raise RewardInvalid(f"{field}{where}: is no expression; write one such as 1 - nodes_used / nodes") from None
        self._node = self._of(tree.body, 0)

    def __call__(self, values: Values) -> float:
        """What it is worth. Raises ``RewardFailed``: not finite, or a feature without a value."""
        try:
            found = float(self._node(values))
        except KeyError as error:
            raise RewardFailed(f"{self._field}: {error.args[0]} has no value now") from None
        except (ArithmeticError, ValueError) as error:
            raise RewardFailed(f"{self._field}: {error}") from None
        if not math.isfinite(found):
            raise RewardFailed(f"{self._field}: is {found:g}")
        return found

    def _of(self, node: ast.expr, depth: int) -> Node:
        self._parts += 1
        if self._parts > MOST_PARTS or depth > MOST_DEPTH:
            raise self._wrong(node, f"more than {MOST_PARTS} parts, or {MOST_DEPTH} within each other; simplify it")
        inside = depth + 1
        match node:
            case ast.Constant(value=bool() | int() | float() as number) if not isinstance(number, bool):
                return self._number(node, number)
            case ast.Name(id=name):
                return self._feature(node, name)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return _applied(_UNARY[type(op)], self._of(operand, inside))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _applied(_BINARY[type(op)], self._of(left, inside), self._of(right, inside))
            case ast.BoolOp(op=op, values=items):
                return _any_or_all([self._of(item, inside) for item in items], some=isinstance(op, ast.Or))
            case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARE for op in ops):
                return _chain([self._of(item, inside) for item in (left, *others)], [_COMPARE[type(op)] for op in ops])
            case ast.IfExp(test=test, body=body, orelse=other):
                return _either(self._of(test, inside), self._of(body, inside), self._of(other, inside))
            case ast.Call(func=ast.Name(id=name), args=items, keywords=[]) if name in FUNCTIONS:
                function, least, most = FUNCTIONS[name]
                if not least <= len(items) <= most:
                    told = f"{least}" if least == most else f"{least} to {most}"
                    raise self._wrong(node, f"{name} takes {told} numbers; correct it")
                return _applied(function, *(self._of(item, inside) for item in items))
        raise self._wrong(
            node, f"{type(node).__name__} is not allowed; use numbers, features, + - * /, comparisons, if-else and "
            f"{', '.join(sorted(FUNCTIONS))}",
        )  # fmt: skip

    def _number(self, node: ast.expr, number: float) -> Node:
        if not abs(number) <= MOST_NUMBER:
            raise self._wrong(node, f"a number beyond +-{MOST_NUMBER:g}; give a smaller one")
        value = float(number)
        return lambda values: value  # noqa: ARG005

    def _feature(self, node: ast.expr, name: str) -> Node:
        if name not in self._features:
            close = difflib.get_close_matches(name, list(self._features), n=1, cutoff=0.5)
            remedy = f"did you mean {close[0]}?" if close else f"choose of {', '.join(sorted(self._features))}"
            raise self._wrong(node, f"there is no feature {name!r}; {remedy}")
        self.names |= {name}
        return lambda values: values[name]

    def _wrong(self, node: ast.expr, text: str) -> RewardInvalid:
        return RewardInvalid(f"{self._field}, column {node.col_offset + 1}: {text}")


def _applied(function: Callable[..., float], *parts: Node) -> Node:
    return lambda values: function(*(part(values) for part in parts))


def _any_or_all(parts: list[Node], *, some: bool) -> Node:
    if some:
        return lambda values: float(any(part(values) for part in parts))
    return lambda values: float(all(part(values) for part in parts))


def _chain(parts: list[Node], compares: list[Callable[[float, float], bool]]) -> Node:
    def compared(values: Values) -> float:
        found = [part(values) for part in parts]
        return float(all(compare(found[i], found[i + 1]) for i, compare in enumerate(compares)))

    return compared


def _either(test: Node, body: Node, other: Node) -> Node:
    return lambda values: body(values) if test(values) else other(values)
