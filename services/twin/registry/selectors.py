"""Selectors of a query: label selectors refused as the real server does, and field selectors.

Sources: ``shared.kube.label_selectors`` for labels; ``pkg/fields/selector.go`` of apimachinery for fields. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from services.twin.registry.status import bad_request
from shared.kube.label_selectors import LabelSelector, SelectorError, parse_label_selector


def parse_labels(text: str) -> LabelSelector | None:
    """A ``labelSelector``; None when it selects everything. Refused: 400 with the parser's message."""
    try:
        return parse_label_selector(text)
    except SelectorError as error:
        raise bad_request(str(error)) from None


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """(field, value, equal) terms; an absent field counts as an empty string."""

    terms: tuple[tuple[str, str, bool], ...]

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether an object with these field values is selected."""
        return all((fields.get(name, "") == value) is equal for name, value, equal in self.terms)


def _split_fields(text: str) -> list[str]:
    terms: list[str] = []
    start, index = 0, 0
    while index < len(text):
        if text[index] == "\\":
            index += 1
        elif text[index] == ",":
            terms.append(text[start:index])
            start = index + 1
        index += 1
    terms.append(text[start:])
    return terms


def _unescape(text: str, whole: str) -> str:
    out: list[str] = []
    index = 0
    while index < len(text):
        char = text[index]
        if char == "\\":
            index += 1
            if index == len(text) or text[index] not in "\\,=":
                raise bad_request(
                    f"invalid field selector: invalid escape sequence: {text[index - 1 : index + 1]} in {whole}"
                )
            char = text[index]
        elif char in ",=":
            raise bad_request(f"invalid field selector: unescaped '{char}' in value: {whole}")
        out.append(char)
        index += 1
    return "".join(out)


def parse_fields(text: str, supported: frozenset[str], error_text: str = "") -> FieldSelector | None:
    """A ``fieldSelector`` over the ``supported`` fields; None when it selects everything. Refused: 400."""
    terms: list[tuple[str, str, bool]] = []
    for term in _split_fields(text):
        if not term:
            continue
        found = re.search(r"!=|==|=", term)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        name = term[: found.start()]
        if name not in supported:
            raise bad_request((error_text or "field label not supported: {field}").format(field=name))
        terms.append((name, _unescape(term[found.end() :], text), found.group() != "!="))
    return FieldSelector(tuple(terms)) if terms else None
