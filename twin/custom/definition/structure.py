"""Is a schema structural: every value has one type, said outside of ``allOf``, ``anyOf``, ``oneOf`` and ``not``?

Source: apiextensions ``pkg/apiserver/schema`` (validation.go, complete.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twin.custom.patterns import pattern_problem
from twin.registry.status import FieldError, forbidden_field, invalid, required

Json = dict[str, Any]

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_MISSING_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_X = "x-kubernetes-"
_NOT_IN_JUNCTORS = (
    ("type", "must be empty to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    (f"{_X}preserve-unknown-fields", "must be false to be structural"),
    (f"{_X}embedded-resource", "must be false to be structural"),
    (f"{_X}int-or-string", "must be false to be structural"),
    (f"{_X}list-map-keys", "must be empty to be structural"),
    (f"{_X}list-type", "must be undefined to be structural"),
    (f"{_X}map-type", "must be undefined to be structural"),
    (f"{_X}validations", "must be empty to be structural"),
)
_UNSUPPORTED = ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")
_JUNCTORS = ("allOf", "anyOf", "oneOf")


def below(schema: Json, where: str) -> Iterator[tuple[str, Json]]:
    """Every schema directly within this one, junctors among them, with its path."""
    items = schema.get("items")
    if isinstance(items, dict):
        yield f"{where}.items", items
    elif items is not None:
        yield from ((f"{where}.items[{index}]", one) for index, one in enumerate(items))
    for name, child in sorted((schema.get("properties") or {}).items()):
        yield f"{where}.properties[{name}]", child
    if isinstance(schema.get("additionalProperties"), dict):
        yield f"{where}.additionalProperties", schema["additionalProperties"]
    yield from junctors(schema, where)


def junctors(schema: Json, where: str) -> Iterator[tuple[str, Json]]:
    """The alternatives of a schema, and what it must not be."""
    for key in _JUNCTORS:
        yield from ((f"{where}.{key}[{index}]", one) for index, one in enumerate(schema.get(key) or ()))
    if "not" in schema:
        yield f"{where}.not", schema["not"]


def unsupported(schema: Json) -> str:
    """Why this schema cannot be a structural one at all; empty when it can."""
    for key in _UNSUPPORTED:
        if key in schema:
            return f"OpenAPIV3Schema '{key.lstrip('$') if key == '$schema' else key}' is not supported"
    if isinstance(schema.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    if schema.get(f"{_X}preserve-unknown-fields") is False:
        return f"internal error: '{_X}preserve-unknown-fields' must be true or undefined"
    return next((found for _, child in below(schema, "") if (found := unsupported(child))), "")


def structure_errors(schema: Json, where: str) -> list[FieldError]:
    """What keeps a schema from being structural, sorted by text as the server sorts."""
    found = _invariants(schema, where, "root")
    found += _alternatives_complete(schema, schema, where, where)
    return sorted(found, key=lambda error: f"{error.field}: {error.message}")


def _invariants(schema: Json, where: str, level: str) -> list[FieldError]:
    found: list[FieldError] = []
    kind, items, additional = schema.get("type"), schema.get("items"), schema.get("additionalProperties")
    properties: Json = schema.get("properties") or {}
    if kind == "array" and items is None:
        found.append(required(f"{where}.items", "must be specified"))
    if items is not None:
        found += _invariants(items, f"{where}.items", "item")
    for name, child in properties.items():
        found += _invariants(child, f"{where}.properties[{name}]", "field")
    if additional is not None:
        if level == "root":
            found.append(forbidden_field(f"{where}.additionalProperties", "must not be used at the root"))
        if isinstance(additional, dict):
            found += _invariants(additional, f"{where}.additionalProperties", "field")
    found += _extensions(schema, where, level)
    found += _values(schema, where, typed_alternatives=schema.get("anyOf") == _INT_OR_STRING)
    if level == "root" and kind and kind != "object":
        found.append(invalid(f"{where}.type", kind, "must be object at the root"))
    embedded = bool(schema.get(f"{_X}embedded-resource"))
    if level == "root" or embedded:
        for name in ("kind", "apiVersion"):
            if name in properties and properties[name].get("type") != "string":
                given = properties[name].get("type", "")
                found.append(invalid(f"{where}.properties[{name}].type", given, "must be string"))
        if "metadata" in properties:
            found += _metadata(properties["metadata"], f"{where}.properties[metadata]", level)
    return found


def _extensions(schema: Json, where: str, level: str) -> list[FieldError]:
    found: list[FieldError] = []
    kind = schema.get("type", "")
    preserves, embedded, either = (
        bool(schema.get(_X + name)) for name in ("preserve-unknown-fields", "embedded-resource", "int-or-string")
    )
    for name, given in (("preserve-unknown-fields", preserves), ("embedded-resource", embedded)):
        if either and given:
            found.append(invalid(f"{where}.{_X}{name}", True, f"must be false if {_X}int-or-string is true"))
    if embedded and kind != "object":
        text = f"must be object if {_X}embedded-resource is true"
        found.append(invalid(f"{where}.type", kind, text) if kind else required(f"{where}.type", text))
    elif not kind and not either and not preserves:
        found.append(required(f"{where}.type", _MISSING_TYPE[level]))
    if embedded and schema.get("additionalProperties") is not None:
        text = f"must not be used if {_X}embedded-resource is set"
        found.append(forbidden_field(f"{where}.additionalProperties", text))
    if embedded and not preserves and not schema.get("properties"):
        text = f"must not be empty if {_X}embedded-resource is true without {_X}preserve-unknown-fields"
        found.append(required(f"{where}.properties", text))
    return found


def _metadata(schema: Json, where: str, level: str) -> list[FieldError]:
    found: list[FieldError] = []
    if schema.get("type") != "object":
        found.append(invalid(f"{where}.type", schema.get("type", ""), "must be object"))
    if level == "root":
        properties = schema.get("properties") or {}
        rest = {key: value for key, value in schema.items() if key not in ("type", "default", "properties")}
        if rest or not properties.keys() <= {"name", "generateName"}:
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            found.append(forbidden_field(where, text))
    return found


def _values(schema: Json, where: str, *, typed_alternatives: bool = False) -> list[FieldError]:
    """Patterns and junctors. ``typed_alternatives``: this ``anyOf`` says integer or string, which may have types."""
    found: list[FieldError] = []
    for at, alternative in junctors(schema, where):
        if typed_alternatives and at.startswith(f"{where}.anyOf"):
            continue
        # allOf: [{anyOf: [integer, string]}, ...] is the other way to write an int or string
        first = at == f"{where}.allOf[0]" and alternative.get("anyOf") == _INT_OR_STRING
        found += _nested(alternative, at, typed_alternatives=first)
    if schema.get("pattern"):
        problem = pattern_problem(schema["pattern"])
        if problem:
            text = f"must be a valid regular expression, but isn't: {problem}"
            found.append(invalid(f"{where}.pattern", schema["pattern"], text))
    return found


def _nested(schema: Json, where: str, *, typed_alternatives: bool = False) -> list[FieldError]:
    found = _values(schema, where, typed_alternatives=typed_alternatives)
    if isinstance(schema.get("items"), dict):
        found += _nested(schema["items"], f"{where}.items")
    properties = schema.get("properties") or {}
    for name, child in properties.items():
        found += _nested(child, f"{where}.properties[{name}]")
    found += [forbidden_field(f"{where}.{key}", text) for key, text in _NOT_IN_JUNCTORS if schema.get(key) is not None]
    if schema.get("additionalProperties") not in (None, False):
        found.append(forbidden_field(f"{where}.additionalProperties", "must be undefined to be structural"))
    if "metadata" in properties:
        found.append(forbidden_field(f"{where}.properties[metadata]", "must not be specified in a nested context"))
    return found


def _alternatives_complete(rule: Json, schema: Json | None, at: str, where: str) -> list[FieldError]:
    """What junctors speak of must be declared outside of them; ``rule`` stands at ``where``, ``schema`` at ``at``."""
    found: list[FieldError] = []
    for path, alternative in junctors(rule, where):
        found += _declared(alternative, schema, at, path)
    return found


def _declared(rule: Json, schema: Json | None, at: str, where: str) -> list[FieldError]:
    if schema is None:
        return [required(at, f"because it is defined in {where}")]
    found = _alternatives_complete(rule, schema, at, where)
    if isinstance(rule.get("items"), dict):
        found += _declared(rule["items"], schema.get("items"), f"{at}.items", f"{where}.items")
    for name, child in (rule.get("properties") or {}).items():
        path = f".properties[{name}]"
        found += _declared(child, (schema.get("properties") or {}).get(name), at + path, where + path)
    return found
