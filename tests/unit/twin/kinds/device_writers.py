"""Who may write which part of a claim's status: cases for the twin and for a real kube-apiserver."""

from __future__ import annotations

from typing import Any

from tests.unit.twin.kinds.device_cases import TOLD

Json = dict[str, Any]

WRITER = "system:kube-controller-manager"
"""A user with nothing but what a case gives him."""
_BOTH = ("allocation", "devices")
PERMISSIONS: dict[str, tuple[list[Json], tuple[str, ...]]] = {
    # what he may do beside resourceclaims/status, and which parts of the status he is refused
    "nothing more": ([], _BOTH),
    "binding": ([{"resources": ["resourceclaims/binding"], "verbs": ["update"]}], ("devices",)),
    "binding by patch": ([{"resources": ["resourceclaims/binding"], "verbs": ["patch"]}], _BOTH),
    "driver": ([{"resources": ["resourceclaims/driver"], "verbs": ["arbitrary-node:update"]}], ("allocation",)),
    "driver of a node": ([{"resources": ["resourceclaims/driver"], "verbs": ["associated-node:update"]}], _BOTH),
    "other driver": (
        [
            {
                "resources": ["resourceclaims/driver"],
                "verbs": ["arbitrary-node:update"],
                "resourceNames": ["x.example.com"],
            }
        ],
        _BOTH,
    ),
    "this driver": (
        [
            {
                "resources": ["resourceclaims/driver"],
                "verbs": ["arbitrary-node:update"],
                "resourceNames": [TOLD["driver"]],
            }
        ],
        ("allocation",),
    ),
    "all": (
        [
            {
                "resources": ["resourceclaims/binding", "resourceclaims/driver"],
                "verbs": ["update", "arbitrary-node:update"],
            }
        ],
        (),
    ),
}
REFUSED = {
    "allocation": (
        "status.allocation",
        'Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding",'
        ' verb="update" permission: resourceclaims.resource.k8s.io is forbidden: User "' + WRITER + '" cannot update'
        ' resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope',
    ),
    "devices": (
        "status.devices",
        'Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]"'
        ' permission: resourceclaims.resource.k8s.io "gpu.example.com" is forbidden: User "' + WRITER + '" cannot'
        ' arbitrary-node:update resource "resourceclaims/driver" in API group "resource.k8s.io" in the namespace'
        ' "NAMESPACE"',
    ),
}
"""What he is told."""


def roles(rules: list[Json]) -> tuple[Json, Json]:
    """A ClusterRole, and its binding to the writer."""
    own = [
        {"resources": ["resourceclaims"], "verbs": ["get"]},
        {"resources": ["resourceclaims/status"], "verbs": ["update"]},
    ]
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": WRITER}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"}
    return (
        {"metadata": {"name": "writer"}, "rules": [{"apiGroups": ["resource.k8s.io"], **one} for one in own + rules]},
        {"metadata": {"name": "writer"}, "subjects": [subject], "roleRef": ref},
    )


def causes_of(body: Json, namespace: str) -> list[tuple[str, str]]:
    """Field and message of each cause."""
    causes = (body.get("details") or {}).get("causes") or []
    return [(one["field"], one["message"].replace(f'"{namespace}"', '"NAMESPACE"')) for one in causes]
