"""The keywords of a schema, and its rules' entries, place by place.

Rules are compiled and their cost is estimated only where no keyword below is wrong, as the server does.
Source: apiextensions ``pkg/apis/apiextensions/validation`` (ValidateCustomResourceDefinitionOpenAPISchema).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from twin.custom.definition.field_paths import BadPath, field_at
from twin.custom.definition.rule_costs import RuleCosts, SchemaPlace
from twin.registry.status import FieldError, forbidden_field, invalid, not_supported, required

Json = dict[str, Any]

_X = "x-kubernetes-"
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_META_FIELDS = ("metadata", "kind", "apiVersion")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")


@dataclass(frozen=True, slots=True)
class _Scope:
    """What the places above forbid here."""

    no_defaults: str = ""
    """Why there may be no defaults; empty when there may."""
    in_metadata: bool = False
    no_old_self: str = ""
    """The nearest place above whose old and new values cannot be told to be the same; empty = none."""


@dataclass(slots=True)
class _Found:
    keywords: list[FieldError] = field(default_factory=list)
    rules: list[FieldError] = field(default_factory=list)

    def add(self, other: _Found) -> None:
        self.keywords += other.keywords
        self.rules += other.rules


def keyword_errors(schema: Json, where: str, costs: RuleCosts | None) -> list[FieldError]:
    """What is wrong with a root schema; rules are judged when ``costs`` is given, and what they cost goes there."""
    place = SchemaPlace.root(schema) if costs is not None else None
    found = _check(schema, where, _Scope(), place, costs, root=True)
    return found.keywords + found.rules


def _check(
    schema: Json, where: str, scope: _Scope, place: SchemaPlace | None, costs: RuleCosts | None, *, root: bool = False
) -> _Found:
    found = _Found(_own(schema, where, scope))
    additional, properties, items = (schema.get(key) for key in ("additionalProperties", "properties", "items"))
    if properties and additional is not None and additional is not True:
        text = "additionalProperties and properties are mutual exclusive"
        found.keywords.append(forbidden_field(f"{where}.additionalProperties", text))
    if isinstance(additional, dict):
        inner = scope
        if scope.in_metadata:
            inner = replace(scope, no_defaults="inside additionalProperties applying to object metadata")
        child = place and place.value(additional)
        found.add(_check(additional, f"{where}.additionalProperties", inner, child, costs))
    for name, one in (properties or {}).items():
        inner = scope
        if name in _META_FIELDS and (root or schema.get(f"{_X}embedded-resource")):
            inner = replace(inner, in_metadata=True)
            if root:
                inner = replace(inner, no_defaults=f"in top-level {name}")
        child = place and place.property(name, one)
        found.add(_check(one, f"{where}.properties[{name}]", inner, child, costs))
    for key in ("allOf", "oneOf", "anyOf"):
        for index, one in enumerate(schema.get(key) or ()):
            found.add(_check(one, f"{where}.{key}[{index}]", scope, None, costs))
    if "not" in schema:
        found.add(_check(schema["not"], f"{where}.not", scope, None, costs))
    if items is not None:
        inner = scope if schema.get(f"{_X}list-type") == "map" else _not_correlated(scope, where)
        for index, one in enumerate(items if isinstance(items, list) else [items]):
            at = f"{where}.items[{index}]" if isinstance(items, list) else f"{where}.items"
            found.add(_check(one, at, inner, place and place.item(one), costs))
    found.keywords += _extensions(schema, where)
    rules = schema.get(f"{_X}validations") or ()
    for index, rule in enumerate(rules):
        found.keywords += _entry(rule, schema, f"{where}.{_X}validations[{index}]")
    if rules and place is not None and costs is not None and not found.keywords:
        found.rules += costs.judge(schema, place, where, scope.no_old_self)
    return found


def _not_correlated(scope: _Scope, where: str) -> _Scope:
    return scope if scope.no_old_self else replace(scope, no_old_self=where)


def _own(schema: Json, where: str, scope: _Scope) -> list[FieldError]:
    found: list[FieldError] = []
    kind = schema.get("type", "")
    if kind and kind not in _TYPES:
        found.append(not_supported(f"{where}.type", kind, _TYPES))
    if "default" in schema and scope.no_defaults:
        found.append(forbidden_field(f"{where}.default", f"must not be set {scope.no_defaults}"))
    found += [forbidden_field(f"{where}.{key}", f"{key} is not supported") for key in _UNSUPPORTED if key in schema]
    if kind == "null":
        text = "type cannot be set to null, use nullable as an alternative"
        found.append(forbidden_field(f"{where}.type", text))
    if isinstance(schema.get("items"), list):
        found.append(forbidden_field(f"{where}.items", "items must be a schema object and not an array"))
    if scope.in_metadata and schema.get(f"{_X}embedded-resource"):
        found.append(forbidden_field(f"{where}.{_X}embedded-resource", "must not be used inside of resource meta"))
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        found.append(forbidden_field(f"{where}.uniqueItems", text))
    return found


def _extensions(schema: Json, where: str) -> list[FieldError]:
    found: list[FieldError] = []
    if schema.get(f"{_X}preserve-unknown-fields") is False:
        found.append(invalid(f"{where}.{_X}preserve-unknown-fields", False, "must be true or undefined"))
    found += _typed_by(schema, where, "map-type", "object", ("atomic", "granular"))
    found += _typed_by(schema, where, "list-type", "array", ("atomic", "set", "map"))
    items = schema.get("items")
    if isinstance(items, dict) and schema.get("type") == "array" and schema.get(f"{_X}list-type") == "set":
        inner = items.get(f"{_X}list-type")
        text = f"must be atomic as item of a list with {_X}list-type=set"
        if items.get("type") == "array" and inner not in (None, "atomic"):
            found.append(invalid(f"{where}.items.{_X}list-type", inner, text))
        if items.get("type") == "object" and items.get(f"{_X}map-type") != "atomic":
            found.append(invalid(f"{where}.items.{_X}map-type", inner, text))
    found += _list_keys(schema, where)
    if isinstance(items, dict) and schema.get(f"{_X}list-type") in ("set", "map"):
        found += _identified(schema, items, where)
    return found


def _typed_by(schema: Json, where: str, name: str, wanted: str, known: Iterable[str]) -> list[FieldError]:
    given, kind = schema.get(_X + name), schema.get("type", "")
    if given is None:
        return []
    found: list[FieldError] = []
    if kind != wanted:
        text = f"must be {wanted} if {_X}{name} is specified"
        found.append(invalid(f"{where}.type", kind, text) if kind else required(f"{where}.type", text))
    if given not in known:
        found.append(not_supported(f"{where}.{_X}{name}", given, known))
    return found


def _list_keys(schema: Json, where: str) -> list[FieldError]:
    found: list[FieldError] = []
    keys, kind, items = schema.get(f"{_X}list-map-keys") or [], schema.get(f"{_X}list-type"), schema.get("items")
    if keys and kind != "map":
        text = f"must be map if {_X}list-map-keys is non-empty"
        at = f"{where}.{_X}list-type"
        found.append(required(at, text) if kind is None else invalid(at, kind, text))
    if kind != "map":
        return found
    if not keys:
        found.append(required(f"{where}.{_X}list-map-keys", f"must not be empty if {_X}list-type is map"))
    if items is None:
        found.append(required(f"{where}.items", f"must have a schema if {_X}list-type is map"))
    elif isinstance(items, list):
        found.append(invalid(f"{where}.items", items, f"must only have a single schema if {_X}list-type is map"))
    elif items.get("type") != "object":
        text = f"must be object if parent array's {_X}list-type is map"
        found.append(invalid(f"{where}.items.type", items.get("type", ""), text))
    else:
        properties = items.get("properties") or {}
        for index, key in enumerate(keys):
            if key not in properties:
                text = "entries must all be names of item properties"
                found.append(invalid(f"{where}.{_X}list-map-keys", keys, text))
            elif properties[key].get("type") in ("array", "object"):
                text = f"must be a scalar type if parent array's {_X}list-type is map"
                found.append(invalid(f"{where}.items.properties[{key}].type", items["type"], text))
            if key in keys[:index]:
                found.append(invalid(f"{where}.{_X}list-map-keys", keys, "must not contain duplicate entries"))
    return found


def _identified(schema: Json, items: Json, where: str) -> list[FieldError]:
    """Items of sets and maps can be told apart: they are never null, nor are their keys ever missing."""
    found: list[FieldError] = []
    if items.get("nullable"):
        text = f"cannot be nullable when {_X}list-type is {schema[f'{_X}list-type']}"
        found.append(forbidden_field(f"{where}.items.nullable", text))
    if schema[f"{_X}list-type"] == "map":
        properties = items.get("properties") or {}
        for key in schema.get(f"{_X}list-map-keys") or ():
            child, at = properties.get(key), f"{where}.items.properties[{key}]"
            if child is None:
                continue
            said = f"this property is in {_X}list-map-keys, so it"
            if key not in (items.get("required") or ()) and "default" not in child:
                found.append(required(f"{at}.default", f"{said} must have a default or be a required property"))
            if child.get("nullable"):
                found.append(forbidden_field(f"{at}.nullable", f"{said} cannot be nullable"))
    return found


def _entry(rule: Json, schema: Json, where: str) -> list[FieldError]:
    found: list[FieldError] = []
    text, message = rule["rule"].strip(), rule.get("message", "")
    if not text:
        found.append(required(f"{where}.rule", "rule is not specified"))
    elif message and not message.strip():
        found.append(invalid(f"{where}.message", message, "must be non-empty if specified"))
    elif _has_lines(message.strip()):
        found.append(invalid(f"{where}.message", message, "must not contain line breaks"))
    elif _has_lines(text) and not message.strip():
        found.append(required(f"{where}.message", "message must be specified if rule contains line breaks"))
    expression, path = rule.get("messageExpression", ""), rule.get("fieldPath", "")
    if expression and not expression.strip():
        found.append(required(f"{where}.messageExpression", "messageExpression must be non-empty if specified"))
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        found.append(not_supported(f"{where}.reason", reason, _REASONS))
    if path and not path.strip():
        found.append(invalid(f"{where}.fieldPath", path, "must be non-empty if specified"))
    if _has_lines(path):
        found.append(invalid(f"{where}.fieldPath", path, "must not contain line breaks"))
    if path:
        try:
            field_at(schema, path)
        except BadPath:
            found.append(invalid(f"{where}.fieldPath", path, "must be a valid path"))
    return found


def _has_lines(text: str) -> bool:
    return "\n" in text or "\r" in text
