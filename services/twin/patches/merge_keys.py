"""Which lists a strategic merge patch merges, and by which key.

Kubernetes' Go types carry this as struct tags (``patchStrategy``, ``patchMergeKey``); a list that is not named here is
replaced whole (taints and tolerations are such lists). The tags repeat along paths, so the table is keyed by the list's
name and, where names mean different things, by the name of what holds it. Source: ``k8s.io/api`` types.
"""

from __future__ import annotations

PRIMITIVE = ""
"""Merge key of a list of scalars that is merged as a set."""

MERGE_KEYS: dict[str, str] = {
    # ObjectMeta
    "ownerReferences": "uid",
    "finalizers": PRIMITIVE,
    # PodSpec
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    # Container
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    # status
    "conditions": "type",
    "hostIPs": "ip",
    "podIPs": "ip",
    "resourceClaimStatuses": "name",
    "addresses": "type",
    # ServiceAccount
    "secrets": "name",
    # scheduling, storage
    "devices": "name",
    "drivers": "name",
}

BY_HOLDER: dict[tuple[str, str], str | None] = {
    # ports of a container and of a service differ
    ("containers", "ports"): "containerPort",
    ("initContainers", "ports"): "containerPort",
    ("ephemeralContainers", "ports"): "containerPort",
    ("spec", "ports"): "port",
    # node.spec.podCIDRs and pod.spec's cousins are sets
    ("spec", "podCIDRs"): PRIMITIVE,
    # EndpointSlice and Endpoints have no patch tags
    ("subsets", "addresses"): None,
    ("endpoints", "addresses"): None,
    ("endpoints", "conditions"): None,
    # allocation results of a ResourceClaim are atomic
    ("devices", "devices"): None,
}
"""(holder, list) -> merge key, None = replaced whole."""

RETAIN_KEYS = frozenset(("strategy", "updateStrategy", "volumes", "deviceClaim"))
"""Where ``patchStrategy: retainKeys`` allows ``$retainKeys`` (unions: a changed member drops the others)."""


def merge_key(holder: str, name: str) -> str | None:
    """The merge key of list ``name`` inside ``holder``; PRIMITIVE for a set of scalars; None = replace."""
    specific = BY_HOLDER.get((holder, name), "?")
    return MERGE_KEYS.get(name) if specific == "?" else specific
