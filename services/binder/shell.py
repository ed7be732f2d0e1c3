"""What a leading binder does about its core's instructions; inbox, turns and timer are ``LeaderShell``'s.

Leadership is asked for again right before each Binding, which is the one write that no transaction fences.
"""

from __future__ import annotations

import asyncio
from functools import partial

from prometheus_client import Histogram

from services.binder.core.core import EVENTS_PER_TURN, BinderCore
from services.binder.core.events import Event, PlanReceived
from services.binder.core.instructions import (
    Bind,
    Commit,
    Evict,
    Instruction,
    ListIntents,
    ListPods,
    LookUp,
    MarkPod,
    PatchObject,
    PlanAnswer,
    ReadPod,
    Refuse,
    ReleaseClaim,
    WriteClaim,
)
from services.binder.io.api_calls import ApiCalls
from services.binder.io.store_calls import StoreCalls
from services.binder.metrics import DeviceMetrics
from shared.errors import LeadershipLost, StoreError
from shared.ports import Clock, KubeApi, Store
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.leader_shell import LeaderShell, Turn, Validity
from shared.runtime.observe.hops import Hops
from shared.runtime.observe.metrics import ReservoirQuantiles
from shared.runtime.process.failpoints import Failpoints
from shared.wire.keys import Keys
from shared.wire.messages import Plan, PlanResult


