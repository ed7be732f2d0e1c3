"""What a pod's status may tell of its claims: those made from templates, and the one made for its extended resources.

Source: ``pkg/apis/core/validation`` (validatePodResourceClaimStatuses, validatePodExtendedResourceClaimStatus).
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.names import check, check_given, dns_label, dns_subdomain
from twin.registry.status import FieldError, duplicate, invalid, required

Json = dict[str, Any]

_NO_ENTRY = "must match the name of an entry in `spec.resourceClaims`"
_NO_CONTAINER = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
_NO_REQUEST = (
    "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
    "spec.containers.resources.requests"
)
_KEYS = ("containerName", "resourceName", "requestName")


def check_claim_statuses(status: Json, spec: Json) -> list[FieldError]:
    """Both fields."""
    found: list[FieldError] = []
    names = {one["name"] for one in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for index, one in enumerate(status.get("resourceClaimStatuses") or ()):
        where, name = f"status.resourceClaimStatuses[{index}]", one["name"]
        if name not in names:
            found.append(invalid(f"{where}.name", name, _NO_ENTRY))
        if name in seen:
            found.append(duplicate(f"{where}.name", name))
        seen.add(name)
        if one.get("resourceClaimName") is not None:
            found += check(f"{where}.resourceClaimName", one["resourceClaimName"], dns_subdomain)
    extended = status.get("extendedResourceClaimStatus")
    return found if extended is None else found + _check_extended(extended, spec, "status.extendedResourceClaimStatus")


def _check_extended(extended: Json, spec: Json, field: str) -> list[FieldError]:
    containers = {one["name"]: one for part in ("initContainers", "containers") for one in spec.get(part) or ()}
    mappings = extended.get("requestMappings") or []
    found = [] if mappings else [required(f"{field}.requestMappings", "at least one request mapping is required")]
    seen: set[tuple[str, ...]] = set()
    for index, one in enumerate(mappings):
        where, container = f"{field}.requestMappings[{index}]", containers.get(one["containerName"])
        if container is None:
            found.append(invalid(f"{where}.containerName", one["containerName"], _NO_CONTAINER))
        elif one["resourceName"] not in ((container.get("resources") or {}).get("requests") or {}):
            found.append(invalid(f"{where}.resourceName", one["resourceName"], _NO_REQUEST))
        found += check(f"{field}.requestName", one["requestName"], dns_label)
        key = tuple(one[name] for name in _KEYS)
        if key in seen:
            found += [duplicate(f"{where}.{name}", one[name]) for name in _KEYS]
        seen.add(key)
    return found + check_given(f"{field}.resourceClaimName", extended["resourceClaimName"], dns_subdomain)
