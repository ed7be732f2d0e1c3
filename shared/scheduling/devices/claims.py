"""The claims that a pod names: whether they are there and its own, and whether they may be used on a node.

Source: kube-scheduler 1.36 ``plugins/dynamicresources`` (foreachPodResourceClaim, isClaimReadyForBinding,
isClaimTimeout), ``dynamic-resource-allocation/resourceclaim``.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.model.devices import Allocation, DeviceClaim, DevicePod

BINDING_TIMEOUT_S = 600.0
"""How long the binding conditions of a device are awaited (``bindingTimeout``)."""

MOST_CONSUMERS = 256
"""That one claim may be reserved for (``ResourceClaimReservedForMaxSize``). kube-scheduler does not look at it: the API
server refuses the write."""

Claims = Mapping[str, DeviceClaim]
"""By ``namespace/name``."""


def pod_claims(pod: DevicePod, claims: Claims) -> tuple[DeviceClaim, ...] | str:
    """The claims of a pod in its order, those left out that were not needed; or why the pod has to wait."""
    found = []
    title = f'pod "{pod.namespace}/{pod.name}"'
    for ref in pod.claims:
        if ref.sourceless:
            return f'{title}, spec.resourceClaim "{ref.name}": none of the supported fields are set'
        if ref.claim is None:
            return f"{title}: ResourceClaim not created yet"
        if not ref.claim:
            continue
        claim = claims.get(f"{pod.namespace}/{ref.claim}")
        if claim is None:
            return f'could not find ResourceClaim "{pod.namespace}/{ref.claim}"'
        if claim.deleting:
            return f'resourceclaim "{claim.name}" is being deleted'
        if ref.templated and claim.owner != pod.uid:
            return f"ResourceClaim {claim.key} was not created for Pod {pod.namespace}/{pod.name} (Pod is not owner)"
        found.append(claim)
    return tuple(found)


def usable(claim: DeviceClaim, now: float) -> bool:
    """Whether an allocated claim may be used: False once a device of it failed to bind, or took too long to."""
    allocation = claim.allocation
    assert allocation is not None
    state = _bound(claim, allocation)
    if state is None:
        return False
    late = allocation.at is not None and allocation.at + BINDING_TIMEOUT_S < now
    return state or not (late and any(result.bound_on for result in allocation.results))


def _bound(claim: DeviceClaim, allocation: Allocation) -> bool | None:
    """Whether all binding conditions hold; None: one says that they never will. The first device that is not ready
    ends the question, as in kube-scheduler: what devices after it say is not looked at."""
    for result in allocation.results:
        if not result.bound_on:
            continue
        conditions = claim.conditions.get(result.id)
        if conditions is None:
            return False
        if any(conditions.get(one) == "True" for one in result.failed_on):
            return None
        if any(conditions.get(one) != "True" for one in result.bound_on):
            return False
    return True


def unbound_devices(claim: DeviceClaim) -> list[tuple[str, str, str]]:
    """Devices of the claim whose binding conditions do not hold yet, or never will."""
    found = []
    for result in claim.allocation.results if claim.allocation is not None else ():
        conditions = claim.conditions.get(result.id, {})
        failed = any(conditions.get(one) == "True" for one in result.failed_on)
        if result.bound_on and (failed or any(conditions.get(one) != "True" for one in result.bound_on)):
            found.append(result.id)
    return found


def may_be_freed(claim: DeviceClaim, pod_uid: str) -> bool:
    """Whether dropping the claim's allocation takes it from nobody but this pod."""
    return not claim.reserved_for or claim.reserved_for == (pod_uid,)
