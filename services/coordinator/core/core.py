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

from services.coordinator.agents.registry import Roster
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
from services.coordinator.core.operator_control import Steering
from services.coordinator.core.state import CoreSettings, State
from services.coordinator.core.story import tell_event, tell_instruction
from services.coordinator.core.takeover import Takeover
from services.coordinator.core.validate import validate
from services.coordinator.cycle.constraints import Guiding
from services.coordinator.cycle.cycle import Rounds
from services.coordinator.cycle.losses import Losses
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.preemption.search import Preemptor
from services.coordinator.rollout.evaluation import Rolling
from services.coordinator.rollout.variants import Lanes
from services.coordinator.status.reporter import Notices
from shared.errors import InvalidState
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
        self.roster = Roster(self.state)
        self.takeover = Takeover(self.state, kinds)
        self.notices = Notices(self.state)
        self.ledger = Ledger(self.state, self.notices)
        self.losses = Losses(self.state)
        self.guiding = Guiding(self.state)
        self.preemptor = Preemptor(self.state, self.ledger, self.notices, self.guiding)
        self.requeuer = Requeuer(self.state, self.guiding, self.preemptor)
        self.intake = Intake(
            self.state,
            self.roster,
            self.ledger,
            self.takeover,
            self.notices,
            self.losses,
            self.requeuer,
            self.preemptor,
        )
        self.lanes = Lanes(self.state)
        self.rolling = Rolling(self.state, self.lanes)
        self.rounds = Rounds(
            self.state, self.roster, self.ledger, self.notices, self.losses, self.guiding, self.preemptor,
            self.requeuer, self.lanes, self.rolling,
        )  # fmt: skip
        self.outcomes = Outcomes(
            self.state, self.ledger, self.intake, self.takeover, self.notices, self.losses, self.preemptor
        )
        self.steering = Steering(self.state, self.intake, self.rolling)
        self._timer: float | None = None
        self._queue_swept_at = 0.0
        self._again = False

    def handle(self, events: Sequence[Event], now: float) -> list[Instruction]:
        """Take in a batch of events, in order, and say what follows. ``now``: monotonic seconds."""
        state = self.state
        state.now = state.queue.story.now = now
        for event in events:
            tell_event(state, self.ledger, event)
            self._take(event)
        self.intake.settle()
        self._advance()
        self.lanes.follow()
        out, state.out = state.out, []
        for instruction in out:
            tell_instruction(state, instruction)
        if state.settings.validate and (problems := self.validate()):
            raise InvalidState(state.queue.story.told(problems))
        return out

    def _take(self, event: Event) -> None:
        match event:
            case PodUpserted():
                self.intake.upsert_pod(event.pod)
            case DecisionsReceived():
                self.rolling.heard(event.decisions)
                self.rounds.decided(event)
            case PlanAnswered():
                if (plan := self.ledger.plans.get(event.plan_id)) is not None:
                    self.rolling.answered(plan.plan.placements, event.result.results)
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
                self.roster.acked(event)
            case RequestFailed():
                self.rounds.failed(event)
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
                if self.notices.failed(event):
                    self.preemptor.unstored(event.uid)
            case ConditionWritten():
                self.notices.written(event.uid)
            case NominationStored():
                self.preemptor.stored(event.uid, event.node)
            case PointerSeen():
                self.rolling.seen(event.pointer)
            case ControlSeen():
                self.takeover.synced(Source.CONTROL)
                self.steering.seen(event)
            case NodesMeasured():
                self.lanes.measured(event.samples)
            case Synced():
                self.takeover.synced(event.source)
            case Tick():
                self._timer = None

    def _change_agents(self, event: AgentsChanged) -> None:
        self.takeover.synced(Source.AGENTS)
        before = {agent: view.record.incarnation for agent, view in self.roster.views.items()}
        joined = self.roster.change(event)
        after = {agent: view.record.incarnation for agent, view in self.roster.views.items()}
        self.rounds.leave({agent for agent, incarnation in before.items() if after.get(agent) != incarnation})
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
            self.roster.since_empty = state.now
            self.takeover.start()
            self.roster.publish()
        if state.now >= self._queue_swept_at + SWEEP_QUEUE_S:
            if not state.queue.sweep(state.now):
                self._queue_swept_at = state.now
            self.roster.rebalance()
        self.takeover.ask()
        self.ledger.sweep()
        self.ledger.resend()
        self.ledger.ask_again()
        self.rounds.finish()
        self.roster.push_views()
        self.requeuer.step()
        self._again = False
        for _ in range(STARTS_PER_TURN):
            if not self.rounds.start():
                self._again = self.rounds.cut_short
                break
            if not self.rounds.finish():
                break
        if state.paused is None:
            self.preemptor.step()
        self.rolling.step()
        self.notices.step()
        self._set_timer()

    def _set_timer(self) -> None:
        """One timer, at the earliest thing that happens by itself."""
        times = [
            self._queue_swept_at + SWEEP_QUEUE_S,
            self.state.queue.next_ready_at(),
            self.ledger.wake_at(),
            self.takeover.wake_at(),
            self.roster.wake_at(),
            self.rolling.wake_at(),
            self.notices.wake_at(),
        ]
        searching = self.preemptor.busy and self.state.paused is None
        if self._again or searching or self.requeuer.busy:
            times.append(self.state.now)
        if not self.state.started:
            times.append(self.takeover.grace_over_at())
        if self.rounds.current is not None:
            times.append(self.rounds.current.deadline)
        elif self.state.now < self.roster.grace_over_at() and not self.roster.somebody_owns():
            times.append(self.roster.grace_over_at())
        at = min(time for time in times if time is not None)
        if self._timer is None or at < self._timer or self._timer <= self.state.now:
            self._timer = at
            self.state.emit(SetTimer(at))

    # --- what others may look at --------------------------------------------------------------------------------

    def validate(self) -> list[str]:
        """Every invariant that does not hold between two turns, its name first; empty while all is well."""
        return validate(self)

    def story(self, uid: str) -> list[str]:
        """One pod's life in this term, oldest line first; as far back as the ring goes."""
        return self.state.queue.story.lines(uid)

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
