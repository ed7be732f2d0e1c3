"""What the coordinator writes to the API server, and its single reads: conditions, events, lookups.

Which condition goes when is the core's to say (``reporter.py``): each is carried out at once and answered by what
became of it. Events wait here for their turn (``event_recorder.py``). Placing pods waits for none of these.

Not its job: deciding what a failure means, waiting inside a call for an API server that is busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from msgspec.structs import replace

from services.coordinator.core.events import ConditionFailed, ConditionWritten, Event, PodFetched
from services.coordinator.core.instructions import (
    EmitEvent,
    FetchPod,
    FreeClaim,
    HoldNode,
    PatchCondition,
    TellPodGroup,
    TellQueue,
)
from services.coordinator.io.group_writes import Cancellable, GroupWrites
from services.coordinator.io.node_writes import NodeWrites
from services.coordinator.io.queue_writes import QueueWrites
from services.coordinator.status.event_recorder import EventRecorder, EventSeries
from shared.errors import KubeError, KubeRejected, KubeUnknown
from shared.kube.events import event_body, micro_time
from shared.kube.pods.convert import pod_from_api
from shared.kube.reservations import RESERVATIONS
from shared.kube.resources import EVENTS, PODS
from shared.model.pod import CAUSE_ANNOTATION
from shared.model.units.reservation import reservation_of
from shared.ports import Clock, KubeApi
from shared.runtime.kube import reservations
from shared.runtime.kube.claims import ClaimName, deallocate_claim
from shared.runtime.kube.made_claims import delete_claim
from shared.runtime.kube.reservations import ReservationName
from shared.runtime.kube.unscheduled import FIRST, NOTHING, mark_unscheduled

log = structlog.get_logger()

LOOKUPS_IN_FLIGHT = 8
EVENTS_IN_FLIGHT = 4

COME_AGAIN = frozenset({409, 422, 429})
"""Refusals of a condition by what the pod or the API server is just now."""

Work = PatchCondition | EmitEvent | FetchPod | TellPodGroup | TellQueue | HoldNode | FreeClaim


class KubeWrites:
    """Carries out ``Work``. ``start``: runs a call beside everything else; ``may_act``: whether the lease holds;
    ``crowded``: whether many Bindings are under way, which go before events of bound pods."""

    def __init__(
        self, api: KubeApi, post: Callable[[Event], None], *, controller: str, instance: str, clock: Clock,
        start: Callable[[Coroutine[Any, Any, None]], None], may_act: Callable[[], bool], crowded: Callable[[], bool],
        call_later: Callable[[float, Callable[[], None]], Cancellable] | None = None,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._api = api
        self._post = post
        self._controller = controller
        self._instance = instance
        self._clock = clock
        self._start = start
        self._may_act = may_act
        self._call_later = call_later
        self._reached = reached
        self._crowded = crowded
        self._lookups = asyncio.Semaphore(LOOKUPS_IN_FLIGHT)
        self._events_out = 0
        self._timer: Cancellable | None = None
        self._timer_at: float | None = None
        self._told_of_overload = False
        self._closed = False
        self.recorder = EventRecorder()
        self.groups = GroupWrites(api, clock, start, self.submit, call_later)
        self.queues = QueueWrites(api, start)
        self.nodes = NodeWrites(api, post)
        self.events_written = 0

    def submit(self, work: Work) -> None:
        """Carry it out."""
        match work:
            case PatchCondition():
                self._start(self.patch(work))
            case FetchPod():
                self._start(self.fetch(work))
            case TellPodGroup():
                self.groups.submit(work)
            case TellQueue():
                self.queues.submit(work)
            case HoldNode():
                self._start(self.nodes.hold(work))
            case FreeClaim():
                self._start(self.free_claim(work))
            case EmitEvent():
                if name := reservation_of(work.name):
                    work = replace(work, name=name, regarding=(RESERVATIONS.api_version, RESERVATIONS.kind))
                if not self.recorder.add(work, self._clock()) and not self._told_of_overload:
                    self._told_of_overload = True
                    log.warning("events_combined", waiting=self.recorder.waiting, reason=work.reason)
                self._pump()

    def close(self) -> None:
        """No more events are written."""
        self._closed = True
        self.groups.close()
        if self._timer is not None:
            self._timer.cancel()

    # --- conditions and lookups ---------------------------------------------------------------------------------

    async def patch(self, work: PatchCondition) -> None:
        """Answers ``ConditionWritten`` or ``ConditionFailed``."""
        try:
            if name := reservation_of(work.name):
                where = ReservationName(work.namespace, name, work.uid)
                await reservations.mark(self._api, where, work.reason, work.message)
                self._post(ConditionWritten(work.uid))
                return
            await mark_unscheduled(
                self._api, namespace=work.namespace, name=work.name, uid=work.uid, reason=work.reason,
                message=work.message, shown=FIRST if work.told else NOTHING, nominated=work.nominated,
            )  # fmt: skip
        except KubeError as error:
            log.info("condition_failed", pod_uid=work.uid, error=error)
            self._post(_failure(work.uid, error))
            return
        self._post(ConditionWritten(work.uid))

    async def free_claim(self, work: FreeClaim) -> None:
        """Not answered. ``LeadershipLost``: not done."""
        name, version, may_act = ClaimName(work.namespace, work.name, work.uid), work.resource_version, self._may_act
        try:
            if work.delete:
                await delete_claim(
                    self._api, name, work.consumer, resource_version=version, may_act=may_act, reached=self._reached
                )
            else:
                await deallocate_claim(
                    self._api, name, work.consumer, resource_version=version, may_act=may_act, reached=self._reached
                )
        except KubeError as error:
            log.info("claim_not_freed", claim=f"{work.namespace}/{work.name}", pod_uid=work.consumer, error=error)

    async def fetch(self, work: FetchPod) -> None:
        """Answers ``PodFetched``."""
        async with self._lookups:
            try:
                if name := reservation_of(work.name):
                    where = ReservationName(work.namespace, name, work.uid)
                    self._post(PodFetched(work.uid, await reservations.look(self._api, where)))
                    return
                found = await self._api.get(PODS, namespace=work.namespace, name=work.name)
            except KubeError as error:
                log.info("lookup_failed", pod_uid=work.uid, error=error)
                self._post(PodFetched(work.uid, None, failed=True))
                return
        same = found is not None and found.metadata.uid == work.uid
        self._post(PodFetched(work.uid, pod_from_api(found) if found is not None and same else None))

    # --- events -------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Write the events whose turn it is; come again when the next one's is."""
        if self._closed:
            return
        now = self._clock()
        while self._events_out < EVENTS_IN_FLIGHT and (series := self.recorder.next(now, self._crowded)) is not None:
            self._events_out += 1
            self._start(self.record(series))
        at = self.recorder.wake_at() if self._events_out < EVENTS_IN_FLIGHT else None
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, at
        if at is not None:
            call_later = self._call_later or asyncio.get_running_loop().call_later
            self._timer = call_later(max(0.0, at - now), self._due)

    def _due(self) -> None:
        self._timer, self._timer_at = None, None
        self._pump()

    async def record(self, series: EventSeries) -> None:
        """Create the event, or write how often it was seen by now."""
        recorder, namespace = self.recorder, series.event.namespace
        try:
            if series.written:
                again = {"series": {"count": series.count, "lastObservedTime": micro_time(self._wall(series.last_at))}}
                await self._api.patch(
                    EVENTS, namespace=namespace, name=series.name, patch=again, strategy="merge", wait_when_busy=False
                )
            else:
                series.name = series.name or f"{series.event.name[:220]}.{time.time_ns():x}"
                await self._api.create(EVENTS, namespace=namespace, body=self._body(series), wait_when_busy=False)
        except KubeRejected as error:
            if error.status == 409 and not series.written:
                recorder.written(series, self._clock())  # an answer was lost: it is there
            elif error.status == 404 and series.written:
                recorder.vanished(series)
            else:
                self._failed(series, error, refused=error.status not in (409, 429), retry_after_s=error.retry_after_s)
        except KubeUnknown as error:
            self._failed(series, error, refused=False, retry_after_s=error.retry_after_s)
        except KubeError as error:
            self._failed(series, error, refused=False, retry_after_s=None)
        else:
            self.events_written += 1
            recorder.written(series, self._clock())
        self._events_out -= 1
        self._pump()

    def _failed(self, series: EventSeries, error: KubeError, *, refused: bool, retry_after_s: float | None) -> None:
        log.info("event_failed", pod_uid=series.event.uid, reason=series.event.reason, refused=refused, error=error)
        self.recorder.failed(series, self._clock(), refused=refused, retry_after_s=retry_after_s)

    def _body(self, series: EventSeries) -> dict[str, Any]:
        event = series.event
        about = {
            "apiVersion": event.regarding[0], "kind": event.regarding[1], "namespace": event.namespace,
            "name": event.name, "uid": event.uid, "resourceVersion": event.resource_version,
        }  # fmt: skip
        body = event_body(
            about, name=series.name, at=self._wall(series.first_at), controller=self._controller,
            instance=self._instance, kind=event.type, reason=event.reason, action=event.action, note=event.note,
        )  # fmt: skip
        if event.cause_id:
            body["metadata"]["annotations"] = {CAUSE_ANNOTATION: event.cause_id}
        if series.count > 1:
            body["series"] = {"count": series.count, "lastObservedTime": micro_time(self._wall(series.last_at))}
        return body

    def _wall(self, at: float) -> datetime:
        """When a time of our clock was."""
        return datetime.now(UTC) - timedelta(seconds=max(0.0, self._clock() - at))


def _failure(uid: str, error: KubeError) -> ConditionFailed:
    if isinstance(error, KubeRejected):
        return ConditionFailed(
            uid, refused=error.status not in COME_AGAIN, throttled=error.status == 429,
            retry_after_s=error.retry_after_s,
        )  # fmt: skip
    if isinstance(error, KubeUnknown):
        return ConditionFailed(uid, throttled=True, retry_after_s=error.retry_after_s)
    return ConditionFailed(uid)
