"""The claims that a pod names: whether they are there and its own, and whether they may be used on a node.

Source: kube-scheduler 1.36 ``plugins/dynamicresources`` (foreachPodResourceClaim, isClaimReadyForBinding,
isClaimTimeout), ``dynamic-resource-allocation/resourceclaim`` (Name, IsForPod, BindTo).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from shared.model.devices import Allocation, ClaimRef, Consumer, DeviceClaim, DevicePod
from shared.model.units.pod_group import PodGroup

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
        if ref.template is not None and not _made_for(claim, pod, ref):
            owners = "Pod is not owner"
            if ref.holder is not None:
                owners = f"neither Pod nor PodGroup {ref.holder.name} is the owner"
            return f"ResourceClaim {claim.key} was not created for Pod {pod.namespace}/{pod.name} ({owners})"
        found.append(claim)
    return tuple(found)


def _made_for(claim: DeviceClaim, pod: DevicePod, ref: ClaimRef) -> bool:
    return claim.owner == pod.uid or (ref.holder is not None and claim.owner == ref.holder.uid)


def held_by(pod: DevicePod, group: PodGroup, claims: Claims) -> DevicePod:
    """The pod, with the claims that its pod group has for all members. One is the group's where both entries agree in
    everything that they say: name, and claim or template; but one that was made for the pod is the pod's, as by a
    controller that knows nothing of claims of groups."""
    given = {(one.name, one.template, one.claim if one.template is None else None) for one in group.claims}
    holder = Consumer(group.name, group.uid, group=True)
    refs = tuple(
        replace(ref, holder=holder)
        if (ref.name, ref.template, ref.claim if ref.template is None else None) in given
        and not _owned(pod, claims.get(f"{pod.namespace}/{ref.claim}"))
        else ref
        for ref in pod.claims
    )
    return replace(pod, claims=refs)


def _owned(pod: DevicePod, claim: DeviceClaim | None) -> bool:
    return claim is not None and bool(pod.uid) and claim.owner == pod.uid


def holders(pod: DevicePod) -> dict[str, Consumer]:
    """The pod group that has a claim of the pod, by the claim's ``namespace/name``: of those that are a group's."""
    return {f"{pod.namespace}/{ref.claim}": ref.holder for ref in pod.claims if ref.holder is not None and ref.claim}


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


def may_be_freed(claim: DeviceClaim, consumer: str) -> bool:
    """Whether dropping the claim's allocation takes it from nobody but this consumer, a pod or a pod group."""
    return not claim.reserved_for or claim.reserved_for == (consumer,)
