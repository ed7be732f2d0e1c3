"""As much OpenAPI v3 as kubectl needs: which kinds take ``fieldValidation``, and the fields of every kind.

kubectl asks the first before it leaves validation to the server, and explains the second. Pure.
"""

from __future__ import annotations

import hashlib
import json

from twin.registry.discovery.type_schemas import (
    OBJECT_META,
    declared_name,
    declared_schema,
    go_type_of,
    reachable,
    schema_name,
    schemas,
)
from twin.registry.registry import TwinRegistry
from twin.registry.served import ServedKind
from twin.registry.status import Json

_QUERY = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")
_PARAMETERS = [{"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in _QUERY]
_GVK = "x-kubernetes-group-version-kind"
_FORM = 4
"""Clients keep documents by their digest; raised when what is published of a kind changes."""
_PREFIX = "#/components/schemas/"


def _base(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def index(registry: TwinRegistry) -> Json:
    """``/openapi/v3``."""
    paths: Json = {}
    for group, version in registry.group_versions():
        base = _base(group, version)
        kinds = [(kind.info.kind, kind.strategy.schema) for kind in registry.kinds_of(group, version)]
        digest = hashlib.sha256(json.dumps([_FORM, kinds]).encode()).hexdigest()[:32].upper()
        paths[base] = {"serverRelativeURL": f"/openapi/v3/{base}?hash={digest}"}
    return {"paths": paths}


def document(registry: TwinRegistry, path: str) -> Json | None:
    """``/openapi/v3/api/v1`` and its like; ``path`` without the prefix. None where it is not served."""
    parts = path.strip("/").split("/")
    if len(parts) == 2 and parts[0] == "api":
        group, version = "", parts[1]
    elif len(parts) == 3 and parts[0] == "apis":
        group, version = parts[1], parts[2]
    else:
        return None
    kinds = registry.kinds_of(group, version)
    if not kinds:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.2"},
        "paths": {_path(kind): _operation(kind) for kind in kinds},
        "components": {"schemas": _schemas(kinds)},
    }


def _schemas(kinds: list[ServedKind]) -> Json:
    """The types of these kinds and all that they lead to."""
    named: dict[str, list[Json]] = {}
    declared: dict[str, Json] = {}
    for kind in kinds:
        go_type, schema = go_type_of(kind), declared_schema(kind, _PREFIX)
        if go_type:
            named.setdefault(go_type, []).append(_named(kind))
        elif schema is not None:
            declared[declared_name(kind)] = {**schema, _GVK: [_named(kind)]}
    every = schemas(_PREFIX)
    return declared | {
        schema_name(name): {**every[name], _GVK: named[name]} if name in named else every[name]
        for name in reachable([*named, *((OBJECT_META,) if declared else ())])
    }


def _verb(kind: ServedKind) -> str:
    """The one of its verbs that clients look at."""
    return next(verb for verb in ("patch", "create", "get") if verb in kind.info.verbs)


def _path(kind: ServedKind) -> str:
    info = kind.info
    scope = "namespaces/{namespace}/" if info.namespaced else ""
    collection = f"/{_base(info.group, info.version)}/{scope}{info.plural}"
    return collection if _verb(kind) == "create" else f"{collection}/{{name}}"


def _operation(kind: ServedKind) -> Json:
    verb = _verb(kind)
    operation: Json = {
        "operationId": f"{verb}{kind.info.kind}",
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": verb,
        _GVK: _named(kind),
    }
    if verb != "get":
        operation["parameters"] = _PARAMETERS
    return {"post" if verb == "create" else verb: operation}


def _named(kind: ServedKind) -> Json:
    return {"group": kind.info.group, "version": kind.info.version, "kind": kind.info.kind}
