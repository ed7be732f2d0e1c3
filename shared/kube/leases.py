"""Leases of coordination.k8s.io/v1: what is read of one, and how one is written. Pure."""

from __future__ import annotations

from typing import Any

from msgspec import field

from shared.kube.objects import Json, ObjectMeta
from shared.kube.resources import Resource

LEADER_ANNOTATION = "conclave.io/leader"
"""On our Lease: which process of the mesh renews it."""


class LeaseSpec(Json, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class Lease(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: LeaseSpec = field(default_factory=LeaseSpec)


LEASES = Resource("Lease", "coordination.k8s.io", "v1", "leases", True, Lease)


def lease_body(
    *, name: str, namespace: str, holder: str, leader: str, duration_s: int, transitions: int, now: str, taken: bool,
    version: str = "",
) -> dict[str, Any]:  # fmt: skip
    """The Lease as it is created (``version`` ""), or a merge patch of that version. ``taken``: the holder changes.
    ``now``: RFC 3339 with microseconds."""
    spec: dict[str, Any] = {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration_s,
        "renewTime": now,
        "leaseTransitions": transitions,
    }
    if taken:
        spec["acquireTime"] = now
    metadata: dict[str, Any] = {"annotations": {LEADER_ANNOTATION: leader}}
    if version:
        return {"metadata": metadata | {"resourceVersion": version}, "spec": spec}
    metadata |= {"name": name, "namespace": namespace}
    return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
