"""Runs one term: hands events to the core in batches, carries out what it says, feeds the results back.

Everything that arrived since the last turn of the loop is one batch, so a lone plan is handled at once and a burst
costs one pass. Leadership is asked for by the clock before each batch and again right before each Binding, which is the
one write that no transaction fences; on doubt nothing more goes out. It refuses to decide; the core does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Protocol

import structlog
from prometheus_client import Histogram

from services.binder.core import BinderCore
from services.binder.events import (
    BindingAccepted,
    BindingRefused,
    BindingUnknown,
    CommitRefused,
    Committed,
    CommitUnknown,
    Event,
    IntentsListed,
    LookedUp,
    LookUpFailed,
    PlanReceived,
    PodMarked,
    PodRead,
    PodReadFailed,
    StoredIntent,
    Tick,
)
from services.binder.instructions import (
    Answer,
    Bind,
    Commit,
    Instruction,
    ListIntents,
    ListPods,
    Log,
    LookUp,
    MarkPod,
    ReadPod,
    Refuse,
    Stop,
)
from services.binder.sources import compared
from shared.errors import KubeError, KubeRejected, LeadershipLost, StoreError, StoreFenced, StoreRejected
from shared.kube.convert import pod_from_api
from shared.kube.resources import PODS
from shared.ports import Clock, KeyValue, KubeApi, Store
from shared.runtime.failpoints import Failpoints
from shared.runtime.http import Refused
from shared.runtime.metrics import Quantiles
from shared.wire.keys import Keys
from shared.wire.messages import Plan, PlanResult
from shared.wire.records import Intent, decode_record

log = structlog.get_logger()

LIST_RETRY_S = 0.2
FEW_KEYS = 8
"""Up to so many intents are looked up one by one, more by one listing."""


class Validity(Protocol):
    """What a leader is asked before each batch and each Binding (``Leadership``)."""

    def is_valid(self, now: float | None = None) -> bool:
        """Whether this process may act as leader now."""
        ...


class Shell:
    """One term's shell. ``run`` lasts until the term ends, by an error."""

    def __init__(
        self, core: BinderCore, *, store: Store, api: KubeApi, keys: Keys, shard: str, leadership: Validity,
        clock: Clock, failpoints: Failpoints, bind_timeout_s: float = 5.0, bind_ms: Quantiles | None = None,
        commit_ms: Quantiles | None = None, bind_seconds: Histogram | None = None,
    ) -> None:  # fmt: skip
        self.core = core
        self._log = log.bind(term=core.state.term)
        self._store = store
        self._api = api
        self._keys = keys
        self._shard = shard
        self._leadership = leadership
        self._clock = clock
        self._failpoints = failpoints
        self._bind_timeout_s = bind_timeout_s
        self._bind_ms = bind_ms if bind_ms is not None else Quantiles()
        self._commit_ms = commit_ms if commit_ms is not None else Quantiles()
        self._bind_seconds = bind_seconds
        self._inbox: list[Event] = []
        self._turning = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[None] | None = None
        self._requests: dict[int, asyncio.Future[PlanResult]] = {}
        self._request_id = 0
        self._idle = asyncio.Event()
        self.draining = False

    def post(self, events: Iterable[Event]) -> None:
        """Events for the next turn of the loop."""
        self._inbox.extend(events)
        if self._inbox and not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)

    async def submit(self, plan: Plan) -> PlanResult:
        """The plan's results. Refused: ``Refused`` with a stable code; ``LeadershipLost`` (503): outcome unknown."""
        if self.draining:
            raise Refused("this binder is stopping", code="not_ready", status=503, retry_after_s=1.0)
        if self._ended is not None and self._ended.done():
            raise LeadershipLost("this binder leads no more")
        self._request_id += 1
        request = self._request_id
        waiting: asyncio.Future[PlanResult] = asyncio.get_running_loop().create_future()
        self._requests[request] = waiting
        try:
            self.post((PlanReceived(request, plan),))
            return await waiting
        finally:
            self._requests.pop(request, None)

    async def run(self) -> None:
        """Eternal; raises what ends the term: ``LeadershipLost``, ``StoreFenced``, or a bug's error."""
        self._ended = asyncio.get_running_loop().create_future()
        self._start(self._list_intents())
        try:
            await self._ended
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()
            for waiting in self._requests.values():
                if not waiting.done():
                    waiting.set_exception(LeadershipLost("this binder leads no more"))

    async def drain(self) -> None:
        """Accept no more plans; return when every unit on its way is settled and its intent gone."""
        self.draining = True
        while self.core.busy and self._ended is not None and not self._ended.done():
            self._idle.clear()
            await self._idle.wait()

    def _turn(self) -> None:
        self._turning = False
        if self._ended is None or self._ended.done():
            return
        if not self._leadership.is_valid():
            self._end(LeadershipLost("the lease may have ended"))
            return
        events, self._inbox = self._inbox, []
        try:
            for instruction in self.core.handle_all(events, self._clock()):
                self._carry_out(instruction)
        except Exception as error:  # noqa: BLE001  the shell's one guard: it ends the term with this error
            self._end(error)
            return
        self._set_timer(self.core.wake_at)
        if not self.core.busy:
            self._idle.set()

    def _end(self, error: BaseException) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)
        self._idle.set()

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Bind():
                self._start(self._bind(instruction))
            case Commit():
                self._start(self._commit(instruction))
            case Answer():
                waiting = self._requests.get(instruction.request)
                if waiting is not None and not waiting.done():
                    waiting.set_result(instruction.result)
            case Refuse():
                self._refuse(instruction)
            case ReadPod():
                self._start(self._read(instruction))
            case MarkPod():
                self._start(self._mark(instruction))
            case LookUp():
                self._start(self._look_up(instruction))
            case ListIntents():
                self._start(self._list_intents())
            case ListPods():
                self._start(self._list_pods())
            case Stop():
                self._end(StoreFenced(instruction.reason))
            case Log():
                getattr(self._log, instruction.level)(instruction.event, **dict(instruction.facts))

    def _refuse(self, refuse: Refuse) -> None:
        self._log.info("plan_refused", code=refuse.code, reason=refuse.message)
        waiting = self._requests.get(refuse.request)
        if waiting is not None and not waiting.done():
            waiting.set_exception(
                Refused(refuse.message, code=refuse.code, status=refuse.status, retry_after_s=refuse.retry_after_s)
            )

    def _set_timer(self, at: float | None) -> None:
        if at == self._timer_at:
            return
        self._timer_at = at
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None:
            delay_s = max(0.0, at - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer_at = None
        self.post((Tick(),))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(error)

    # --- etcd ---------------------------------------------------------------------------------------------------

    async def _commit(self, commit: Commit) -> None:
        self._failpoints.reach("before_commit")
        started = time.perf_counter()
        try:
            result = await self._store.txn(commit.compares, commit.ops)
        except StoreRejected as error:
            self._log.warning("commit_rejected", batch=commit.batch, error=error)
            self.post((CommitRefused(commit.batch, str(error)),))
            return
        except StoreError as error:
            self._log.warning("commit_unknown", batch=commit.batch, error=error)
            self.post((CommitUnknown(commit.batch),))
            return
        self._commit_ms.record((time.perf_counter() - started) * 1e3)
        self._failpoints.reach("after_commit")
        if not result.succeeded:
            self._log.info("commit_refused", batch=commit.batch, revision=result.revision)
            self.post((CommitRefused(commit.batch),))
            return
        self._log.info("batch_committed", batch=commit.batch, ops=len(commit.ops), revision=result.revision)
        self.post((Committed(commit.batch, result.revision),))

    async def _look_up(self, look_up: LookUp) -> None:
        try:
            own = await self._store.get(self._keys.binder_leader(self._shard))
            coordinator = await self._store.get(self._keys.coordinator_leader)
            if len(look_up.unit_keys) > FEW_KEYS:
                listing = await self._store.list_prefix(self._keys.intents_prefix)
                found: list[KeyValue | None] = list(listing.items)
            else:
                found = [await self._store.get(self._keys.intent(key)) for key in look_up.unit_keys]
        except StoreError as error:
            self._log.warning("look_up_failed", batch=look_up.batch, error=error)
            self.post((LookUpFailed(look_up.batch),))
            return
        intents = self._intents(found)
        wanted = {key: intents[key] for key in look_up.unit_keys if key in intents}
        terms = [kv.create_revision if kv is not None else 0 for kv in (own, coordinator)]
        self.post((LookedUp(look_up.batch, terms[0], terms[1], wanted),))

    async def _list_intents(self) -> None:
        while True:
            try:
                listing = await self._store.list_prefix(self._keys.intents_prefix)
            except StoreError as error:
                self._log.warning("intents_unlisted", error=error)
                await asyncio.sleep(LIST_RETRY_S)
                continue
            self.post((IntentsListed(self._intents(listing.items)),))
            return

    def _intents(self, items: Iterable[KeyValue | None]) -> Mapping[str, StoredIntent]:
        return {
            self._keys.last_part(kv.key): StoredIntent(decode_record(kv.value, Intent), kv.create_revision)
            for kv in items
            if kv is not None
        }

    # --- the API server -----------------------------------------------------------------------------------------

    async def _bind(self, bind: Bind) -> None:
        request, attempt = bind.request, bind.attempt
        if not self._leadership.is_valid():
            self._end(LeadershipLost("the lease may have ended: a Binding was not sent"))
            return
        self._failpoints.reach("before_bind")
        started = time.perf_counter()
        try:
            await self._api.bind(request, timeout_s=self._bind_timeout_s)
        except KubeRejected as error:
            self._log.info(
                "binding_refused", pod_uid=request.uid, node=request.node_name, cause_id=bind.cause_id,
                status=error.status, error=error,
            )  # fmt: skip
            self._observe("refused", started)
            self.post((BindingRefused(request.uid, attempt, error.status, str(error)[:512], error.retry_after_s),))
            return
        except KubeError as error:
            self._log.warning(
                "binding_unknown", pod_uid=request.uid, node=request.node_name, cause_id=bind.cause_id, error=error
            )
            self._observe("unknown", started)
            self.post((BindingUnknown(request.uid, attempt),))
            return
        self._failpoints.reach("after_bind")
        self._bind_ms.record((time.perf_counter() - started) * 1e3)
        self._observe("accepted", started)
        self._log.debug("pod_bound", pod_uid=request.uid, node=request.node_name, cause_id=bind.cause_id)
        self.post((BindingAccepted(request.uid, attempt),))

    def _observe(self, result: str, started: float) -> None:
        if self._bind_seconds is not None:
            self._bind_seconds.labels(result).observe(time.perf_counter() - started)

    async def _read(self, read: ReadPod) -> None:
        try:
            found = await self._api.get(PODS, namespace=read.namespace, name=read.name)
        except KubeError as error:
            self._log.warning("pod_unread", pod_uid=read.uid, error=error)
            self.post((PodReadFailed(read.uid),))
            return
        same = found is not None and found.metadata.uid == read.uid
        self.post((PodRead(read.uid, pod_from_api(found) if found is not None and same else None),))

    async def _mark(self, mark: MarkPod) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": mark.message}
        # a uid in a patch is a precondition: a pod recreated under the name is not ours to mark
        patch = {"metadata": {"uid": mark.uid}, "status": {"conditions": [condition]}}
        try:
            await self._api.patch(PODS, namespace=mark.namespace, name=mark.name, patch=patch, subresource="status")
        except KubeError as error:
            self._log.warning("pod_unmarked", pod_uid=mark.uid, error=error)
            self.post((PodMarked(mark.uid, done=False),))
            return
        self.post((PodMarked(mark.uid, done=True),))

    async def _list_pods(self) -> None:
        try:
            pods = await self._api.list(PODS)
        except KubeError as error:
            self._log.info("compare_skipped", error=error)
            return
        self.post((compared(pods),))
