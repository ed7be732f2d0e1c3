"""Schemas as the rest of this package may rely on them.

A definition's schema is free-form JSON by the time it is stored; a keyword of the wrong type is dropped here, once, so
that nobody after has to doubt what it reads. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

_MAX_DEPTH = 64


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_pattern(value: Any) -> bool:
    try:
        re.compile(value)
    except (re.error, TypeError):
        return False
    return True


_KEYWORDS: dict[str, Callable[[Any], bool]] = {
    "type": _is_text,
    "format": _is_text,
    "pattern": _is_pattern,
    "nullable": _is_flag,
    "required": _is_names,
    "enum": lambda value: isinstance(value, list),
    "default": lambda _value: True,
    "minimum": _is_number,
    "maximum": _is_number,
    "exclusiveMinimum": _is_flag,
    "exclusiveMaximum": _is_flag,
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "minLength": _is_count,
    "maxLength": _is_count,
    "minItems": _is_count,
    "maxItems": _is_count,
    "minProperties": _is_count,
    "maxProperties": _is_count,
    "x-kubernetes-preserve-unknown-fields": _is_flag,
    "x-kubernetes-embedded-resource": _is_flag,
    "x-kubernetes-int-or-string": _is_flag,
    "x-kubernetes-list-type": _is_text,
    "x-kubernetes-list-map-keys": _is_names,
}


def well_formed(schema: Any, depth: int = 0) -> Json:
    """The part of ``schema`` that means something."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return {}
    out = {key: value for key, value in schema.items() if key in _KEYWORDS and _KEYWORDS[key](value)}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        out["properties"] = {name: well_formed(child, depth + 1) for name, child in properties.items()}
    if isinstance(schema.get("items"), dict):
        out["items"] = well_formed(schema["items"], depth + 1)
    additional = schema.get("additionalProperties")
    if isinstance(additional, bool):
        out["additionalProperties"] = additional
    elif isinstance(additional, dict):
        out["additionalProperties"] = well_formed(additional, depth + 1)
    rules = schema.get("x-kubernetes-validations")
    if isinstance(rules, list):
        out["x-kubernetes-validations"] = [_rule(one) for one in rules if _is_rule(one)]
    return out


def _is_rule(rule: Any) -> bool:
    return isinstance(rule, dict) and isinstance(rule.get("rule"), str)


def _rule(rule: Json) -> Json:
    keys = ("rule", "message", "messageExpression", "reason", "fieldPath")
    kept: Json = {key: rule[key] for key in keys if isinstance(rule.get(key), str)}
    return {**kept, "optionalOldSelf": True} if rule.get("optionalOldSelf") is True else kept
