"""What a compiled selector says, before it is ever evaluated: which fields it reads, and what it may cost at most.

The compiler's serialized form (cel.expr.CheckedExpr inside a google.protobuf.Any) is read without its classes. Two
things are done with it:

- the cost is bounded from above, in units of about one step of evaluation: a text has at most as many characters, and a
  map at most as many entries, as the API allows. The library itself has no limit of cost;
- where an expression asks which domains there *are* (``in``, ``size``, a macro over all of them, a comparison), the
  field's name is changed in place to one of equal length, under which the evaluator gets the map as it is. Everywhere
  else an unknown domain must be an empty map, and the plain name stands for a map with every domain that is named.

Source: google/cel-spec ``proto/cel/expr`` (syntax.proto, checked.proto); KEP-4381 on attribute access.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

EXACT = {"attributes": "Attributes", "capacity": "Capacity"}
"""Under which name the map is given that has no domain but those of the device."""

MOST_COST = 1_000_000
"""``CELSelectorExpressionMaxCost``."""

TEXT, ENTRIES = 64, 32
"""Most characters of an attribute (``DeviceAttributeMaxValueLength``), most attributes and capacities of a device."""

_READ_AS_THEY_ARE = frozenset(("@in", "size", "_==_", "_!=_"))


class DeviceSelectorError(Exception):
    """A selector that does not compile, costs too much, or failed on a device. The text says why."""


class TooCostlyError(DeviceSelectorError):
    """A selector that may cost more than the API server allows."""


class Read(NamedTuple):
    """``serialized``: with the names changed. ``domains``: every text that may name a domain. ``cost``: at most."""

    serialized: bytes
    domains: frozenset[str]
    cost: int


class _Size(NamedTuple):
    """``number`` characters, items or entries, each of which weighs ``each``."""

    number: int
    each: int

    @property
    def weight(self) -> int:
        return self.number * self.each


_ONE = _Size(1, 1)
_VALUE = _Size(TEXT, 1)


class _Node(NamedTuple):
    """A node of the tree. Which fields mean something depends on ``kind``."""

    kind: str
    name: str = ""
    name_at: int = 0
    text: str | bytes | None = None
    target: _Node | None = None
    args: tuple[_Node, ...] = ()
    test_only: bool = False
    loop: tuple[str, str, str] = ("", "", "")
    """Variable, second variable and accumulator of a comprehension; its parts are ``args``."""


def read(serialized: bytes) -> Read:
    """Raises ``DeviceSelectorError`` for what may cost too much."""
    try:
        tree = _tree(serialized)
        found = _Reader()
        found.walk(tree, exact=False)
        cost, _ = _cost(tree, {})
    except RecursionError:
        raise DeviceSelectorError("the expression is nested too deeply; shorten it") from None
    if cost > MOST_COST:
        raise TooCostlyError(f"the expression may cost {cost}, more than {MOST_COST}; shorten its lists and loops")
    patched = bytearray(serialized)
    for at, name in found.patches:
        patched[at : at + len(name)] = name.encode()
    return Read(bytes(patched), frozenset(found.domains), cost)


class _Reader:
    def __init__(self) -> None:
        self.patches: list[tuple[int, str]] = []
        self.domains: set[str] = set()

    def walk(self, node: _Node, *, exact: bool) -> None:
        if node.kind == "literal" and isinstance(node.text, str):
            self.domains.add(node.text)
        if node.kind == "select":
            assert node.target is not None
            self.domains.add(node.name)
            if node.target.kind == "ident" and node.target.name == "device":
                if exact and node.name in EXACT:
                    self.patches.append((node.name_at, EXACT[node.name]))
                return
        if node.target is not None:
            self.walk(node.target, exact=node.kind == "call" and node.name in _READ_AS_THEY_ARE)
        for index, one in enumerate(node.args):
            in_loop = node.kind == "comprehension" and index == 0
            self.walk(one, exact=in_loop or (node.kind == "call" and node.name in _READ_AS_THEY_ARE))


# --- cost -------------------------------------------------------------------------------------------------------------


def _cost(node: _Node, sizes: dict[str, _Size]) -> tuple[int, _Size]:
    """(most that evaluating the node costs, most that its value is)."""
    match node.kind:
        case "literal":
            return 0, _Size(len(node.text), 1) if node.text is not None else _ONE
        case "ident":
            return 1, sizes.get(node.name, _Size(ENTRIES, TEXT))
        case "select":
            assert node.target is not None
            cost, _ = _cost(node.target, sizes)
            return cost + 1, _Size(ENTRIES, TEXT) if node.name in EXACT else _VALUE
        case "call":
            return _call_cost(node, sizes)
        case "comprehension":
            return _loop_cost(node, sizes)
    parts = [_cost(one, sizes) for one in node.args]
    each = max((size.weight for _, size in parts), default=1)
    return sum(cost for cost, _ in parts) + 10, _Size(len(parts), max(1, each))


def _call_cost(node: _Node, sizes: dict[str, _Size]) -> tuple[int, _Size]:
    parts = [_cost(one, sizes) for one in ((*((node.target,) if node.target is not None else ()), *node.args))]
    cost = sum(one for one, _ in parts) + 1
    weights = [size.weight for _, size in parts]
    total = sum(weights)
    match node.name:
        case "_[_]" | "_[?_]" | "_?._":
            return cost, _Size(ENTRIES, TEXT)
        case "_&&_" | "_||_" | "!_" | "@not_strictly_false":
            return cost, _ONE
        case "_?_:_":
            return cost, max((size for _, size in parts[1:]), key=lambda size: size.weight)
        case "_+_":
            first, second = parts[0][1], parts[1][1]
            return cost + total // 10, _Size(first.number + second.number, max(first.each, second.each))
        case "matches":
            return cost + (weights[0] // 10 + 1) * (weights[-1] // 4 + 1), _ONE
        case "replace":
            return cost + total, _Size(weights[0] * max(1, weights[-1]), 1)
        case "join" | "split":
            return cost + total, _Size(total * (weights[-1] if node.name == "join" and len(weights) > 1 else 1), 1)
        case "format":
            return cost + total, _Size(total * 10, 1)
    return cost + total // 10, _Size(total, 1)


def _loop_cost(node: _Node, sizes: dict[str, _Size]) -> tuple[int, _Size]:
    over, start, condition, step, result = node.args
    variable, second, accumulator = node.loop
    cost, range_ = _cost(over, sizes)
    start_cost, start_size = _cost(start, sizes)
    rounds = 0 if over.kind == "list" and not over.args else range_.number
    element = _Size(max(1, range_.each), 1)
    inner = sizes | {variable: element, second: element, accumulator: start_size}
    condition_cost, _ = _cost(condition, inner)
    step_cost, grown = _cost(step, inner)
    growth = max(0, grown.number - start_size.number)
    final = _Size(start_size.number + rounds * growth, max(start_size.each, grown.each if rounds else 1))
    result_cost, result_size = _cost(result, sizes | {accumulator: final})
    # an accumulator that grows makes later rounds dearer than the first: each costs as much as all it holds
    per_round = condition_cost + step_cost + (final.weight // 10 if growth else 0)
    return cost + start_cost + rounds * per_round + result_cost + 1, result_size


# --- the serialized form ----------------------------------------------------------------------------------------------


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, its value where it is a number, start, end where it is a part) of each field of a message."""
    at = start
    while at < end:
        tag, at = _number(data, at)
        match tag & 7:
            case 0:
                value, at = _number(data, at)
                yield tag >> 3, value, at, at
            case 1:
                at += 8
            case 2:
                size, at = _number(data, at)
                yield tag >> 3, 0, at, at + size
                at += size
            case _:
                at += 4


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _tree(serialized: bytes) -> _Node:
    for number, _, start, end in _fields(serialized, 0, len(serialized)):
        if number == 2:
            for inner, _, first, last in _fields(serialized, start, end):
                if inner == 4:
                    return _node(serialized, first, last)
    raise DeviceSelectorError("the compiler gave no expression")


