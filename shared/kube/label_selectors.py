"""Label selectors as text (``-l``, ``labelSelector``): parsing with the real server's error texts, and matching.

Why own code: clients see these messages, and a watch evaluates a selector twice for every change of every watcher.
Read by the twin's API server, by the admin API and by the command line. Source: apimachinery
``pkg/labels/selector.go`` (lexer, parser). Pure. It does not take field selectors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from shared.model.terms.labels import LabelSelector as ObjectSelector

_END, _IDENT, _COMMA, _OPEN, _CLOSE = "", "identifier", ",", "(", ")"
_BINARY = {"in", "notin", "=", "==", "!=", ">", "<"}
_SPECIAL = set("=!(),><")
_EXPECTED_OPERATORS = "in, notin, =, ==, !=, gt, lt"

_LABEL_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_INTEGER = re.compile(r"[+-]?[0-9]+")


class SelectorError(ValueError):
    """A selector that does not parse; the text is the server's message."""


def is_qualified_name(value: str) -> bool:
    """Whether ``value`` can be a label key: ``[prefix/]name``."""
    prefix, slash, name = value.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return 0 < len(name) <= 63 and bool(_LABEL_NAME.fullmatch(name))


def is_label_value(value: str) -> bool:
    """Whether ``value`` can be a label's value (empty is fine)."""
    return not value or (len(value) <= 63 and bool(_LABEL_NAME.fullmatch(value)))


