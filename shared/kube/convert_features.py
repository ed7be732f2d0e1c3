"""Which features of its node a pod needs, which a node declares, and which fields of a pod nobody here can honour.

The rules are those of kube-scheduler 1.36 (plugin NodeDeclaredFeatures: ``component-helpers/nodedeclaredfeatures``).
"""

from __future__ import annotations

from collections.abc import Callable

from shared.kube import objects as api
from shared.model.features import DECIDING_FEATURES, HOST_USERS, RESTART_ALL


def needed_features(spec: api.PodSpec) -> tuple[str, ...]:
    """What a node must declare to run a pod of this spec, sorted."""
    needed = []
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    if any(rule.action == "RestartAllContainers" for c in containers for rule in c.restart_policy_rules or ()):
        needed.append(RESTART_ALL)
    if spec.host_network and spec.host_users is False:
        needed.append(HOST_USERS)
    return tuple(needed)


def declared_features(status: api.NodeStatus) -> tuple[str, ...]:
    """What the node declares of all that some pod may need, sorted."""
    return tuple(sorted(DECIDING_FEATURES.intersection(status.declared_features or ())))


IMPLICIT_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
"""A request by this prefix is a claim to a device of that class (KEP-5004), whatever nodes offer."""


def _claims_devices(spec: api.PodSpec) -> bool:
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    return any(
        name.startswith(IMPLICIT_DEVICE_CLASS)
        for container in containers
        if container.resources is not None
        for name in container.resources.requests or ()
    )


UNSUPPORTED: tuple[tuple[str, Callable[[api.PodSpec], bool]], ...] = (
    ("spec.resourceClaims (dynamic resource allocation)", lambda spec: bool(spec.resource_claims)),
    ("a request for deviceclass.resource.kubernetes.io (dynamic resource allocation)", _claims_devices),
    ("spec.schedulingGroup (pod groups)", lambda spec: spec.scheduling_group is not None),
)
"""What decides where a pod may run and is not honoured here: a pod that has it is left pending and told so. Take a line
away when its rule comes; docs/scheduling-fields.md lists every other field of the spec."""


def unsupported_fields(spec: api.PodSpec) -> str:
    """What of the spec we cannot honour, for people; "" where we can honour all of it."""
    return ", ".join(what for what, is_there in UNSUPPORTED if is_there(spec))
