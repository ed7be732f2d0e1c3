"""Do the defaults of a schema hold: pruned, good against schema and rules, as they are written?

Defaults within a default are not filled in first: an empty object beside a rule that reads a field of it is refused.
Source: apiextensions ``pkg/apiserver/schema/defaulting`` (validation.go), ``pkg/apiserver/schema/objectmeta``.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from twin.custom.expressions import RuleError
from twin.custom.rules import compile_rules, rule_errors
from twin.custom.schema import blocks_rules, prune, validate
from twin.kinds.rules.codec import TYPES, DecodeError
from twin.kinds.rules.names import dns_label_1035
from twin.registry.status import FieldError, invalid, required

Json = dict[str, Any]

_META = ("metadata", "apiVersion", "kind")
_EMBEDDED = "x-kubernetes-embedded-resource"


def default_errors(schema: Json, where: str, *, pruned: bool = True) -> list[FieldError]:
    """What is wrong with the defaults of a structural root schema; ``pruned``: they may have no unknown fields."""
    return _check({**schema, _EMBEDDED: True}, where, in_meta=False, pruned=pruned)


def _check(schema: Json, where: str, *, in_meta: bool, pruned: bool) -> list[FieldError]:
    embedded = bool(schema.get(_EMBEDDED))
    in_meta = in_meta and not embedded
    found: list[FieldError] = []
    if "default" in schema:
        found += _of_one(schema, f"{where}.default", check_unknown=pruned and not in_meta)
    # defaults of a map's values are never judged by themselves
    if isinstance(schema.get("items"), dict):
        found += _check(schema["items"], f"{where}.items", in_meta=in_meta, pruned=pruned)
    for name, child in (schema.get("properties") or {}).items():
        inside = in_meta or (embedded and name in _META)
        found += _check(child, f"{where}.properties[{name}]", in_meta=inside, pruned=pruned)
    return found


def _of_one(schema: Json, where: str, *, check_unknown: bool) -> list[FieldError]:
    value = schema["default"]
    found: list[FieldError] = []
    if check_unknown and prune(copy.deepcopy(value), schema, top=bool(schema.get(_EMBEDDED))):
        found.append(invalid(where, value, "must not have unknown fields"))
    errors = _metadata(value, schema, where)
    if errors:
        return [*found, *errors]
    errors = [_below(error, where) for error in validate(value, _of_any_kind(schema))]
    if errors:
        return [*found, *errors]
    try:
        checks = compile_rules(schema)
    except (RuleError, RuntimeError, ImportError):
        # a rule that does not compile is told of by itself
        return found
    if checks is not None and not blocks_rules(errors):
        # as if it were left as it is by an update, and then as if it were new
        told = rule_errors(checks, value, value) or rule_errors(checks, value, None)
        found += [_below(error, where) for error in told]
    return found


def _of_any_kind(schema: Json) -> Json:
    """As defaults are judged: no int or string is asked of them, nor that items of sets and maps be unlike."""
    unasked = ("x-kubernetes-int-or-string", "x-kubernetes-list-type")
    known = {key: value for key, value in schema.items() if key not in unasked}
    if "properties" in known:
        known["properties"] = {name: _of_any_kind(child) for name, child in known["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(known.get(key), dict):
            known[key] = _of_any_kind(known[key])
    return known


def _below(error: FieldError, where: str) -> FieldError:
    """A value's error, told at the default."""
    if error.field in ("", "<nil>"):
        return replace(error, field=where)
    between = "" if error.field.startswith("[") else "."
    return replace(error, field=f"{where}{between}{error.field}")


def _metadata(value: Any, schema: Json, where: str) -> list[FieldError]:
    """Embedded resources say what they are, with metadata that is some."""
    found: list[FieldError] = []
    if isinstance(value, dict):
        if schema.get(_EMBEDDED):
            found += _resource(value, where)
        values = schema.get("additionalProperties")
        properties = schema.get("properties") or {}
        for key, item in value.items():
            if key in properties:
                found += _metadata(item, properties[key], f"{where}.{key}")
            elif isinstance(values, dict):
                found += _metadata(item, values, f"{where}[{key}]")
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            found += _metadata(item, schema["items"], f"{where}[{index}]")
    return found


def _resource(value: Json, where: str) -> list[FieldError]:
    found = [required(f"{where}.{key}") for key in ("apiVersion", "kind") if key not in value]
    for key in ("apiVersion", "kind"):
        given = value.get(key, "x")
        if not isinstance(given, str):
            found.append(invalid(f"{where}.{key}", given, "must be a string"))
        elif not given:
            found.append(invalid(f"{where}.{key}", given, "must not be empty"))
    kind = value.get("kind")
    if isinstance(kind, str) and kind and dns_label_1035(kind.lower()):
        text = "may have mixed case, but should otherwise match: " + ",".join(dns_label_1035(kind.lower()))
        found.append(invalid(f"{where}.kind", kind, text))
    if "metadata" in value:
        try:
            TYPES.decode("meta/v1.ObjectMeta", value["metadata"])
        except DecodeError as error:
            found.append(invalid(f"{where}.metadata", value["metadata"], str(error)))
    return found
