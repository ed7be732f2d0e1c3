"""Paths to a field of a schema: ``.spec.a['b']``, as rules' ``fieldPath`` and selectable fields give them.

Source: apiextensions ``pkg/apiserver/schema/cel`` (ValidFieldPath).
"""

from __future__ import annotations

import re
from typing import Any

Json = dict[str, Any]

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]']+|'")
_NO_FIELD = "does not refer to a valid field"


class BadPath(Exception):
    """Why a path leads nowhere."""


def field_at(schema: Json, path: str, *, brackets: bool = True) -> tuple[tuple[str, ...], Json]:
    """(the names on the way, the schema there). Raises ``BadPath``."""
    tokens = _TOKEN.findall(path)
    names: list[str] = []
    at = 0
    while at < len(tokens):
        part = tokens[at]
        if part == "[":
            if not brackets:
                raise BadPath("array notation is not allowed")
            name = _after(tokens, at)
            if len(name) < 2 or name[0] != "'" or name[-1] != "'":
                raise BadPath(f"expected single quoted string but got {name}")
            schema = _step(schema, name[1:-1].replace("\\'", "'"))
            names.append(name[1:-1])
            closing = _after(tokens, at + 1)
            if closing != "]":
                raise BadPath(f"expected ] but got {closing}")
            at += 3
        elif part == ".":
            name = _after(tokens, at)
            schema = _step(schema, name)
            names.append(name)
            at += 2
        else:
            raise BadPath(f"expected [ or . but got: {part}")
    return tuple(names), schema


def _after(tokens: list[str], at: int) -> str:
    if at + 1 >= len(tokens):
        raise BadPath("unexpected end of JSON path")
    return tokens[at + 1]


def _step(schema: Json, name: str) -> Json:
    properties = schema.get("properties")
    if properties:
        if name not in properties:
            raise BadPath(_NO_FIELD)
        found: Json = properties[name]
        return found
    if schema.get("additionalProperties") is None:
        raise BadPath(_NO_FIELD)
    values = schema["additionalProperties"]
    return values if isinstance(values, dict) else {}
