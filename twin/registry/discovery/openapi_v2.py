"""``/openapi/v2``: the schemas of the served kinds, as JSON and in the protobuf form that kubectl asks for.

Field numbers: ``openapiv2/OpenAPIv2.proto`` of google/gnostic-models. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twin.registry.discovery.type_schemas import (
    declared_name,
    declared_schema,
    go_type_of,
    schema_name,
    schemas,
)
from twin.registry.registry import TwinRegistry
from twin.registry.status import Json

PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
PREFIX = "#/definitions/"
_VERSION = {"title": "Kubernetes", "version": "v1.36.2"}
_GVK = "x-kubernetes-group-version-kind"

_SWAGGER, _INFO, _DEFINITIONS = 1, 2, 9
_REF, _FORMAT, _DESCRIPTION, _REQUIRED = 1, 2, 4, 19
_ADDITIONAL, _TYPE, _ITEMS, _PROPERTIES, _EXTENSION = 21, 22, 23, 25, 31
_SHARED = ("$ref", "type", "format", "description", "required", "x-kubernetes-preserve-unknown-fields")
_YAML = 2
"""Of ``Any``: extensions come as YAML, and JSON is YAML."""


def definitions(registry: TwinRegistry) -> dict[str, Json]:
    """Every type by its name in references; kinds say which they are."""
    kinds: dict[str, list[Json]] = {}
    declared: dict[str, Json] = {}
    for group, version in registry.group_versions():
        for kind in registry.kinds_of(group, version):
            go_type, schema = go_type_of(kind), declared_schema(kind, PREFIX)
            named = {"group": group, "kind": kind.info.kind, "version": version}
            if go_type:
                kinds.setdefault(go_type, []).append(named)
            elif schema is not None:
                declared[declared_name(kind)] = {**_plain(schema), _GVK: [named]}
    found = schemas(PREFIX)
    return declared | {
        schema_name(name): {**schema, _GVK: kinds[name]} if name in kinds else schema for name, schema in found.items()
    }


def _plain(schema: Json) -> Json:
    """A declared schema by the words that both versions of OpenAPI share and clients use; the server validates."""
    shown: Json = {key: schema[key] for key in _SHARED if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        shown = {**shown, "type": "string", "format": "int-or-string"}
    if "properties" in schema:
        shown["properties"] = {name: _plain(one) for name, one in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            shown[key] = _plain(schema[key])
    return shown


def document(registry: TwinRegistry) -> Json:
    """The JSON form."""
    return {"swagger": "2.0", "info": _VERSION, "paths": {}, "definitions": definitions(registry)}


def protobuf(registry: TwinRegistry) -> bytes:
    """The protobuf form (``openapi.v2.Document``)."""
    info = _message(1, _VERSION["title"].encode()) + _message(2, _VERSION["version"].encode())
    named = _named(definitions(registry))
    return _message(_SWAGGER, b"2.0") + _message(_INFO, info) + _message(_DEFINITIONS, named)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(body)) + body


def _named(found: Mapping[str, Json]) -> bytes:
    """Name and schema of each (``NamedSchema``)."""
    pairs = (_message(1, name.encode()) + _message(2, _encoded(schema)) for name, schema in found.items())
    return b"".join(_message(1, pair) for pair in pairs)


def _encoded(schema: Json) -> bytes:
    parts: list[bytes] = []
    for key, value in schema.items():
        match key:
            case "$ref":
                parts.append(_message(_REF, value.encode()))
            case "description":
                parts.append(_message(_DESCRIPTION, value.encode()))
            case "required":
                parts.extend(_message(_REQUIRED, name.encode()) for name in value)
            case "format":
                parts.append(_message(_FORMAT, value.encode()))
            case "type":
                parts.append(_message(_TYPE, _message(1, value.encode())))
            case "items":
                parts.append(_message(_ITEMS, _message(1, _encoded(value))))
            case "additionalProperties":
                parts.append(_message(_ADDITIONAL, _message(1, _encoded(value))))
            case "properties":
                parts.append(_message(_PROPERTIES, _named(value)))
            case _:
                parts.append(_message(_EXTENSION, _extension(key, value)))
    return b"".join(parts)


def _extension(key: str, value: Any) -> bytes:
    """``NamedAny``."""
    return _message(1, key.encode()) + _message(2, _message(_YAML, json.dumps(value).encode()))
