"""What a scheduler writes into ResourceClaims: devices, who uses them, and that they are free again.

    write_claim    finalizer and mark --resourceVersion--> status: allocation, reservedFor
    free_claim     read --> not ours any more: only marked, so that what may still come of ours is refused
                        --> others use it: one consumer less
                        --> nobody else does: no allocation, no consumer --> no finalizer

Each write names the resourceVersion of what it rests on, and each leaves a new one behind: what a process that died
had sent is refused once its successor has written. That is what the *mark* is for, an annotation that is another one at
each attempt of each leader, where there is nothing else to write. Refused: ``KubeRejected`` (409: read it again);
everything else may have happened.

Source: kube-scheduler 1.36 ``plugins/dynamicresources`` (bindClaim, Unreserve); ``pkg/controller/resourceclaim``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shared.errors import KubeRejected, LeadershipLost
from shared.kube.device_objects import ResourceClaim
from shared.kube.pod_groups import PODGROUPS
from shared.kube.pods.convert_devices import PROTECTION, allocation_json
from shared.kube.resources import PODS
from shared.kube.scheduling_kinds import DEVICE_CLAIMS
from shared.model.devices import Allocation, Consumer
from shared.model.pod import CAUSE_ANNOTATION
from shared.ports import KubeApi

TRIES = 5
"""Of giving back a claim that somebody else writes at the same time."""


class ClaimName(NamedTuple):
    """One claim, and the very one."""

    namespace: str
    name: str
    uid: str


async def write_claim(
    api: KubeApi, claim: ClaimName, *, resource_version: str, protected: bool, mark: str,
    allocation: Allocation | None, consumers: Sequence[Consumer], may_act: Callable[[], bool],
    reached: Callable[[str], None], marked: bool = False,
) -> ResourceClaim:  # fmt: skip
    """The claim as it is by that. ``allocation``: what it is to be given, ``consumers``: who is to use it; neither: it
    is only marked. ``marked``: it was made with finalizer and mark. ``reached``: names gaps between writes.
    ``LeadershipLost``: it is not finished."""
    if (allocation is not None or not consumers) and not marked:
        _check(may_act)
        reached("before_claim_mark")
        metadata: dict[str, Any] = {"annotations": {CAUSE_ANNOTATION: mark}}
        if allocation is not None and not protected:
            metadata["finalizers"] = [PROTECTION]
        found = await _patched(api, claim, resource_version, metadata)
        resource_version = found.metadata.resource_version
        reached("after_claim_mark")
        if not consumers:
            return found
    _check(may_act)
    status: dict[str, Any] = {"reservedFor": [_reference(one) for one in consumers]}
    if allocation is not None:
        status["allocation"] = allocation_json(allocation)
    reached("before_claim_status")
    found = await _patched(api, claim, resource_version, {}, status)
    reached("after_claim_status")
    return found


def _reference(consumer: Consumer) -> dict[str, str]:
    named = {"name": consumer.name, "uid": consumer.uid}
    if consumer.group:
        return {"apiGroup": PODGROUPS.group, "resource": PODGROUPS.plural, **named}
    return {"resource": PODS.plural, **named}


async def free_claim(
    api: KubeApi, claim: ClaimName, consumer: str, *, deallocate: bool, may_act: Callable[[], bool],
    reached: Callable[[str], None] = lambda _: None,
) -> tuple[ResourceClaim | None, bool]:  # fmt: skip
    """(the claim as it is by that, None: it is gone; whether that is all done). ``deallocate``: we gave it what it has,
    or were about to, so that it may be taken away where nobody else uses it. ``LeadershipLost``: it is not finished.

    For who keeps others from the pod until this is done: it is tried again whatever was written in between."""
    for _ in range(TRIES):
        found = await api.get(DEVICE_CLAIMS.resource, namespace=claim.namespace, name=claim.name)
        if found is None or found.metadata.uid != claim.uid:
            return None, True
        _check(may_act)
        try:
            freed = await _freed(api, claim, found, consumer, deallocate, reached)
            if freed is found:
                mark = {"annotations": {CAUSE_ANNOTATION: f"freed-{found.metadata.resource_version}"}}
                freed = await _patched(api, claim, found.metadata.resource_version, mark)
        except KubeRejected as error:
            if error.status not in (404, 409):
                raise
        else:
            return freed, True
    return found, False


async def deallocate_claim(
    api: KubeApi, claim: ClaimName, consumer: str, *, resource_version: str, may_act: Callable[[], bool],
    reached: Callable[[str], None] = lambda _: None,
) -> bool:  # fmt: skip
    """Take away what the claim has, on the ground of what it was at ``resource_version``: nobody used it, but at most
    ``consumer``. False: it has changed since, or is gone, and nothing was done; who judged it judges it again.

    For who keeps nobody from the pod: it may be on its way with what it has by now. ``LeadershipLost``: not done."""
    found = await api.get(DEVICE_CLAIMS.resource, namespace=claim.namespace, name=claim.name)
    if found is None or (found.metadata.uid, found.metadata.resource_version) != (claim.uid, resource_version):
        return False
    _check(may_act)
    try:
        await _freed(api, claim, found, consumer, deallocate=True, reached=reached, unreserved=True)
    except KubeRejected as error:
        if error.status in (404, 409):
            return False
        raise
    return True


async def _freed(
    api: KubeApi, claim: ClaimName, found: ResourceClaim, consumer: str, deallocate: bool,
    reached: Callable[[str], None] = lambda _: None, *, unreserved: bool = False,
) -> ResourceClaim:  # fmt: skip
    """``found`` itself where there is nothing to be written. ``unreserved``: also where nobody uses it."""
    users = [one.uid for one in found.status.reserved_for or ()]
    others = [uid for uid in users if uid != consumer]
    if found.status.allocation is not None and (consumer in users or (unreserved and not users)):
        status: dict[str, Any] = {"reservedFor": [{"$patch": "delete", "uid": consumer}]} if users else {}
        if deallocate and not others:
            status["allocation"] = None
        if status:
            reached("before_claim_free")
            found = await _patched(api, claim, found.metadata.resource_version, {}, status)
            reached("after_claim_free")
    finalizers = found.metadata.finalizers or ()
    if deallocate and found.status.allocation is None and PROTECTION in finalizers:
        without = {"$deleteFromPrimitiveList/finalizers": [PROTECTION]}
        found = await _patched(api, claim, found.metadata.resource_version, without)
    return found


def _check(may_act: Callable[[], bool]) -> None:
    if not may_act():
        raise LeadershipLost("the lease may have ended: a claim was not written")


async def _patched(
    api: KubeApi, claim: ClaimName, resource_version: str, metadata: dict[str, Any],
    status: dict[str, Any] | None = None,
) -> ResourceClaim:  # fmt: skip
    patch: dict[str, Any] = {"metadata": {"uid": claim.uid, "resourceVersion": resource_version, **metadata}}
    if status is not None:
        patch["status"] = status
    return await api.patched(
        DEVICE_CLAIMS.resource, namespace=claim.namespace, name=claim.name, patch=patch,
        subresource="" if status is None else "status", wait_when_busy=False,
    )  # fmt: skip
