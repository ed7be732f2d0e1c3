"""Structural schemas: what of them means something, pruning, defaulting and validation of custom resources.

Sources: apiextensions ``pkg/apiserver/schema/{pruning,defaulting}``, kube-openapi ``pkg/validation``; the messages and
the order of causes are those of the recordings. Pure; it works on dictionaries the request owns.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from twin.custom.formats import FORMATS
from twin.custom.patterns import matches
from twin.registry.status import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)

Json = dict[str, Any]

_BLOCKING = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
)
UNCHECKED = FieldError(
    "FieldValueInvalid",
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)
_TOP_LEVEL = frozenset(("metadata", "apiVersion", "kind"))


def blocks_rules(errors: list[FieldError]) -> bool:
    """Whether CEL rules are left unevaluated because of these errors."""
    return any(error.reason in _BLOCKING for error in errors)


def prune(value: Any, schema: Json, path: str = "", *, top: bool = False) -> list[str]:
    """Drop unknown fields in place; their paths."""
    dropped: list[str] = []
    if isinstance(value, dict):
        if schema.get("x-kubernetes-embedded-resource"):
            top = True
        properties = schema.get("properties") or {}
        additional = schema.get("additionalProperties")
        keep = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or additional is True
        for key in list(value):
            if top and key in _TOP_LEVEL:
                continue
            where = f"{path}.{key}" if path else key
            child = properties.get(key)
            if child is None and isinstance(additional, dict):
                child = additional
            if child is not None:
                dropped.extend(prune(value[key], child, where))
            elif not keep:
                del value[key]
                dropped.append(where)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            dropped.extend(prune(item, schema["items"], f"{path}[{index}]"))
    return dropped


def default(value: Any, schema: Json) -> None:
    """Fill in defaults in place; a null that may not be one is taken as absent."""
    if isinstance(value, dict):
        additional = schema.get("additionalProperties")
        properties: Json = schema.get("properties") or {}
        for key, child in properties.items():
            if key in value and value[key] is None and not child.get("nullable"):
                del value[key]
            if key not in value and "default" in child:
                value[key] = copy.deepcopy(child["default"])
            if key in value:
                default(value[key], child)
        if isinstance(additional, dict):
            for key in value:
                if key not in properties:
                    default(value[key], additional)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            default(item, schema["items"])


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "float64" if not value.is_integer() else "integer"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _fits(value: Any, wanted: str) -> bool:
    name = _type_name(value)
    if wanted == "number":
        return name in ("integer", "float64")
    return name == wanted


def validate(value: Any, schema: Json, path: str = "") -> list[FieldError]:
    """Errors of a value against its schema, fields in alphabetical order."""
    if value is None and schema.get("nullable"):
        return []
    if schema.get("x-kubernetes-int-or-string"):
        return _int_or_string(value, schema, path)
    wanted = schema.get("type")
    if wanted and not _fits(value, wanted):
        return _wrong_type(value, wanted, schema, path)
    if isinstance(value, dict):
        found = _object(value, schema, path)
    elif isinstance(value, list):
        found = _array(value, schema, path)
    else:
        found = _scalar(value, schema, path)
    return [*_junctors(value, schema, path), *found]


def _junctors(value: Any, schema: Json, path: str) -> list[FieldError]:
    """allOf, anyOf, oneOf and not. Of alternatives that all fail, the first one's errors are told."""
    errors: list[FieldError] = []

    def told(text: str) -> FieldError:
        return invalid("<nil>", "", f'"{path}" must {text}')

    alternatives = [validate(value, one, path) for one in schema.get("anyOf") or ()]
    if alternatives and all(alternatives):
        errors += [told("validate at least one schema (anyOf)"), *alternatives[0]]
    alternatives = [validate(value, one, path) for one in schema.get("oneOf") or ()]
    good = sum(not one for one in alternatives)
    if alternatives and good != 1:
        count = f"Found {good} valid alternatives" if good else "Found none valid"
        errors.append(told(f"validate one and only one schema (oneOf). {count}"))
        errors += [] if good else alternatives[0]
    alternatives = [validate(value, one, path) for one in schema.get("allOf") or ()]
    if any(alternatives):
        none = "" if not all(alternatives) else ". None validated"
        errors += [*(error for one in alternatives for error in one), told(f"validate all the schemas (allOf){none}")]
    if "not" in schema and not validate(value, schema["not"], path):
        errors.append(told("not validate the schema (not)"))
    return errors


def _wrong_type(value: Any, wanted: str, schema: Json, path: str) -> list[FieldError]:
    name, form = _type_name(value), schema.get("format")
    if name != "float64" or wanted != "integer":
        return [type_invalid(path, name, f'{path} in body must be of type {wanted}: "{name}"')]
    # a number that is not whole fails twice: by its type, and by what it is to be read as
    name, shown, how = ("float64", form, f"with format {form}") if form else ("number", wanted, "(default format)")
    return [
        type_invalid(path, name, f'{path} in body must be of type {shown}: "{name}"'),
        invalid("<nil>", "", f"Checked value must be of type {wanted} {how} in {path}"),
    ]


