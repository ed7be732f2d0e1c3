"""The part of CEL that validation rules of custom resources use: a tokenizer, a parser, an evaluator.

Supported: literals, ``self`` and ``oldSelf``, member and index access, ``has()``, ``size()``, string functions
(``startsWith endsWith contains matches``), ``in``, arithmetic, comparison, ``! && || ?:``, lists, and the macros
``all exists exists_one filter map``. A rule outside of it raises ``CelError`` when it is compiled; the definition is
then served without that rule (docs/twin-api-server.md says so). Source: the CEL language definition. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Scope = Mapping[str, Any]
Node = Callable[[Scope], Any]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.\d+|\d+)u?|(?P<string>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<op>\|\||&&|==|!=|<=|>=|[-+*/%!<>()\[\].,?:]))"
)
_MACROS = frozenset(("all", "exists", "exists_one", "filter", "map"))


class CelError(Exception):
    """A rule that cannot be compiled, or an evaluation that has no value."""


def compile_rule(text: str) -> Node:
    """A function of the scope ``{"self": ..., "oldSelf": ...}``. Raises ``CelError``."""
    parser = _Parser(text)
    node = parser.ternary()
    parser.end()
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None or found.lastgroup is None:
                raise CelError(f"cannot read {text[position:]!r}")
            self._tokens.append((found.lastgroup, found.group(found.lastgroup)))
            position = found.end()
        self._at = 0

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _accept(self, *operators: str) -> str:
        kind, text = self._peek()
        if (kind == "op" or text == "in") and text in operators:
            self._at += 1
            return text
        return ""

    def _expect(self, operator: str) -> None:
        if not self._accept(operator):
            raise CelError(f"expected {operator!r}, found {self._peek()[1]!r}")

    def end(self) -> None:
        if self._peek()[0] != "end":
            raise CelError(f"unexpected {self._peek()[1]!r}")

    def ternary(self) -> Node:
        condition = self._or()
        if not self._accept("?"):
            return condition
        then = self.ternary()
        self._expect(":")
        otherwise = self.ternary()
        return lambda scope: then(scope) if condition(scope) else otherwise(scope)

    def _or(self) -> Node:
        left = self._and()
        while self._accept("||"):
            left = _either(left, self._and())
        return left

    def _and(self) -> Node:
        left = self._relation()
        while self._accept("&&"):
            left = _both(left, self._relation())
        return left

    def _relation(self) -> Node:
        left = self._sum()
        while operator := self._accept("==", "!=", "<=", ">=", "<", ">", "in"):
            left = _binary(operator, left, self._sum())
        return left

    def _sum(self) -> Node:
        left = self._product()
        while operator := self._accept("+", "-"):
            left = _binary(operator, left, self._product())
        return left

    def _product(self) -> Node:
        left = self._unary()
        while operator := self._accept("*", "/", "%"):
            left = _binary(operator, left, self._unary())
        return left

    def _unary(self) -> Node:
        if self._accept("!"):
            inner = self._unary()
            return lambda scope: not inner(scope)
        if self._accept("-"):
            inner = self._unary()
            return lambda scope: -inner(scope)
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        while True:
            if self._accept("."):
                kind, name = self._take()
                if kind != "name":
                    raise CelError(f"expected a name after '.', found {name!r}")
                node = self._method(node, name) if self._accept("(") else _field(node, name)
            elif self._accept("["):
                index = self.ternary()
                self._expect("]")
                node = _index(node, index)
            else:
                return node

    def _method(self, target: Node, name: str) -> Node:
        if name in _MACROS:
            kind, variable = self._take()
            if kind != "name":
                raise CelError(f"{name}: expected a variable")
            self._expect(",")
            body = self.ternary()
            self._expect(")")
            return _macro(name, target, variable, body)
        arguments = self._arguments()
        method = _METHODS.get(name)
        if method is None:
            raise CelError(f"unknown function {name}")
        return lambda scope: method(target(scope), *(one(scope) for one in arguments))

    def _arguments(self) -> list[Node]:
        found: list[Node] = []
        if self._accept(")"):
            return found
        while True:
            found.append(self.ternary())
            if self._accept(")"):
                return found
            self._expect(",")

    def _primary(self) -> Node:
        kind, text = self._take()
        if kind == "number":
            number: int | float = float(text) if "." in text else int(text)
            return lambda _scope: number
        if kind == "string":
            string = re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text[1:-1])
            return lambda _scope: string
        if text == "(" and kind == "op":
            inner = self.ternary()
            self._expect(")")
            return inner
        if text == "[" and kind == "op":
            return self._list()
        if kind != "name":
            raise CelError(f"unexpected {text!r}")
        if text in ("true", "false", "null"):
            constant = {"true": True, "false": False, "null": None}[text]
            return lambda _scope: constant
        if self._accept("("):
            return self._call(text)
        return lambda scope: _lookup(scope, text)

    def _list(self) -> Node:
        items: list[Node] = []
        while not self._accept("]"):
            items.append(self.ternary())
            self._accept(",")
        return lambda scope: [one(scope) for one in items]

    def _call(self, name: str) -> Node:
        arguments = self._arguments()
        if name == "has" and len(arguments) == 1:
            return lambda scope: _has(arguments[0], scope)
        function = _FUNCTIONS.get(name)
        if function is None or len(arguments) != 1:
            raise CelError(f"unknown function {name}")
        return lambda scope: function(arguments[0](scope))


def _lookup(scope: Scope, name: str) -> Any:
    try:
        return scope[name]
    except KeyError:
        raise CelError(f"undeclared reference to {name!r}") from None


def _has(argument: Node, scope: Scope) -> bool:
    try:
        argument(scope)
    except CelError:
        return False
    return True


def _field(target: Node, name: str) -> Node:
    def get(scope: Scope) -> Any:
        value = target(scope)
        if not isinstance(value, dict) or name not in value:
            raise CelError(f"no such key: {name}")
        return value[name]

    return get


def _index(target: Node, index: Node) -> Node:
    def get(scope: Scope) -> Any:
        try:
            return target(scope)[index(scope)]
        except (KeyError, IndexError, TypeError):
            raise CelError("no such key or index") from None

    return get


def _either(left: Node, right: Node) -> Node:
    def evaluate(scope: Scope) -> bool:
        try:
            if left(scope):
                return True
        except CelError:
            # CEL's || absorbs an error when the other side is true.
            if right(scope):
                return True
            raise
        return bool(right(scope))

    return evaluate


def _both(left: Node, right: Node) -> Node:
    return lambda scope: bool(left(scope)) and bool(right(scope))


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b if isinstance(a, int) and isinstance(b, int) else a / b,
    "%": lambda a, b: a % b,
    "in": lambda a, b: a in b,
}


def _binary(operator: str, left: Node, right: Node) -> Node:
    function = _OPERATORS[operator]

    def evaluate(scope: Scope) -> Any:
        try:
            return function(left(scope), right(scope))
        except (TypeError, ZeroDivisionError) as error:
            raise CelError(str(error)) from None

    return evaluate


def _macro(name: str, target: Node, variable: str, body: Node) -> Node:
    def evaluate(scope: Scope) -> Any:
        values = target(scope)
        results = [(value, body({**scope, variable: value})) for value in values]
        if name == "all":
            return all(result for _, result in results)
        if name == "exists":
            return any(result for _, result in results)
        if name == "exists_one":
            return sum(bool(result) for _, result in results) == 1
        if name == "map":
            return [result for _, result in results]
        return [value for value, result in results if result]

    return evaluate


_METHODS: dict[str, Callable[..., Any]] = {
    "startsWith": lambda text, prefix: text.startswith(prefix),
    "endsWith": lambda text, suffix: text.endswith(suffix),
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "size": len,
}
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {"size": len, "int": int, "string": str, "double": float}
