"""The types that a schema declares to the compiler of rules, with the most that a value of each may hold.

Source: k8s.io/apiserver ``pkg/cel/common`` (SchemaDeclType), ``pkg/cel/limits.go``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

REQUEST_BYTES = 3 * 1024 * 1024
"""The largest request that the server's estimates reckon with."""
_TIMES = {"duration": ("duration", 3, 32), "date": ("timestamp", 12, 12), "date-time": ("timestamp", 21, 32)}
_SCALARS = {"boolean": ("bool", 4), "number": ("double", 1), "integer": ("int", 1)}
_RESERVED = frozenset(
    (
        "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
        "let", "loop", "package", "namespace", "return", "var", "void", "while",
    )
)  # fmt: skip
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_NAME = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Declared:
    """One type. Sizes in bytes of JSON, characters, items or entries, as the value has them."""

    kind: str
    """bool, int, double, string, bytes, duration, timestamp, dyn, list, map or object."""
    least_bytes: int
    """Of its shortest JSON."""
    most: int = 0
    """Characters, items or entries at most; 0 for scalars and objects."""
    element: Declared | None = None
    """Of lists: the items. Of maps: the values."""
    fields: dict[str, Declared] = field(default_factory=dict)
    """Of objects, by escaped name."""


def escaped(name: str) -> str | None:
    """A property's name as rules write it; None: they cannot."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _NAME.fullmatch(name):
        return None
    return re.sub(r"__|[./-]", lambda found: _ESCAPES[found[0]], name)


def is_reserved(name: str) -> bool:
    return name in _RESERVED


def declared(schema: Json, *, resource: bool = False) -> Declared | None:
    """The type of a schema; None where rules may not look. ``resource``: the root of an object, or one embedded."""
    if schema.get("x-kubernetes-int-or-string"):
        return Declared("dyn", 1, _most_characters(schema, REQUEST_BYTES - 2))
    if resource:
        schema = _with_metadata(schema)
    match schema.get("type"):
        case "array":
            return _list(schema)
        case "object":
            values = schema.get("additionalProperties")
            return _map(schema, values) if isinstance(values, dict) else _object(schema)
        case "string":
            return _string(schema)
        case "boolean" | "number" | "integer" as known:
            return Declared(*_SCALARS[known])
    return None


def is_resource(schema: Json) -> bool:
    return bool(schema.get("x-kubernetes-embedded-resource"))


def _list(schema: Json) -> Declared | None:
    items = schema.get("items")
    element = declared(items, resource=is_resource(items)) if isinstance(items, dict) else None
    if element is None:
        return None
    most = schema.get("maxItems", (REQUEST_BYTES - 2) // (element.least_bytes + 1))
    return Declared("list", 2, max(most, 0), element)


def _map(schema: Json, values: Json) -> Declared | None:
    element = declared(values, resource=is_resource(values))
    if element is None:
        return None
    # two quotes, a colon, a comma and an empty key are around each value
    most = schema.get("maxProperties", (REQUEST_BYTES - 2) // (element.least_bytes + 6))
    return Declared("map", 2, max(most, 0), element)


def _object(schema: Json) -> Declared:
    fields: dict[str, Declared] = {}
    least = 2
    needed = set(schema.get("required") or ())
    for name, child in (schema.get("properties") or {}).items():
        found = declared(child, resource=is_resource(child))
        if found is None:
            continue
        rule_name = escaped(name)
        if rule_name is not None:
            fields[rule_name] = found
        if name in needed and child.get("default") is None:
            least += len(name.encode()) + found.least_bytes + 4
    return Declared("object", least, fields=fields)


def _string(schema: Json) -> Declared:
    form = schema.get("format")
    if form in _TIMES:
        return Declared(*_TIMES[form])
    if form == "byte":
        return Declared("bytes", 2, max(schema.get("maxLength", REQUEST_BYTES - 2), 0))
    choices = schema.get("enum") or ()
    longest = max((len(one.encode()) for one in choices if isinstance(one, str)), default=0)
    return Declared("string", 2, _most_characters(schema, longest if choices else REQUEST_BYTES - 2))


def _most_characters(schema: Json, otherwise: int) -> int:
    """Of a text: a character is up to four bytes long."""
    return max(schema["maxLength"], 0) * 4 if "maxLength" in schema else otherwise


def _with_metadata(schema: Json) -> Json:
    properties: Json = schema.get("properties") or {}
    metadata = properties.get("metadata") or {}
    told = metadata.get("properties") or {}
    texts = (properties.get("kind"), properties.get("apiVersion"), told.get("name"), told.get("generateName"))
    if metadata.get("type") == "object" and all((one or {}).get("type") == "string" for one in texts):
        return schema
    text = {"type": "string"}
    made = {"type": "object", "properties": {"name": text, "generateName": text}}
    return {**schema, "properties": {**properties, "kind": text, "apiVersion": text, "metadata": made}}
