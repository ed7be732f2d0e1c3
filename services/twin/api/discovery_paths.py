"""The list of paths at ``/``, and which groups are built in. Pure."""

from __future__ import annotations

from services.twin.registry.discovery import discovery
from services.twin.registry.registry import TwinRegistry

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
