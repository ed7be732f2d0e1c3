"""As much OpenAPI v3 as kubectl needs: which kinds take ``fieldValidation``.

kubectl asks this before it leaves validation to the server; the schemas themselves are not published, so ``kubectl
explain`` finds nothing. Pure.
"""

from __future__ import annotations

import hashlib

from services.twin.registry.registry import TwinRegistry
from services.twin.registry.served import ServedKind
from services.twin.registry.status import Json

_QUERY = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")
_PARAMETERS = [{"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in _QUERY]


def _base(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def index(registry: TwinRegistry) -> Json:
    """``/openapi/v3``."""
    paths: Json = {}
    for group, version in registry.group_versions():
        base = _base(group, version)
        kinds = ",".join(kind.info.kind for kind in registry.kinds_of(group, version))
        digest = hashlib.sha256(kinds.encode()).hexdigest()[:32].upper()
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
        "paths": {_object_path(kind): _operations(kind) for kind in kinds if "patch" in kind.info.verbs},
        "components": {"schemas": {}},
    }


def _object_path(kind: ServedKind) -> str:
    info = kind.info
    scope = "namespaces/{namespace}/" if info.namespaced else ""
    return f"/{_base(info.group, info.version)}/{scope}{info.plural}/{{name}}"


def _operations(kind: ServedKind) -> Json:
    info = kind.info
    named = {"group": info.group, "version": info.version, "kind": info.kind}
    operation: Json = {
        "operationId": f"patch{info.kind}",
        "parameters": _PARAMETERS,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": named,
    }
    return {"patch": operation}
