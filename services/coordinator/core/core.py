"""The coordinator as a pure machine: events in, instructions out. One ``Core`` is one term of leadership.

    watch -> Intake -> queue -> Rounds (offer, merge, assume) -> Ledger (plan) -> Outcomes -> watch confirms
                 ^                 |                                  |
                 |                 +-- given back <-------------------+
                 +---- Takeover: lists first, inherited intents

Invariants kept here (reliability.md 3): I2 nothing assumed above allocatable · I3 every pending pod of ours is in
exactly one of active, backoff, unschedulable, in flight, assumed, intent · I9 an event delivered twice changes
nothing · I11 same seed and events, same instructions. There is no await, no clock and no global randomness below this
line; ``shell.py`` carries the instructions out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random

from services.coordinator.agents.registry import AgentRegistry
from services.coordinator.binding.outcomes import Outcomes
from services.coordinator.binding.plans import Ledger
from services.coordinator.core.events import (
    AgentsChanged,
    BinderChanged,
    ConditionFailed,
    ConditionWritten,
    ControlSeen,
    DecisionsReceived,
    Event,
    IntentGone,
    IntentsListed,
    KindSynced,
    NodeDeleted,
    NodesMeasured,
    NodeUpserted,
    NominationStored,
    ObjectChanged,
    PlanAnswered,
    PlanFailed,
    PodDeleted,
    PodFetched,
    PodUpserted,
    PointerSeen,
    RequestFailed,
    Source,
    Synced,
    Tick,
    ViewAcked,
)
from services.coordinator.core.instructions import Instruction, SetTimer
from services.coordinator.core.intake import Intake
from services.coordinator.core.operator_control import OperatorControl
from services.coordinator.core.state import CoreSettings, State
from services.coordinator.core.takeover import Takeover
from services.coordinator.cycle.constraints import Constraints
from services.coordinator.cycle.cycle import Cycle
from services.coordinator.cycle.losses import ConflictTracker
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.preemption.search import Preemptor
from services.coordinator.rollout.evaluation import RolloutEvaluation
from services.coordinator.rollout.variants import Variants
from services.coordinator.status.reporter import StatusReporter
from shared.scheduling.queue import Place

SWEEP_QUEUE_S = 30.0

EVENTS_PER_TURN = 1000
"""Events that the shell hands over at once: more (a first list, a watch that was cut) take several turns."""

STARTS_PER_TURN = 4
"""Rounds in which no agent needs to be asked (no node takes any unit) before the loop turns."""


class Core:
    """One term. ``handle`` is the only method that changes anything."""

    def __init__(
        self,
        *,
        term: int,
        scheduler_name: str,
        policy: str,
        rng: Random,
        settings: CoreSettings | None = None,
        kinds: Collection[str] = (),
    ) -> None:
        self.state = State(term, scheduler_name, policy, settings or CoreSettings(), rng)
        self.registry = AgentRegistry(self.state)
        self.takeover = Takeover(self.state, kinds)
        self.reporter = StatusReporter(self.state)
        self.ledger = Ledger(self.state, self.reporter)
        self.conflicts = ConflictTracker(self.state)
        self.constraints = Constraints(self.state)
        self.preemptor = Preemptor(self.state, self.ledger, self.reporter, self.constraints)
        self.requeuer = Requeuer(self.state, self.constraints, self.preemptor)
        self.intake = Intake(
            self.state,
            self.registry,
            self.ledger,
            self.takeover,
            self.reporter,
            self.conflicts,
            self.requeuer,
            self.preemptor,
        )
        self.variants = Variants(self.state)
        self.evaluation = RolloutEvaluation(self.state, self.variants)
        self.cycle = Cycle(
            self.state, self.registry, self.ledger, self.reporter, self.conflicts, self.constraints, self.preemptor,
            self.requeuer, self.variants, self.evaluation,
        )  # fmt: skip
        self.outcomes = Outcomes(
            self.state, self.ledger, self.intake, self.takeover, self.reporter, self.conflicts, self.preemptor
        )
        self.control = OperatorControl(self.state, self.intake, self.evaluation)
        self._timer: float | None = None
        self._queue_swept_at = 0.0
        self._again = False

    def handle(self, events: Sequence[Event], now: float) -> list[Instruction]:
        """Take in a batch of events, in order, and say what follows. ``now``: monotonic seconds."""
        state = self.state
        state.now = now
        for event in events:
            self._take(event)
        self.intake.settle()
        self._advance()
        self.variants.follow()
        out, state.out = state.out, []
        return out

    def _take(self, event: Event) -> None:
        match event:
            case PodUpserted():
                self.intake.upsert_pod(event.pod)
            case DecisionsReceived():
                self.evaluation.heard(event.decisions)
                self.cycle.decided(event)
            case PlanAnswered():
                if (plan := self.ledger.plans.get(event.plan_id)) is not None:
                    self.evaluation.answered(plan.plan.placements, event.result.results)
                self.outcomes.answered(event)
            case PodDeleted():
                self.intake.delete_pod(event.uid)
            case NodeUpserted():
                self.intake.upsert_node(event.node, event.images)
            case ObjectChanged():
                self.intake.change_object(event.kind, event.key, event.item)
            case KindSynced():
                self.takeover.kind_synced(event.kind)
            case NodeDeleted():
                self.intake.delete_node(event.name)
            case ViewAcked():
                self.registry.acked(event)
            case RequestFailed():
                self.cycle.failed(event)
            case AgentsChanged():
                self._change_agents(event)
            case BinderChanged():
                self.ledger.change_binder(event)
            case PlanFailed():
                self.outcomes.failed(event)
            case IntentsListed():
                self.takeover.list_intents(event.intents)
            case IntentGone():
                self.takeover.gone(event.key)
            case PodFetched():
                self.outcomes.fetched(event)
            case ConditionFailed():
                if self.reporter.failed(event):
                    self.preemptor.unstored(event.uid)
            case ConditionWritten():
                self.reporter.written(event.uid)
            case NominationStored():
                self.preemptor.stored(event.uid, event.node)
            case PointerSeen():
                self.evaluation.seen(event.pointer)
            case ControlSeen():
                self.takeover.synced(Source.CONTROL)
                self.control.seen(event)
            case NodesMeasured():
                self.variants.measured(event.samples)
            case Synced():
                self.takeover.synced(event.source)
            case Tick():
                self._timer = None

    def _change_agents(self, event: AgentsChanged) -> None:
        self.takeover.synced(Source.AGENTS)
        before = {agent: view.record.incarnation for agent, view in self.registry.views.items()}
        joined = self.registry.change(event)
        after = {agent: view.record.incarnation for agent, view in self.registry.views.items()}
        self.cycle.leave({agent for agent, incarnation in before.items() if after.get(agent) != incarnation})
        if joined:
            self.requeuer.agents_joined()

    def _advance(self) -> None:
        state = self.state
        if not state.started:
            if not self.takeover.ready():
                if self.takeover.grace_over_at() is not None:
                    self._set_timer()
                return
            state.started = True
            self.registry.since_empty = state.now
            self.takeover.start()
            self.registry.publish()
        if state.now >= self._queue_swept_at + SWEEP_QUEUE_S:
            if not state.queue.sweep(state.now):
                self._queue_swept_at = state.now
            self.registry.rebalance()
        self.takeover.ask()
        self.ledger.sweep()
        self.ledger.resend()
        self.ledger.ask_again()
        self.cycle.finish()
        self.registry.push_views()
        self.requeuer.step()
        self._again = False
        for _ in range(STARTS_PER_TURN):
            if not self.cycle.start():
                self._again = self.cycle.cut_short
                break
            if not self.cycle.finish():
                break
        if state.paused is None:
            self.preemptor.step()
        self.evaluation.step()
        self.reporter.step()
        self._set_timer()

    def _set_timer(self) -> None:
        """One timer, at the earliest thing that happens by itself."""
        times = [
            self._queue_swept_at + SWEEP_QUEUE_S,
            self.state.queue.next_ready_at(),
            self.ledger.wake_at(),
            self.takeover.wake_at(),
            self.registry.wake_at(),
            self.evaluation.wake_at(),
            self.reporter.wake_at(),
        ]
        searching = self.preemptor.busy and self.state.paused is None
        if self._again or searching or self.requeuer.busy:
            times.append(self.state.now)
        if not self.state.started:
            times.append(self.takeover.grace_over_at())
        if self.cycle.current is not None:
            times.append(self.cycle.current.deadline)
        elif self.state.now < self.registry.grace_over_at() and not self.registry.somebody_owns():
            times.append(self.registry.grace_over_at())
        at = min(time for time in times if time is not None)
        if self._timer is None or at < self._timer or self._timer <= self.state.now:
            self._timer = at
            self.state.emit(SetTimer(at))

    # --- what others may look at --------------------------------------------------------------------------------

    @property
    def inherits_intents(self) -> bool:
        """Whether the shell must still watch the intents of an earlier term."""
        return self.takeover.inherits

    def place_of(self, uid: str) -> list[str]:
        """Every place a pending pod is in; I3 says that it is exactly one."""
        places = []
        entry = self.state.queue.entries.get(uid)
        if entry is not None:
            in_plan = entry.place is Place.IN_FLIGHT and self.ledger.holds(uid)
            places.append("assumed" if in_plan else entry.place.value)
        if self.takeover.holds(uid):
            places.append("intent")
        return places
