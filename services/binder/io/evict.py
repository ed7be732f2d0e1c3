"""Making one victim leave: marked first, then evicted or deleted, so that who looks at it reads why.

    condition DisruptionTarget --no budget covers it--> DELETE with uid --2xx--> EVICTED | 404 GONE
        |--a budget does--> POST eviction --2xx--> marked again --> EVICTED | 404 GONE
                              |429 (the budget forbids it) --forced--> DELETE with uid | else unmarked, REFUSED
            a write without an answer, 5xx, 409 --GET--> leaving: EVICTED | gone: GONE | stays: unmarked, UNKNOWN

kube-scheduler patches the condition and deletes, which asks no budget. The API server's eviction takes from the budget
in the same step, but always puts its own reason, EvictionByEvictionAPI, in the place of ours
(``addConditionAndDeletePod``): so a victim that a budget covers is evicted and marked once more, and one that none
covers is deleted.

Every write names the victim's uid, so a pod recreated under the name is never hit, and a victim evicted twice is
evicted once. What may not happen is a victim of a plan that is over: a process that slept between plan and eviction
would evict for a preemptor that others have placed since. So ``may_act`` asks etcd for the terms before the first step,
and before a budget is overridden.

Who stays is no DisruptionTarget any more: a Job would count its own failure as a disruption. Where that cannot be
written either, or the binder dies right after the mark, kube-controller-manager takes the mark back after two minutes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import structlog

from shared.errors import KubeError, KubeRejected
from shared.kube.resources import PODS
from shared.model.offline import GIVE_WAY
from shared.model.units.reservation import ReservationPhase, reservation_of
from shared.ports import KubeApi
from shared.runtime.kube import reservations
from shared.runtime.kube.reservations import ReservationName
from shared.wire.messages import Eviction, EvictionOutcome, EvictionReason, EvictionResult

log = structlog.get_logger()

PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
STAYS = {"type": "DisruptionTarget", "status": "False", "reason": "", "message": ""}

MESSAGES: dict[int, str] = {
    EvictionReason.PREEMPTION: "preempting to accommodate a higher priority pod",
    EvictionReason.RECLAIM: "taking back what its queue has borrowed",
    EvictionReason.OVER_LIMIT: "its queue uses more than its limits, which were lowered",
    EvictionReason.BROKEN_GANG: "its pod group runs fewer members than its minCount",
    EvictionReason.GIVE_WAY: GIVE_WAY,
}
"""What the condition says; the first is kube-scheduler's, and the uid of that pod follows in brackets: its status may
never say that it was to go there (ADR 0075). A reason that is not known here is told as a preemption."""


async def evict(
    api: KubeApi, eviction: Eviction, *, scheduler_name: str, may_act: Callable[[], Awaitable[bool]]
) -> EvictionResult:
    """What became of the victim. Never raises for what the API server says.

    ``may_act``: whether this binder and the coordinator that planned it both still lead, as etcd says now.
    """
    message = MESSAGES.get(eviction.reason, MESSAGES[EvictionReason.PREEMPTION])
    if message == MESSAGES[EvictionReason.PREEMPTION]:
        message = f"{message} ({eviction.preemptor})"
    condition = {**PREEMPTED, "message": f"{scheduler_name}: {message}", "lastTransitionTime": _now()}
    namespace, name = eviction.namespace, eviction.name
    try:
        if not await may_act():
            return EvictionResult(eviction.uid, EvictionOutcome.UNKNOWN, "leadership may be lost")
        await _mark(api, eviction, condition)
        if eviction.unprotected:
            await api.delete(PODS, namespace=namespace, name=name, uid=eviction.uid)
        else:
            await _evict(api, eviction, condition, may_act)
    except KubeRejected as error:
        if error.status == 404:
            return EvictionResult(eviction.uid, EvictionOutcome.GONE, str(error)[:256])
        if error.status == 409:  # another of its name, or somebody else was writing
            return await _read_back(api, eviction, str(error)[:256])
        await _unmark(api, eviction)
        return EvictionResult(eviction.uid, EvictionOutcome.REFUSED, str(error)[:256])
    except KubeError as error:
        return await _read_back(api, eviction, str(error)[:256])
    log.info("pod_evicted", pod_uid=eviction.uid, preemptor=eviction.preemptor, node=eviction.node)
    return EvictionResult(eviction.uid, EvictionOutcome.EVICTED)


async def give_up_reservation(
    api: KubeApi, eviction: Eviction, *, may_act: Callable[[], Awaitable[bool]]
) -> EvictionResult:
    """As ``evict``, of room that a Reservation keeps: it fails, and says for whom. Whoever took it stays."""
    where = ReservationName(eviction.namespace, reservation_of(eviction.name), eviction.uid)
    try:
        if not await may_act():
            return EvictionResult(eviction.uid, EvictionOutcome.UNKNOWN, "leadership may be lost")
        found = await reservations.look(api, where)
        if found is None or found.finished:
            return EvictionResult(eviction.uid, EvictionOutcome.GONE)
        await reservations.end(
            api, where, version=found.resource_version, phase=ReservationPhase.FAILED, reason="Preempted",
            message=f"given up on {eviction.node} for a pod of higher priority ({eviction.preemptor})",
        )  # fmt: skip
    except KubeError as error:  # a refusal too: somebody else was writing, and it is asked again
        return EvictionResult(eviction.uid, EvictionOutcome.UNKNOWN, str(error)[:256])
    log.info("reservation_given_up", uid=eviction.uid, preemptor=eviction.preemptor, node=eviction.node)
    return EvictionResult(eviction.uid, EvictionOutcome.EVICTED)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


async def _unmark(api: KubeApi, eviction: Eviction, *, version: str = "") -> None:
    with contextlib.suppress(KubeError):
        await _mark(api, eviction, {**STAYS, "lastTransitionTime": _now()}, version=version)


async def _mark(api: KubeApi, eviction: Eviction, condition: dict[str, str], *, version: str = "") -> None:
    # a uid in a patch is a precondition, and so is a resourceVersion
    only = {"uid": eviction.uid, "resourceVersion": version} if version else {"uid": eviction.uid}
    mark = {"metadata": only, "status": {"conditions": [condition]}}
    await api.patch(PODS, namespace=eviction.namespace, name=eviction.name, patch=mark, subresource="status")


async def _evict(
    api: KubeApi, eviction: Eviction, condition: dict[str, str], may_act: Callable[[], Awaitable[bool]]
) -> None:
    namespace, name = eviction.namespace, eviction.name
    try:
        await api.evict(namespace=namespace, name=name, uid=eviction.uid)
    except KubeRejected as error:
        if error.status != 429 or not eviction.force or not await may_act():
            raise
        log.warning("budget_violated", pod_uid=eviction.uid, preemptor=eviction.preemptor, error=error)
        await api.delete(PODS, namespace=namespace, name=name, uid=eviction.uid)
        return
    try:
        await _mark(api, eviction, condition)
    except KubeError as error:
        log.info("victim_not_marked", pod_uid=eviction.uid, error=error)  # it leaves, or is gone already


async def _read_back(api: KubeApi, eviction: Eviction, reason: str) -> EvictionResult:
    """What became of a victim after a write that was not answered. Of one that stays nobody knows whether it will: it
    is to be asked again rather than somebody else, and its mark is taken back unless it begins to leave meanwhile."""
    try:
        found = await api.get(PODS, namespace=eviction.namespace, name=eviction.name)
    except KubeError as error:
        return EvictionResult(eviction.uid, EvictionOutcome.UNKNOWN, str(error)[:256])
    if found is None or found.metadata.uid != eviction.uid:
        return EvictionResult(eviction.uid, EvictionOutcome.GONE, reason)
    if found.metadata.deletion_timestamp is not None:
        return EvictionResult(eviction.uid, EvictionOutcome.EVICTED, reason)
    await _unmark(api, eviction, version=found.metadata.resource_version)
    return EvictionResult(eviction.uid, EvictionOutcome.UNKNOWN, reason)
