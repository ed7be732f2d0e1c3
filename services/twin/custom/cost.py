"""What a validation rule may cost at most: steps for the worst value that its schema allows.

A rule without a bound is refused with its definition, before any object is written. Coarser than the real server's
estimate, of the same size where it matters: nested loops over lists without ``maxItems``, text functions on strings
without ``maxLength``.

Source: apiextensions ``pkg/apis/apiextensions/validation``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from services.twin.custom.expressions import escaped

Json = dict[str, Any]

_REQUEST_BYTES = 3 * 1024 * 1024
_TEXT = re.compile(
    r"//[^\n]*|[rRbB]{0,2}(?:\"\"\".*?\"\"\"|'''.*?''')|[rR][bB]?(?:\"[^\"]*\"|'[^']*')"
    r"|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'",
    re.DOTALL,
)
_LOOP = re.compile(r"\.\s*(?:all|exists|exists_one|filter|map)\s*\(|[()]")
_HEAVY = re.compile(
    r"\b(?:contains|matches|split|replace|join|format|lowerAscii|upperAscii|trim|substring|indexOf|lastIndexOf"
    r"|reverse|quote)\s*\("
)
_GROWING = re.compile(r"\b(?:replace|join|format)\s*\(")


def most_values(schema: Json) -> int:
    """The most items or values that this place may have."""
    if schema.get("type") == "array":
        return int(schema.get("maxItems", _REQUEST_BYTES // 2))
    if isinstance(schema.get("additionalProperties"), dict):
        return int(schema.get("maxProperties", _REQUEST_BYTES // 2))
    return 1


def _reached(schema: Json, words: set[str]) -> Iterator[Json]:
    """The schemas of the values that an expression can come to: it has to name a property to get there."""
    yield schema
    named = [child for name, child in (schema.get("properties") or {}).items() if escaped(name) in words]
    for child in (*named, schema.get("items"), schema.get("additionalProperties")):
        if isinstance(child, dict):
            yield from _reached(child, words)


def estimate(text: str, schema: Json) -> float:
    """Steps of the worst value the schema allows: loops within loops, times the texts they work on."""
    code = _TEXT.sub("''", text)
    depth, open_loops = 0, [False]
    for found in _LOOP.findall(code):
        if found == ")":
            open_loops[1:] = open_loops[1:-1]
        else:
            open_loops.append(found != "(")
            depth = max(depth, sum(open_loops))
    reached = list(_reached(schema, set(re.findall(r"\w+", text))))
    steps = float(max(code.count(",") + 1, *(most_values(one) for one in reached))) ** depth
    if _HEAVY.search(code) or ("+" in code and "map(" in code):
        strings = [one for one in reached if one.get("type") not in ("boolean", "integer", "number", "array", "object")]
        longest = max((one.get("maxLength", _REQUEST_BYTES) for one in strings if "enum" not in one), default=256)
        growth = len(text) ** len(_GROWING.findall(code)) * (2 ** code.count("+") if "map(" in code else 1)
        steps *= max(1.0, 0.1 * longest * growth)
    return steps