def _node(data: bytes, start: int, end: int) -> _Node:
    for number, _, first, last in _fields(data, start, end):
        match number:
            case 3:
                return _literal(data, first, last)
            case 4:
                return _Node("ident", _text(data, first, last, 1))
            case 5:
                return _select(data, first, last)
            case 6:
                return _call(data, first, last)
            case 7:
                items = (_node(data, s, e) for n, _, s, e in _fields(data, first, last) if n == 1)
                return _Node("list", args=tuple(items))
            case 8:
                return _Node("struct", args=tuple(_entries(data, first, last)))
            case 9:
                return _comprehension(data, first, last)
    return _Node("literal")


def _text(data: bytes, start: int, end: int, wanted: int) -> str:
    return next((data[s:e].decode() for number, _, s, e in _fields(data, start, end) if number == wanted), "")


def _literal(data: bytes, start: int, end: int) -> _Node:
    for number, _, first, last in _fields(data, start, end):
        if number == 6:
            return _Node("literal", text=data[first:last].decode())
        if number == 7:
            return _Node("literal", text=data[first:last])
    return _Node("literal")


def _select(data: bytes, start: int, end: int) -> _Node:
    target, name, at, test_only = None, "", 0, False
    for number, value, first, last in _fields(data, start, end):
        if number == 1:
            target = _node(data, first, last)
        elif number == 2:
            name, at = data[first:last].decode(), first
        elif number == 3:
            test_only = bool(value)
    return _Node("select", name, at, target=target, test_only=test_only)


def _call(data: bytes, start: int, end: int) -> _Node:
    target, args = None, []
    for number, _, first, last in _fields(data, start, end):
        if number == 1:
            target = _node(data, first, last)
        elif number == 3:
            args.append(_node(data, first, last))
    return _Node("call", _text(data, start, end, 2), target=target, args=tuple(args))


def _entries(data: bytes, start: int, end: int) -> Iterator[_Node]:
    for number, _, first, last in _fields(data, start, end):
        if number == 2:
            for part, _, at, until in _fields(data, first, last):
                if part in (3, 4):
                    yield _node(data, at, until)


def _comprehension(data: bytes, start: int, end: int) -> _Node:
    parts = {number: (first, last) for number, _, first, last in _fields(data, start, end)}
    args = tuple(_node(data, *parts[number]) for number in (2, 4, 5, 6, 7))
    names = (_text(data, start, end, 1), _text(data, start, end, 8), _text(data, start, end, 3))
    return _Node("comprehension", args=args, loop=names)