def _int_or_string(value: Any, schema: Json, path: str) -> list[FieldError]:
    name = _type_name(value)
    if name in ("integer", "string"):
        return [*_junctors(value, schema, path), *_scalar(value, schema, path)]
    return [
        type_invalid(path, name, f'{path} in body must be of type integer,string: "{name}"'),
        invalid("<nil>", "", f'"{path}" must validate at least one schema (anyOf)'),
        type_invalid(path, name, f'{path} in body must be of type integer: "{name}"'),
    ]


def _object(value: Json, schema: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    properties: Json = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    missing = [key for key in schema.get("required") or () if key not in value]
    for key in sorted({*value, *missing}):
        where = f"{path}.{key}" if path else key
        if key in missing:
            errors.append(required(where))
        elif key in properties:
            if path or key not in _TOP_LEVEL:
                errors.extend(validate(value[key], properties[key], where))
        elif isinstance(additional, dict):
            errors.extend(validate(value[key], additional, where))
    limit = schema.get("maxProperties")
    if limit is not None and len(value) > limit:
        errors.append(too_many(path, len(value), limit))
    least = schema.get("minProperties")
    if least is not None and len(value) < least:
        errors.append(invalid(path, value, f"{path} in body should have at least {least} properties"))
    return errors


def _array(value: list[Any], schema: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    limit, least = schema.get("maxItems"), schema.get("minItems")
    if limit is not None and len(value) > limit:
        errors.append(too_many(path, len(value), limit))
    if least is not None and len(value) < least:
        errors.append(invalid(path, value, f"{path} in body should have at least {least} items"))
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            errors.extend(validate(item, items, f"{path}[{index}]"))
    keys = schema.get("x-kubernetes-list-map-keys")
    if schema.get("x-kubernetes-list-type") == "map" and keys:
        errors.extend(_map_duplicates(value, keys, path))
    if schema.get("x-kubernetes-list-type") == "set":
        errors.extend(duplicate(f"{path}[{at}]", item) for at, item in _repeated(value))
    return errors


def _map_duplicates(value: list[Any], keys: list[str], path: str) -> list[FieldError]:
    identities = [{key: item.get(key) for key in keys} if isinstance(item, dict) else None for item in value]
    return [duplicate(f"{path}[{at}]", one) for at, one in _repeated(identities) if one is not None]


def _repeated(values: list[Any]) -> Iterator[tuple[int, Any]]:
    """Those that were there before, with their places; as JSON, where 1 is neither true nor 1.0."""
    seen: set[str] = set()
    for at, one in enumerate(values):
        text = json.dumps(one, sort_keys=True)
        if text in seen:
            yield at, one
        seen.add(text)


def _scalar(value: Any, schema: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        errors.append(not_supported(path, value, [str(one) for one in allowed]))
    if isinstance(value, str):
        errors.extend(_string(value, schema, path))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        errors.extend(_number(value, schema, path))
    return errors


def _string(value: str, schema: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    limit, least, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if limit is not None and len(value) > limit:
        errors.append(too_long(path, limit))
    if least is not None and len(value) < least:
        errors.append(invalid(path, value, f"{path} in body should be at least {least} chars long"))
    if pattern is not None and not matches(pattern, value):
        errors.append(invalid(path, value, f"{path} in body should match '{pattern}'"))
    form = schema.get("format")
    if form in FORMATS and not FORMATS[form](value):
        errors.append(type_invalid(path, value, f'{path} in body must be of type {form}: "{value}"'))
    return errors


def _number(value: int | float, schema: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    form = schema.get("format")
    bits = {"int32": 31, "int64": 63}.get(form or "")
    if bits and not -(2**bits) <= value < 2**bits:
        text = f"Checked value must be of type {schema.get('type')} with format {form} in {path}"
        errors.append(invalid("<nil>", "", text))
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and (value < least or (schema.get("exclusiveMinimum") and value == least)):
        word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        errors.append(invalid(path, value, f"{path} in body should be {word} {least}"))
    if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
        word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        errors.append(invalid(path, value, f"{path} in body should be {word} {most}"))
    factor = schema.get("multipleOf")
    if factor and not _is_multiple(value, factor):
        errors.append(invalid(path, value, f"{path} in body should be a multiple of {factor}"))
    return errors


def _is_multiple(value: int | float, factor: int | float) -> bool:
    """As floats divide, 0.3 is a multiple of 0.1 (kube-openapi ``MultipleOf``, swag ``IsFloat64AJSONInteger``)."""
    if isinstance(value, int) and float(factor).is_integer():
        return value % int(factor) == 0
    times = 1 / factor * value if factor < 1 else value / factor
    nearest = round(times) if abs(times) < 2**53 else 0
    return times == nearest or abs(times - nearest) < 1e-9 * abs(nearest)
