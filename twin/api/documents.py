"""What is served beside resources: the list of paths, discovery, version, health, OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from twin.api import answers
from twin.api.answers import ResponseMaker
from twin.api.requests.negotiation import wants_aggregated_discovery
from twin.registry.discovery import discovery, openapi, openapi_v2
from twin.registry.registry import TwinRegistry
from twin.registry.status import Json, method_not_allowed, path_not_found

VERSION: Json = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "conclave-twin",
    "gitTreeState": "clean",
    "buildDate": "2026-11-20T00:00:00Z",
    "goVersion": "none",
    "compiler": "cpython",
    "platform": "linux/amd64",
}
"""The API version that is answered for; the rest says that this is the twin."""

NEWER: Json = {
    **VERSION, "minor": "37", "emulationMinor": "37", "minCompatibilityMinor": "36", "gitVersion": "v1.37.0"
}  # fmt: skip

_HEALTH = ("healthz", "livez", "readyz")
_CHECKS = ("ping", "log", "etcd", "informer-sync")


def health(path: str, query: Mapping[str, str]) -> web.Response:
    """``/healthz``, ``/livez``, ``/readyz`` and their single checks."""
    parts = path.strip("/").split("/")
    if len(parts) > 1:
        return answers.text("ok") if parts[1] in _CHECKS and len(parts) == 2 else answers.page_not_found()
    if "verbose" not in query:
        return answers.text("ok")
    lines = [f"[+]{check} ok\n" for check in _CHECKS]
    return answers.text("".join(lines) + f"{parts[0]} check passed\n")


def check_method(path: str, method: str) -> None:
    """``/version`` and ``/api`` are routes with GET alone. Refused: 404 below ``/version``, 405.

    Health, metrics, OpenAPI and the lists of groups do not look at the method.
    """
    first, _, rest = path.strip("/").partition("/")
    if first == "version" and rest:
        raise path_not_found()
    if first in ("version", "api") and method != "GET":
        raise method_not_allowed()


def check_version_method(registry: TwinRegistry, group: str, method: str) -> None:
    """A list of resources is a route with GET alone where the group is the server's own. Refused: 405."""
    if method != "GET" and is_builtin(registry, group):
        raise method_not_allowed()


def serve_document(
    registry: TwinRegistry, path: str, query: Mapping[str, str], headers: Mapping[str, str], out: ResponseMaker
) -> web.Response:
    """Everything whose path names no resource; text 404 for what is not there."""
    parts = path.strip("/").split("/")
    first = parts[0]
    if first in _HEALTH:
        return health(path, query)
    if path.rstrip("/") == "":
        return out.json({"paths": paths(registry)})
    if first == "version" and len(parts) == 1:
        return out.json(VERSION if registry.kubernetes == "1.36" else NEWER)
    if first == "metrics" and len(parts) == 1:
        return answers.text(f"# TYPE apiserver_storage_objects gauge\nrevision {registry.store.revision}\n")
    if first == "openapi":
        return _openapi(registry, path, headers.get("Accept", ""), out)
    aggregated = wants_aggregated_discovery(headers.get("Accept", "")) if len(parts) == 1 else ""
    if first in ("api", "apis") and len(parts) == 1:
        if aggregated:
            kind = f"application/json;g=apidiscovery.k8s.io;v={aggregated};as=APIGroupDiscoveryList"
            body = discovery.aggregated(registry, core=first == "api", version=aggregated)
            return out.raw(answers.encode(body), content_type=kind)
        return out.json(discovery.api_versions() if first == "api" else discovery.api_group_list(registry))
    if first == "apis" and len(parts) == 2:
        group = discovery.api_group(registry, parts[1])
        return answers.page_not_found() if group is None else out.json(group)
    return answers.page_not_found()


def _openapi(registry: TwinRegistry, path: str, accept: str, out: ResponseMaker) -> web.Response:
    if path.rstrip("/") == "/openapi/v2":
        if "proto-openapi" in accept:
            kind = {"Content-Type": openapi_v2.PROTOBUF}
            return web.Response(body=openapi_v2.protobuf(registry), headers=kind)
        return out.json(openapi_v2.document(registry))
    _, _, rest = path.partition("/openapi/v3")
    if not path.startswith("/openapi/v3"):
        return answers.page_not_found()
    document = openapi.document(registry, rest) if rest.strip("/") else openapi.index(registry)
    return answers.page_not_found() if document is None else out.json(document)


def serve_resource_list(registry: TwinRegistry, group: str, version: str, out: ResponseMaker) -> web.Response:
    """``/api/v1`` and ``/apis/GROUP/VERSION``."""
    document = discovery.resource_list(registry, group, version)
    if document is None:
        return unknown_version(registry, group, version)
    return out.json(document)


def unknown_version(registry: TwinRegistry, group: str, version: str) -> web.Response:
    """A version that is not served: a Status under a built-in group, Go's text page elsewhere. Refused: 404."""
    del version
    if is_builtin(registry, group):
        raise path_not_found()
    return answers.page_not_found()


_FIXED = ("/healthz", "/healthz/ping", "/livez", "/livez/ping", "/metrics", "/openapi/v2", "/openapi/v3")


def paths(registry: TwinRegistry) -> list[str]:
    """Everything a prober may follow."""
    found = {"/api", "/api/v1", "/apis", "/apis/", "/readyz", "/readyz/ping", "/version", *_FIXED}
    for group, version in registry.group_versions():
        if group:
            found.add(f"/apis/{group}")
            found.add(f"/apis/{group}/{version}")
    return sorted(found)


def is_builtin(registry: TwinRegistry, group: str) -> bool:
    """Whether a group is the server's own (a custom group is served by another handler of the real server)."""
    if not group:
        return True
    kinds = [kind for version in discovery.versions_of(registry, group) for kind in registry.kinds_of(group, version)]
    return any(not kind.custom for kind in kinds)
