"""What a URL path asks for. Source: apiserver ``endpoints/request/requestinfo.go``. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """A path under ``/api/v1`` or ``/apis/GROUP/VERSION``; ``plural`` empty = the discovery document there."""

    group: str
    version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    extra: bool = False
    """More segments than a resource has."""
    in_namespace: bool = False
    """The path says ``namespaces/NS/``."""
    watch: bool = False
    """The old ``/watch/`` prefix."""


def parse_path(path: str) -> ResourcePath | None:
    """None for everything that is no API path (``/healthz``, ``/api``, ``/apis``, ``/apis/GROUP``)."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 2 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 3 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    watch = bool(rest) and rest[0] == "watch"
    if watch:
        rest = rest[1:]
    if len(rest) >= 3 and rest[0] == "namespaces" and not (group == "" and rest[2] in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
        in_namespace = True
    else:
        namespace, in_namespace = "", False
    plural, name, subresource = (*rest[:3], "", "", "")[:3]
    return ResourcePath(
        group=group,
        version=version,
        plural=plural,
        namespace=namespace,
        name=name,
        subresource=subresource,
        extra=len(rest) > 3,
        in_namespace=in_namespace,
        watch=watch,
    )