class BinderShell(LeaderShell[Event, Instruction]):
    """Carries out what the core of one term wants. ``run`` lasts until the term ends, by an error."""

    def __init__(
        self, core: BinderCore, *, store: Store, api: KubeApi, keys: Keys, shard: str, leadership: Validity,
        clock: Clock, failpoints: Failpoints, bind_timeout_s: float = 5.0, bind_ms: ReservoirQuantiles | None = None,
        commit_ms: ReservoirQuantiles | None = None, bind_seconds: Histogram | None = None, hops: Hops | None = None,
        device_metrics: DeviceMetrics | None = None,
    ) -> None:  # fmt: skip
        super().__init__(core.handle_all, clock, leadership, term=core.state.term, most_events=EVENTS_PER_TURN)
        self.core = core
        self._device_metrics = device_metrics
        self.store_calls = StoreCalls(
            store,
            self.post,
            keys=keys,
            shard=shard,
            failpoints=failpoints,
            commit_ms=commit_ms if commit_ms is not None else ReservoirQuantiles(),
            log=self.log,
            hops=hops,
        )
        self.api_calls = ApiCalls(
            api,
            self.post,
            leadership=leadership,
            failpoints=failpoints,
            bind_timeout_s=bind_timeout_s,
            bind_ms=bind_ms if bind_ms is not None else ReservoirQuantiles(),
            bind_seconds=bind_seconds,
            claim_created=device_metrics.created if device_metrics is not None else lambda _: None,
            log=self.log,
            hops=hops,
        )
        self._requests: dict[int, asyncio.Future[PlanResult]] = {}
        self._request_id = 0
        self._idle = asyncio.Event()
        self.intents_listed = asyncio.Event()
        """The core knows the intents there are: only now may pods be listed."""
        self.draining = False

    async def submit(self, plan: Plan) -> PlanResult:
        """The plan's results. Refused: ``RequestRefused`` with a stable code; ``LeadershipLost`` (503): outcome
        unknown."""
        if plan.term > self.core.coordinator_term:
            # Before the core hears of it: once it has, every plan of the true coordinator is stale (I4).
            await self._confirm(plan.term)
        # Asked after the wait above, in which the term may have ended.
        if self.draining:
            raise RequestRefused("this binder is stopping", code="not_ready")
        if self.over:
            raise LeadershipLost("this binder leads no more")
        self._request_id += 1
        request = self._request_id
        waiting: asyncio.Future[PlanResult] = asyncio.get_running_loop().create_future()
        self._requests[request] = waiting
        try:
            self.post((PlanReceived(request, plan),))
            return await waiting
        finally:
            # Whoever asked has given up: the plan goes on, and is answered to who asks again (I9).
            self._requests.pop(request, None)

    async def _confirm(self, term: int) -> None:
        """Refuse a new term that etcd does not name: once believed, it would lock the true coordinator out (I4).

        A plan that commits something is compared with etcd anyway; one that commits nothing would never be. Costs one
        read per new leader. Refused: 409 ``stale_term``; 503 ``not_ready`` when etcd cannot be asked.
        """
        try:
            leads = await self.store_calls.coordinator_term()
        except StoreError as error:
            self.log.warning("term_unconfirmed", coordinator_term=term, error=error)
            raise RequestRefused(f"term {term} is new and etcd cannot be asked", code="not_ready") from error
        if term != leads:
            self.log.warning("term_forged", coordinator_term=term, leads=leads)
            raise RequestRefused(f"term {term} does not lead; etcd says {leads}", code="stale_term")

    async def run(self) -> None:
        """Eternal; raises what ends the term: ``LeadershipLost``, ``StoreFenced``, or a bug's error."""
        self.start(self.store_calls.list_intents())
        try:
            await super().run()
        finally:
            for waiting in self._requests.values():
                if not waiting.done():
                    # Unknown, not refused: what was committed of the plan goes on under the next leader.
                    waiting.set_exception(LeadershipLost("this binder leads no more"))

    async def drain(self) -> None:
        """Accept no more plans; return when every unit on its way is settled and its intent gone."""
        self.draining = True
        while self.core.busy and not self.over:
            self._idle.clear()
            await self._idle.wait()

    def turned(self, turn: Turn) -> None:  # noqa: ARG002
        """Ask for the core's next deadline, and take over what ended."""
        self.wake_at(self.core.wake_at)
        if self.core.state.conditions_awaited:
            ended = self.core.state.take_conditions_awaited()
            if self._device_metrics is not None:
                self._device_metrics.observe(ended)
        if not self.intents_listed.is_set() and self.core.takeover.intents_known:
            self.intents_listed.set()
        if self.draining and not self.core.busy:
            self._idle.set()

    def end(self, error: BaseException) -> None:
        """End the term with this error; nobody drains it any more."""
        super().end(error)
        self._idle.set()

    def carry_out(self, instruction: Instruction) -> None:
        """Each call runs beside the others and ends in an event."""
        match instruction:
            case Bind():
                self.start(self.api_calls.bind(instruction))
            case Commit():
                self.start(self.store_calls.commit(instruction))
            case PlanAnswer():
                waiting = self._requests.get(instruction.request)
                if waiting is not None and not waiting.done():
                    waiting.set_result(instruction.result)
            case Refuse():
                self._refuse(instruction)
            case ReadPod():
                self.start(self.api_calls.read(instruction))
            case PatchObject():
                self.start(self.api_calls.patch_object(instruction))
            case WriteClaim():
                self.start(self.api_calls.write_claim(instruction))
            case ReleaseClaim():
                self.start(self.api_calls.free_claim(instruction))
            case Evict():
                term, (planned_in, _) = self.core.state.term, instruction.plan
                may_act = partial(self.store_calls.leads, term, planned_in)
                self.start(self.api_calls.evict(instruction, self.core.state.settings.scheduler_name, may_act))
            case MarkPod():
                self.start(self.api_calls.mark(instruction))
            case LookUp():
                self.start(self.store_calls.look_up(instruction))
            case ListIntents():
                self.start(self.store_calls.list_intents())
            case ListPods():
                self.start(self.api_calls.list_pods())

    def _refuse(self, refuse: Refuse) -> None:
        self.log.info("plan_refused", code=refuse.code, reason=refuse.message)
        waiting = self._requests.get(refuse.request)
        if waiting is not None and not waiting.done():
            waiting.set_exception(RequestRefused(refuse.message, code=refuse.code, retry_after_s=refuse.retry_after_s))
