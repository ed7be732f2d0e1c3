"""The binder's calls to the API server: Bindings, reads, marks, lists. Each ends in an event.

Leadership is asked for right before each Binding, the one write that no transaction fences. Not its job: retrying
anything, or deciding what an answer means; the core does (``bind.py``).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace
from prometheus_client import Histogram

from services.binder.core.events import (
    BindingAccepted,
    BindingRefused,
    BindingUnknown,
    BoundPod,
    ClaimFreed,
    ClaimUnwritten,
    ClaimWritten,
    Compared,
    Event,
    Evicted,
    PodMarked,
    PodRead,
    PodReadFailed,
)
from services.binder.core.instructions import Bind, Evict, MarkPod, PatchObject, ReadPod, ReleaseClaim, WriteClaim
from services.binder.io.evict import evict, give_up_reservation
from shared.errors import KubeError, KubeRejected, LeadershipLost, ObjectError
from shared.kube.pods.convert import pod_from_api
from shared.kube.pods.convert_devices import PROTECTION, claim_from_api
from shared.kube.resources import PLACED_PODS, PODS
from shared.kube.scheduling_kinds import DEVICE_CLAIMS, STORAGE_KINDS
from shared.model.devices import ExtendedClaim
from shared.model.pod import DEVICES_ANNOTATION, FINISHED_PHASES
from shared.model.units.reservation import RESERVE_PREFIX, reservation_of
from shared.ports import BindRequest, KubeApi
from shared.runtime.kube import claims, made_claims, reservations
from shared.runtime.kube.claims import ClaimName
from shared.runtime.kube.reservations import ReservationName
from shared.runtime.kube.unscheduled import FIRST, NOTHING, mark_unscheduled
from shared.runtime.leader_shell import Validity
from shared.runtime.observe.hops import Hops
from shared.runtime.observe.metrics import ReservoirQuantiles
from shared.runtime.process.failpoints import Failpoints
from shared.scheduling.reasons import SCHEDULER_ERROR


class ApiCalls:
    """Carries out ``Bind``, ``ReadPod``, ``MarkPod``, ``ListPods``, ``Evict``, ``PatchObject``, ``WriteClaim`` and
    ``ReleaseClaim`` of one term.

    ``log``: a bound logger.
    """

    def __init__(
        self,
        api: KubeApi,
        post: Callable[[Iterable[Event]], None],
        *,
        leadership: Validity,
        failpoints: Failpoints,
        bind_timeout_s: float,
        bind_ms: ReservoirQuantiles,
        bind_seconds: Histogram | None,
        log: Any,
        hops: Hops | None = None,
        claim_created: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._hops = hops or Hops()
        self._api = api
        self._post = post
        self._leadership = leadership
        self._failpoints = failpoints
        self._bind_timeout_s = bind_timeout_s
        self._bind_ms = bind_ms
        self._claim_created = claim_created
        self._bind_seconds: dict[str, Histogram] = {}
        if bind_seconds is not None:
            self._bind_seconds = {result: bind_seconds.labels(result) for result in ("accepted", "refused", "unknown")}
        self._log = log

    async def bind(self, bind: Bind) -> None:
        """Answers ``BindingAccepted``, ``BindingRefused`` or ``BindingUnknown``. ``LeadershipLost``: not sent."""
        request, attempt = bind.request, bind.attempt
        # The last look, with nothing awaited before the request: a Binding carries no term that could fence it (I4).
        if not self._leadership.is_valid():
            raise LeadershipLost("the lease may have ended: a Binding was not sent")
        steps = ("bind", f"{bind.step}_bind") if bind.step else ("bind",)
        for step in steps:
            self._failpoints.reach(f"before_{step}")
        started = time.perf_counter()
        try:
            if bind.room is not None:
                await self._name_taker(ReservationName(*bind.room), request)
            if bind.tells:
                request = await self._told(request, bind.extended)
            if request.name.startswith(RESERVE_PREFIX):
                await self._take_node(request)
            else:
                await self._api.bind(request, timeout_s=self._bind_timeout_s)
        except KubeRejected as error:
            self._log.info(
                "binding_refused", pod_uid=request.uid, node=request.node_name, cause_id=bind.cause_id,
                status=error.status, error=error,
            )  # fmt: skip
            self._observe("refused", started)
            self._tell(bind, "refused", started)
            self._post((BindingRefused(request.uid, attempt, error.status, str(error)[:512], error.retry_after_s),))
            return
        except KubeError as error:
            self._log.warning(
                "binding_unknown", pod_uid=request.uid, node=request.node_name, cause_id=bind.cause_id, error=error
            )
            self._observe("unknown", started)
            self._tell(bind, "unknown", started)
            self._post((BindingUnknown(request.uid, attempt),))
            return
        for step in steps:
            self._failpoints.reach(f"after_{step}")
        self._bind_ms.record((time.perf_counter() - started) * 1e3)
        self._observe("accepted", started)
        self._tell(bind, "accepted", started)
        self._log.debug("pod_bound", pod_uid=request.uid, node=request.node_name, cause_id=bind.cause_id)
        self._post((BindingAccepted(request.uid, attempt),))

    async def _take_node(self, request: BindRequest) -> None:
        """What a Binding is to a pod, to a reservation."""
        name = reservation_of(request.name)
        devices = request.annotations.get(DEVICES_ANNOTATION, "")
        await reservations.take_node(
            self._api, ReservationName(request.namespace, name, request.uid), version=request.resource_version,
            node=request.node_name, devices=devices,
        )  # fmt: skip

    async def _name_taker(self, where: ReservationName, request: BindRequest) -> None:
        """The Reservation says who takes it before that is bound: whoever leads next gives it to nobody else, also
        where the pod is gone by then. One that is over or gone, that we may not write, or that a webhook keeps
        from us, holds up no Binding."""
        self._failpoints.reach("before_taker_named")
        try:
            await reservations.name_taker(self._api, where, request)
        except KubeError as error:  # also without an answer: writing it twice does no harm
            self._log.info("taker_unnamed", reservation=f"{where.namespace}/{where.name}", error=error)
        self._failpoints.reach("after_taker_named")
        if not self._leadership.is_valid():
            raise LeadershipLost("the lease may have ended: a Binding was not sent")

    async def _told(self, request: BindRequest, claim: ExtendedClaim | None) -> BindRequest:
        """The pod's status tells of the claim for its extended resources; the Binding names the version by that. It is
        written by the resourceVersion in the intent, as the Binding would be: who marks the pod refuses both."""
        self._failpoints.reach("before_pod_status")
        version = await made_claims.tell_claim(self._api, request, claim)
        self._failpoints.reach("after_pod_status")
        # Once more: the status may have taken longer than the lease had left.
        if not self._leadership.is_valid():
            raise LeadershipLost("the lease may have ended: a Binding was not sent")
        return replace(request, resource_version=version)

    def _observe(self, result: str, started: float) -> None:
        if result in self._bind_seconds:
            self._bind_seconds[result].observe(time.perf_counter() - started)

    def _tell(self, bind: Bind, result: str, started: float) -> None:
        if self._hops.on:
            request, took_s = bind.request, time.perf_counter() - started
            self._hops.span("bind", bind.cause_id, took_s, result=result, pod_uid=request.uid, node=request.node_name)

    async def read(self, read: ReadPod) -> None:
        """Answers ``PodRead`` or ``PodReadFailed``."""
        try:
            if name := reservation_of(read.name):
                shown = await reservations.look(self._api, ReservationName(read.namespace, name, read.uid))
                self._post((PodRead(read.uid, shown),))
                return
            found = await self._api.get(PODS, namespace=read.namespace, name=read.name)
        except KubeError as error:
            self._log.warning("pod_unread", pod_uid=read.uid, error=error)
            self._post((PodReadFailed(read.uid),))
            return
        same = found is not None and found.metadata.uid == read.uid
        self._post((PodRead(read.uid, pod_from_api(found) if found is not None and same else None),))

    async def mark(self, mark: MarkPod) -> None:
        """Answers ``PodMarked``; a pod that is bound or gone is not marked."""
        try:
            if name := reservation_of(mark.name):
                done = await reservations.mark(
                    self._api, ReservationName(mark.namespace, name, mark.uid), SCHEDULER_ERROR, mark.message
                )
            else:
                done = await mark_unscheduled(
                    self._api, namespace=mark.namespace, name=mark.name, uid=mark.uid, reason=SCHEDULER_ERROR,
                    message=mark.message, shown=FIRST if mark.told else NOTHING,
                )  # fmt: skip
        except KubeError as error:
            self._log.warning("pod_unmarked", pod_uid=mark.uid, error=error)
            self._post((PodMarked(mark.uid, done=False),))
            return
        self._post((PodMarked(mark.uid, done),))

    async def evict(self, asked: Evict, scheduler_name: str, may_act: Callable[[], Awaitable[bool]]) -> None:
        """Answers ``Evicted``. ``may_act``: whether the plan's terms still hold, as etcd says."""
        self._failpoints.reach("before_evict")
        if reservation_of(asked.eviction.name):
            result = await give_up_reservation(self._api, asked.eviction, may_act=may_act)
        else:
            result = await evict(self._api, asked.eviction, scheduler_name=scheduler_name, may_act=may_act)
        self._post((Evicted(asked.plan, result),))

    async def patch_object(self, write: PatchObject) -> None:
        """Not answered: the watch shows what came of it."""
        if not self._leadership.is_valid():
            return
        resource = next(kind.resource for kind in STORAGE_KINDS if kind.name == write.kind)
        try:
            await self._api.patch(
                resource, namespace=write.namespace, name=write.name, patch=write.patch, strategy="merge"
            )
        except KubeError as error:
            self._log.warning(
                "volume_unwritten", kind=write.kind, name=write.name, namespace=write.namespace, error=error
            )

    async def write_claim(self, write: WriteClaim) -> None:
        """Answers ``ClaimWritten`` or ``ClaimUnwritten``. ``LeadershipLost``: it is not finished."""
        name = ClaimName(write.namespace, write.name, write.uid)
        try:
            version, protected, marked = write.resource_version, write.protected, False
            if write.requests:
                made, marked = await made_claims.make_claim(
                    self._api, name, write.consumers[0], write.requests, mark=write.mark,
                    may_act=self._leadership.is_valid, reached=self._failpoints.reach, created=self._claim_created,
                )  # fmt: skip
                name = name._replace(uid=made.metadata.uid)
                version, protected = made.metadata.resource_version, PROTECTION in (made.metadata.finalizers or ())
            claim = await claims.write_claim(
                self._api, name, resource_version=version, protected=protected, mark=write.mark,
                allocation=write.allocation, consumers=write.consumers, may_act=self._leadership.is_valid,
                reached=self._failpoints.reach, marked=marked,
            )  # fmt: skip
            written: Event = ClaimWritten(claim_from_api(claim))
        except (KubeError, ObjectError) as error:
            self._log.info("claim_unwritten", claim=write.key, error=error)
            written = await self._unwritten(write, error)
        self._post((written,))

    async def _unwritten(self, write: WriteClaim, error: Exception) -> ClaimUnwritten:
        """What became of it, by what is there now."""
        status, retry_after_s = 0, None
        if isinstance(error, KubeRejected):
            status, retry_after_s = error.status, error.retry_after_s
        found, known = None, True
        try:
            claim = await self._api.get(DEVICE_CLAIMS.resource, namespace=write.namespace, name=write.name)
            found = claim_from_api(claim) if claim is not None else None
            # A write without an answer may come after this read: what is shown now is not the end of it.
            known = status != 0 or found is None
        except (KubeError, ObjectError):
            known = False
        return ClaimUnwritten(write.key, found, known, status, str(error)[:512], retry_after_s)

    async def free_claim(self, order: ReleaseClaim) -> None:
        """Answers ``ClaimFreed``. ``LeadershipLost``: it is not finished."""
        name, found, done, status = ClaimName(order.namespace, order.name, order.uid), None, False, 0
        try:
            may_act, reached = self._leadership.is_valid, self._failpoints.reach
            if order.made:
                done = await made_claims.delete_made(self._api, name, order.consumer, may_act=may_act, reached=reached)
            else:
                claim, done = await claims.free_claim(
                    self._api, name, order.consumer, deallocate=order.deallocate, may_act=may_act, reached=reached
                )
                found = claim_from_api(claim) if claim is not None else None
        except (KubeError, ObjectError) as error:
            self._log.warning("claim_not_freed", claim=order.key, pod_uid=order.consumer, error=error)
            status = error.status if isinstance(error, KubeRejected) else 0
        self._post((ClaimFreed(order.key, found, done, status),))

    async def list_pods(self) -> None:
        """Answers ``Compared``, or not at all: the next sweep lists again."""
        bound: dict[str, BoundPod] = {}
        try:
            async with aclosing(self._api.pages(PLACED_PODS)) as pages:
                async for page in pages:
                    for pod in page.items:
                        meta, node = pod.metadata, pod.spec.node_name
                        if node and pod.status.phase not in FINISHED_PHASES:
                            bound[meta.uid] = BoundPod(meta.namespace or "", meta.name, node)
            reserves = await reservations.standing(self._api)
        except KubeError as error:
            self._log.info("compare_skipped", error=error)
            return
        for reserve in reserves or ():
            bound[reserve.uid] = BoundPod(reserve.namespace, reserve.name, reserve.node_name)
        self._post((Compared(bound, reserves is not None),))
