"""OpenAPI schemas of the served kinds: of built-in ones by the table of Go types, of others as they are declared.

kubectl checks a ``List`` against them, merges by them, and explains fields. Pure; those of Go types are built once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from twin.kinds.rules.codec import TYPES
from twin.registry.served import ServedKind
from twin.registry.status import Json

_SCALARS: dict[str, Json] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float64": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "quantity": {"type": "string"},
    "intstr": {"type": "string", "format": "int-or-string"},
    "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
OBJECT_META = "meta/v1.ObjectMeta"
_PACKAGES = {
    "meta": "io.k8s.apimachinery.pkg.apis.meta",
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
}


def schema_name(go_type: str) -> str:
    """``core/v1.Pod`` as ``io.k8s.api.core.v1.Pod``."""
    package, _, rest = go_type.partition("/")
    return f"{_PACKAGES.get(package, f'io.k8s.api.{package}')}.{rest}"


def go_type_of(kind: ServedKind) -> str:
    """The row of the type table that tells a kind's fields; empty where none does."""
    info = kind.info
    named = f"{info.group.partition('.')[0] or 'core'}/{info.version}.{info.kind}"
    return kind.strategy.go_type or (named if named in TYPES.table and not kind.custom else "")


def declared_name(kind: ServedKind) -> str:
    """``conclave.io/v1`` and ``Queue`` as ``io.conclave.v1.Queue``. Source: apiserver ``ToRESTFriendlyName``."""
    group = ".".join(reversed(kind.info.group.split(".")))
    return f"{group}.{kind.info.version}.{kind.info.kind}"


def declared_schema(kind: ServedKind, prefix: str) -> Json | None:
    """The schema of a kind that declares its own. Source: apiextensions ``controller/openapi/builder``."""
    schema = kind.strategy.schema
    if schema is None:
        return None
    head: Json = {
        "apiVersion": {"type": "string", "description": "The version and group of the object's kind."},
        "kind": {"type": "string", "description": "The object's kind."},
        "metadata": {"$ref": f"{prefix}{schema_name(OBJECT_META)}", "description": "Standard object's metadata."},
    }
    return {"type": "object", **schema, "properties": {**(schema.get("properties") or {}), **head}}


@lru_cache(maxsize=2)
def schemas(prefix: str) -> dict[str, Json]:
    """Every type by its Go name; ``prefix`` is where references lead (``#/definitions/``)."""
    return {name: _struct(fields, prefix) for name, fields in TYPES.table.items()}


def reachable(go_types: list[str]) -> list[str]:
    """These types and all that they lead to."""
    found: dict[str, None] = {}
    todo = list(go_types)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found[name] = None
        for declared in TYPES.table[name].values():
            inner = _bare(declared.partition(" ")[0])
            if inner in TYPES.table:
                todo.append(inner)
    return sorted(found)


def _bare(kind: str) -> str:
    while kind.startswith(("*", "[]", "{}")):
        kind = kind.lstrip("*").removeprefix("[]").removeprefix("{}")
    return kind


def _struct(fields: dict[str, str], prefix: str) -> Json:
    properties: dict[str, Any] = {}
    for name, declared in fields.items():
        kind, _, marks = declared.partition(" ")
        schema = _schema(kind, prefix)
        if "@" in marks:
            _, key, strategy = marks.split("@")
            schema = {**schema, "x-kubernetes-patch-strategy": strategy}
            if key:
                schema["x-kubernetes-patch-merge-key"] = key
        properties[name] = schema
    return {"type": "object", "properties": properties} if properties else {"type": "object"}


def _schema(kind: str, prefix: str) -> Json:
    kind = kind.lstrip("*")
    if kind.startswith("[]"):
        return {"type": "array", "items": _schema(kind[2:], prefix)}
    if kind.startswith("{}"):
        return {"type": "object", "additionalProperties": _schema(kind[2:], prefix)}
    return _SCALARS[kind] if kind in _SCALARS else {"$ref": f"{prefix}{schema_name(kind)}"}