class SelectorRequirement(Struct, frozen=True):
    """One condition on a label. ``operator``: ``in notin exists ! gt lt`` (equality is ``in`` or ``notin``)."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()
    number: int = 0

    def matches(self, labels: Mapping[str, str]) -> bool:
        """An absent label satisfies ``notin`` and ``!`` only."""
        value = labels.get(self.key)
        if self.operator == "in":
            return value is not None and value in self.values
        if self.operator == "notin":
            return value is None or value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        if value is None or not _INTEGER.fullmatch(value):
            return False
        return int(value) > self.number if self.operator == "gt" else int(value) < self.number


class ParsedSelector(Struct, frozen=True):
    """All requirements must hold; none = everything."""

    requirements: tuple[SelectorRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with ``labels`` is selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def query_text(selector: ObjectSelector) -> str:
    """A selector of an object as text: ``a=b,c in (d,e),!f``; "" for one that selects everything, or nothing."""
    parts = []
    for one in selector.requirements:
        values = ",".join(one.values)
        match one.operator, len(one.values):
            case (("In" | "NotIn"), 0):
                return ""  # the API server takes no such selector
            case "In", 1:
                parts.append(f"{one.key}={values}")
            case "In", _:
                parts.append(f"{one.key} in ({values})")
            case "NotIn", _:
                parts.append(f"{one.key} notin ({values})")
            case "Exists", _:
                parts.append(one.key)
            case _:
                parts.append(f"!{one.key}")
    return ",".join(parts)


def _lex(text: str) -> list[str]:
    """Split into tokens; special symbols are cut into the longest known operators."""
    tokens: list[str] = []
    index = 0
    while index < len(text):
        char = text[index]
        if char in " \t\r\n":
            index += 1
        elif char in _SPECIAL:
            if text[index : index + 2] in ("==", "!="):
                tokens.append(text[index : index + 2])
                index += 2
            else:
                tokens.append(char)
                index += 1
        else:
            start = index
            while index < len(text) and text[index] not in _SPECIAL and text[index] not in " \t\r\n":
                index += 1
            tokens.append(text[start:index])
    return tokens


class _Parser:
    """Recursive descent over the tokens, as the Go parser walks them (its messages depend on the order of look-ups)."""

    def __init__(self, text: str) -> None:
        self._tokens = _lex(text)
        self._position = 0

    def _look(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else _END

    def _take(self) -> str:
        token = self._look()
        self._position += 1
        return token

    @staticmethod
    def _is_identifier(token: str) -> bool:
        return bool(token) and token[0] not in _SPECIAL

    def parse(self) -> list[SelectorRequirement]:
        requirements: list[SelectorRequirement] = []
        while True:
            token = self._look()
            if token == _END:
                return requirements
            if not self._is_identifier(token) and token != "!":  # noqa: S105 - a token of the grammar
                raise SelectorError(f"found '{token}', expected: !, identifier, or 'end of string'")
            try:
                requirements.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            after = self._take()
            if after == _END:
                return requirements
            if after != _COMMA:
                raise SelectorError(f"found '{after}', expected: ',' or 'end of string'")
            following = self._look()
            if not self._is_identifier(following) and following != "!":
                raise SelectorError(f"found '{following}', expected: identifier after ','")

    def _requirement(self) -> SelectorRequirement:
        key = self._take()
        absent = key == "!"
        if absent:
            key = self._take()
        if not self._is_identifier(key):
            raise SelectorError(f"found '{key}', expected: identifier")
        if not is_qualified_name(key):
            raise SelectorError(
                f'key: Invalid value: "{key}": name part must consist of alphanumeric characters, '
                "'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
                "'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            )
        if absent:
            return SelectorRequirement(key, "!")
        if self._look() in (_END, _COMMA):
            return SelectorRequirement(key, "exists")
        operator = self._take()
        if operator not in _BINARY:
            raise SelectorError(f"found '{operator}', expected: {_EXPECTED_OPERATORS}")
        if operator in ("in", "notin"):
            values = self._values()
            if not values:
                raise SelectorError("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")
        else:
            values = {self._exact_value()}
        return _checked(key, operator, values)

    def _exact_value(self) -> str:
        if self._look() in (_END, _COMMA):
            return ""
        value = self._take()
        if not self._is_identifier(value):
            raise SelectorError(f"found '{value}', expected: identifier")
        return value

    def _values(self) -> set[str]:
        token = self._take()
        if token != _OPEN:
            raise SelectorError(f"found '{token}' expected: '('")
        token = self._look()
        if token == _CLOSE:
            self._take()
            return set()
        if token != _COMMA and not self._is_identifier(token):
            raise SelectorError(f"found '{token}', expected: ',', ')' or identifier")
        values = self._identifiers()
        token = self._take()
        if token != _CLOSE:
            raise SelectorError(f"found '{token}', expected: ')'")
        return values

    def _identifiers(self) -> set[str]:
        values: set[str] = set()
        while True:
            token = self._take()
            if self._is_identifier(token):
                values.add(token)
                following = self._look()
                if following == _COMMA:
                    continue
                if following == _CLOSE:
                    return values
                raise SelectorError(f"found '{following}', expected: ',' or ')'")
            if token != _COMMA:
                raise SelectorError(f"found '{token}', expected: ',', or identifier")
            if not values:
                values.add("")
            following = self._look()
            if following == _CLOSE:
                values.add("")
                return values
            if following == _COMMA:
                self._take()
                values.add("")


def _checked(key: str, operator: str, values: set[str]) -> SelectorRequirement:
    for index, value in enumerate(sorted(values)):
        if operator in (">", "<") and not _INTEGER.fullmatch(value):
            raise SelectorError(
                f"values[{index}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
            )
        if not is_label_value(value):
            raise SelectorError(
                f'values[{index}][{key}]: Invalid value: "{value}": a valid label must be an empty string or consist '
                "of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
                "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
                "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            )
    if operator in (">", "<"):
        return SelectorRequirement(key, "gt" if operator == ">" else "lt", number=int(next(iter(values))))
    return SelectorRequirement(key, "notin" if operator in ("!=", "notin") else "in", frozenset(values))


def parse_label_selector(text: str) -> ParsedSelector | None:
    """The selector; None when it selects everything. ``SelectorError``: it does not parse."""
    requirements = _Parser(text).parse() if text else []
    return ParsedSelector(tuple(requirements)) if requirements else None
