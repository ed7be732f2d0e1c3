"""The coordinator as a pure machine: events in, instructions out. One ``Core`` is one term of leadership.

    watch -> PodIntake -> queue -> Cycle (offer, assign, assume) -> Ledger (plan) -> Outcomes -> watch confirms
                    ^                |                                 |
                    |                +--> FailureHandler <-------------+
                    +---- Takeover: lists first, inherited intents

Invariants kept here (reliability.md 3): I2 nothing assumed above allocatable · I3 every pending pod of ours is in
exactly one of active, backoff, unschedulable, in flight, assumed, intent · I9 an event delivered twice changes
nothing · I11 same seed and events, same instructions. There is no await, no clock and no global randomness below this
line; ``shell.py`` carries the instructions out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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
    NodeHeld,
    NodesMeasured,
    NominationStored,
    PlanAnswered,
    PlanFailed,
    PodFetched,
    PointerSeen,
    PolicyRead,
    QueueHistoryRead,
    RequestFailed,
    ShardsSeen,
    ViewAcked,
)
from services.coordinator.core.instructions import Instruction, SetTimer
from services.coordinator.core.intake import CLAIMS, DEVICE_CLASSES, NAMESPACES, ClusterIntake, PodIntake
from services.coordinator.core.operator_control import OperatorControl
from services.coordinator.core.state import WORK_PER_TURN, CoordinatorState, CoreSettings
from services.coordinator.core.story import TELL_EVENT, TELL_INSTRUCTION
from services.coordinator.core.takeover import RESERVATIONS, Takeover
from services.coordinator.core.validate import validate
from services.coordinator.cycle.cycle import Cycle, UnplacedParts
from services.coordinator.cycle.failures import FailureHandler
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.cycle.unblocking import leave_idle, look_again
from services.coordinator.groups.breaking import Breaker
from services.coordinator.groups.failures import GroupFailures
from services.coordinator.groups.keeper import GroupKeeper
from services.coordinator.preemption.giving_way import GivingWay
from services.coordinator.preemption.groups import GroupPreemptor
from services.coordinator.preemption.nominations import Nominations
from services.coordinator.preemption.protected import Protected
from services.coordinator.preemption.search import Preemptor
from services.coordinator.queues.keeper import QueueKeeper
from services.coordinator.queues.reclaiming import Reclaimer
from services.coordinator.queues.status import QueueReporter
from services.coordinator.rollout.evaluation import RolloutEvaluation
from services.coordinator.rollout.sampling import Sampling
from services.coordinator.rollout.variants import LatencyChanges, Variants
from services.coordinator.status.groups import GroupReporter
from services.coordinator.status.reporter import StatusReporter
from shared.errors import InvalidState
from shared.model.cluster_events import Listed, NodeDeleted, NodeUpserted, ObjectChanged, PodDeleted, PodUpserted
from shared.model.cluster_objects import EndingNamespace
from shared.model.units.pod_group import GroupSource, group_key
from shared.model.units.queue import Queue
from shared.policy.observation import Need
from shared.scheduling.places import ClusterEvent, Place
from shared.scheduling.queue import SWEPT_AT_ONCE
from shared.scheduling.shards import Shards
from shared.turns import Stop, Tick

SWEEP_QUEUE_S = 30.0

QUEUES, POD_GROUPS = "queues", "podgroups"

EVENTS_PER_TURN = 500
"""Events that the shell hands over at once: more (a first list, a watch that was cut) take several turns."""

EVENTS_PER_WORK, LEAST_WORK = 2, 60
"""Events that are taken in in one unit of the turn's work; and what is left to the steps however many there were."""

STARTS_PER_TURN = 4
"""Cycles in which no agent needs to be asked (no node takes any unit) before the loop turns."""


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
        shards: Shards | None = None,
        kinds: Collection[str] = (),
        epoch: float | None = None,
    ) -> None:
        """``epoch``: seconds since 1970 at which the clock that ``handle`` is told stood at 0."""
        self.state = CoordinatorState(term, scheduler_name, policy, settings or CoreSettings(), rng, shards or Shards())
        state = self.state
        state.epoch = epoch
        self.registry = AgentRegistry(state)
        self.takeover = Takeover(state, kinds)
        self.reporter = StatusReporter(state)
        self.ledger = Ledger(state, self.reporter)
        self.nominations = Nominations(state, self.ledger, self.reporter)
        self.giving_way = GivingWay(state, self.ledger, self.nominations)
        self.protected = Protected(state)
        self.preemptor = Preemptor(state, self.nominations, self.reporter, self.protected)
        group_reporter = GroupReporter(state, self.reporter)
        self.group_preemptor = GroupPreemptor(state, self.nominations, group_reporter, self.protected)
        self.requeuer = Requeuer(state, self.preemptor, self.group_preemptor)
        self.failures = FailureHandler(state, self.reporter, self.preemptor, self.requeuer)
        self.pods = PodIntake(
            state, self.ledger, self.takeover, self.failures, self.preemptor, self.requeuer, self.giving_way
        )
        self.variants = Variants(state)
        self.intake = ClusterIntake(
            state,
            self.registry,
            self.requeuer,
            self.nominations.holds,
            self.giving_way,
            self.variants.forget_readings,
            self.variants.node_joined,
        )
        self.sampling = Sampling(state, self.variants)
        self.evaluation = RolloutEvaluation(state, self.variants, self.sampling, self.registry.views)
        self.groups = GroupKeeper(state, group_reporter, Breaker(state, self.ledger), self.group_preemptor)
        self.group_failures = GroupFailures(
            state, self.failures.conflicts, group_reporter, self.requeuer, self.group_preemptor
        )
        reclaimer = Reclaimer(state, self.ledger, self.nominations)
        self.queues = QueueKeeper(state, self.reporter, group_reporter, QueueReporter(state), reclaimer)
        parts = UnplacedParts(self.failures, self.group_failures, self.requeuer)
        self.cycle = Cycle(state, self.registry, self.variants, self.sampling, self.ledger, parts)
        self.outcomes = Outcomes(
            state, self.ledger, self.pods, self.takeover, self.failures, self.nominations, self.giving_way
        )
        self.control = OperatorControl(state, self.intake, self.evaluation)
        self._timer: float | None = None
        self._again = False

    def learn(self, events: Sequence[Event], now: float) -> None:
        """Take in what the API server shows while another leads, of which nothing follows, or until this one, elected,
        follows: what follows is then the next ``handle``'s."""
        state = self.state
        state.now = state.queue.story.now = now
        state.zones.now = now
        if state.zones.wake_at <= now:
            self.intake.pass_time()
        for event in events:
            self._take(event)
        if self.intake.new_nodes or state.cluster.given_up:
            self.intake.settle()
        if not state.term:
            state.groups.take_touched()  # whoever leads looks at all of them
            state.to_leave.clear()
            state.out.clear()

    def lead(self, term: int, epoch: float) -> None:
        """The term that begins, of a core that has learned."""
        self.state.term, self.state.epoch = term, epoch
        self.sampling.begin(term)
        self.state.groups.touch_all()

    def handle(self, events: Sequence[Event], now: float) -> list[Instruction]:
        """Take in a batch of events, in order, and say what follows. ``now``: monotonic seconds."""
        state = self.state
        state.now = state.queue.story.now = now
        state.devices.wall = now + (state.epoch or 0.0)
        state.zones.now = now
        if state.zones.wake_at <= now:
            self.intake.pass_time()
        for event in events:
            if (tell_event := TELL_EVENT.get(type(event))) is not None:
                tell_event(state, self.ledger, event)
            self._take(event)
        if self.intake.new_nodes or state.cluster.given_up:
            self.intake.settle()
        sees_gpus = Need.GPU_SHARES in self.variants.needs
        state.devices.count_free(state.settings.profile.gpu_shares if sees_gpus else None)
        if state.started or self._start():
            self._advance(max(LEAST_WORK, WORK_PER_TURN - len(events) // EVENTS_PER_WORK))
        self.intake.devices_freed()
        if state.zones.news:
            self.intake.tell_zones()
        self._set_timer()
        self.variants.follow_requests()
        if Need.WORKLOADS in self.variants.needs:
            self.variants.inventory.follow()
        out, state.out = state.out, []
        for instruction in out:
            if (tell_instruction := TELL_INSTRUCTION.get(type(instruction))) is not None:
                tell_instruction(state, instruction)
        if state.settings.validate and (problems := self.validate()):
            raise InvalidState(state.queue.story.told(problems))
        return out

    def _take(self, event: Event) -> None:
        match event:
            case PodUpserted():
                self.pods.seen(event.pod)
                if event.pod.pod_class.latency_hard_us and event.pod.node_name:
                    self.variants.limits.placed(event.pod)
            case DecisionsReceived():
                if self.variants.pointer is not None:
                    self.evaluation.heard(event.agent, event.decisions)
                self.cycle.decided(event)
            case PlanAnswered():
                plan = self.ledger.plans.get(event.plan_id)
                if plan is not None and not plan.lends_to:  # what a loan is for is counted where it is placed
                    self.evaluation.answered(plan.plan, event.result, plan.waited_s())
                self.outcomes.answered(event)
            case PodDeleted():
                self.pods.delete(event.uid)
            case NodeUpserted():
                self.intake.upsert_node(event.node, event.images)
            case ObjectChanged():
                self.intake.change_object(event.kind, event.key, event.item)
                if event.kind == QUEUES and (event.item is None or isinstance(event.item, Queue)):
                    self.queues.change(event.key, event.item)
                elif event.kind == NAMESPACES:
                    self.pods.namespace_changed(event.key, ends=isinstance(event.item, EndingNamespace))
                elif event.kind == CLAIMS:
                    self.pods.claim_changed(event.key)
                elif event.kind == DEVICE_CLASSES:
                    self.pods.classes_changed()
                elif event.kind == POD_GROUPS:
                    self.pods.try_awaiting(group_key(GroupSource.NATIVE, *event.key.split("/", 1)))
            case Listed():
                if event.kind == RESERVATIONS:
                    self.takeover.reservations_listed(served=event.served, refused=event.refused)
                else:
                    self.takeover.listed(event.kind)
                if event.kind == CLAIMS and not event.served:
                    self.pods.claims_unserved()
            case NodeDeleted():
                self.intake.delete_node(event.name)
            case ViewAcked():
                self.registry.answered(event.agent, event.request, event.ack.revision)
            case RequestFailed():
                self.cycle.failed(event)
            case AgentsChanged():
                self._change_agents(event)
            case BinderChanged():
                self.ledger.change_binder(event)
                self.giving_way.binder_changed()
            case ShardsSeen():
                if event.revision != self.state.shards.revision:
                    self.state.out.append(Stop("the nodes are divided into other shards: all is listed again"))
            case PlanFailed():
                self.outcomes.failed(event)
            case IntentsListed():
                if "intents" in self.takeover.missing:  # else it is told again
                    self.nominations.records.inherit(dict(event.nominations))
                self.takeover.list_intents(event.intents)
            case IntentGone():
                self.takeover.gone(event.key)
            case PodFetched():
                self.outcomes.fetched(event)
            case ConditionFailed():
                self.reporter.failed(event)
            case ConditionWritten():
                self.reporter.written(event.uid)
            case NodeHeld():
                self.nominations.node_held(event.node, hold=event.hold, ok=event.ok, gone=event.gone)
            case NominationStored():
                self.nominations.stored(event.uid, event.number)
            case PolicyRead():
                self.variants.ranked_here.read(event.ref, event.policy)
            case PointerSeen():
                self.evaluation.seen(event.pointer)
            case ControlSeen():
                self.takeover.listed("control")
                self.control.seen(event)
            case QueueHistoryRead():
                self.queues.past.read(event.record, event.time, self.state.now)
            case NodesMeasured():
                self._latencies_changed(self.variants.measured(event.samples))
            case Tick():
                self._timer = None

    def _latencies_changed(self, changes: LatencyChanges) -> None:
        for node, before in changes.items():
            self.requeuer.latency_changed(node, before)

    def _change_agents(self, event: AgentsChanged) -> None:
        self.takeover.listed("agents")
        before = {agent: view.record.incarnation for agent, view in self.registry.views.items()}
        joined = self.registry.change(event)
        after = {agent: view.record.incarnation for agent, view in self.registry.views.items()}
        self.cycle.leave({agent for agent, incarnation in before.items() if after.get(agent) != incarnation})
        if joined:
            self.requeuer.agents_joined()

    def _start(self) -> bool:
        """Begin once all lists are there."""
        state = self.state
        if self.takeover.ready():
            state.started, state.started_at = True, state.now
            self.failures.begin()
            self.intake.begin()
            self.registry.since_empty = state.now
            self.takeover.start(self.pods.upsert, self.nominations.as_nominated)
            waiting = state.queue.entries.keys() | state.gated.keys() | state.untried.keys() | self.takeover.held.keys()
            self.nominations.records.keep_only(waiting)
            self.registry.publish()
        return state.started

    def _advance(self, work: int) -> None:
        """Step what is due. ``work``: what the steps may do together."""
        state, agenda, now = self.state, self.state.agenda, self.state.now
        groups, queue = state.groups, state.queue
        if agenda.sweep <= now:
            agenda.sweep = now + self._until_next_look(queue.sweep(now))
            self.registry.rebalance()
            self.requeuer.swept()
            look_again(state)
        if agenda.latencies <= now:
            self._latencies_changed(self.variants.expire())
        if self.takeover.held:
            self.takeover.ask()
        if agenda.results <= now:
            self.outcomes.step()
        if agenda.ledger <= now:
            self.outcomes.give_up(self.ledger.step())
        if (at := self.giving_way.wake_at()) is not None and at <= now:
            state.work = share = max(1, work // (2 + self._searching()))
            self.giving_way.step()
            work += state.work - share
        if groups.touched or groups.members:
            self.groups.step()
        if self.cycle.open and self.cycle.finish() and (groups.touched or groups.members):
            self.groups.step()
        if agenda.views <= now:
            self.registry.push_views()
        for name in self.protected.take():
            self.preemptor.forget_tries(name)
            self.requeuer.node_changed(name, ClusterEvent.POD_DELETED)
        if agenda.waking <= now:
            work = self._step(self.requeuer.step, work, 2 + self._searching())
        if queue.turns is not None or queue.labelled or state.queues.queues:
            work = self._step(self.queues.step, work, 2 + self._searching())
        if queue.order.backing_off:
            queue.flush(now)
        if (at := self.cycle.seats.wake_at()) is not None and at <= now:
            self.cycle.seats.wake()
        self.nominations.holds.step()
        self.nominations.delayed.step()
        self._again = False
        if state.paused is not None and self.cycle.examined:
            self.cycle.give_up()
        if self.cycle.has_room and state.paused is None and (queue.has_active() or self.cycle.examined):
            work = self._step(self._cycles, work, 1 + self._searching())
        if state.paused is None:
            if self.preemptor.searches:
                work = self._step(self.preemptor.step, work, self._searching())
            if self.group_preemptor.begun:
                self._step(self.group_preemptor.step, work, 1)
        if state.to_leave:
            leave_idle(state)
        self.nominations.ask()
        if agenda.evaluation <= now or self.sampling.samples:
            self.evaluation.step()
        if agenda.telling <= now:
            self.reporter.step()

    def _step(self, step: Callable[[], None], work: int, among: int) -> int:
        """Take a step that may find much to do; what is left of the work. Its share is an equal part ``among`` those
        that may come yet, and what it leaves is for them, so none starves and a turn ends in time."""
        self.state.work = share = max(1, work // among)
        step()
        return work - share + self.state.work

    def _until_next_look(self, more: bool) -> float:
        """Seconds. Pods that were parked together are woken in equal parts over one period, not in one burst: each of
        them is tried again, and the newest arrivals are tried beside them."""
        parked = self.state.queue.count()[Place.UNSCHEDULABLE]
        return SWEEP_QUEUE_S * min(1.0, SWEPT_AT_ONCE / max(1, parked)) if more else SWEEP_QUEUE_S

    def _cycles(self) -> None:
        """Begin a cycle, and the next where nobody has to be asked or several may be open."""
        groups = self.state.groups
        for _ in range(STARTS_PER_TURN):
            if not self.cycle.start():
                self._again = self.cycle.cut_short
                break
            ended = self.cycle.finish()
            if not self.cycle.has_room:
                break
            if ended and (groups.touched or groups.members):
                self.groups.step()

    def _searching(self) -> int:
        """How many of the searches for victims go on."""
        if self.state.paused is not None:
            return 0
        return bool(self.preemptor.searches) + bool(self.group_preemptor.searches)

    def _set_timer(self) -> None:
        """One timer, at the earliest thing that happens by itself."""
        state = self.state
        if state.started:
            at = min(self._due())
        elif (over := self.takeover.grace_over_at()) is not None:
            at = over
        else:
            return
        if self._timer is None or at < self._timer or self._timer <= state.now:
            self._timer = at
            state.out.append(SetTimer(at))

    def _due(self) -> list[float]:
        """When who has something to do."""
        state = self.state
        times = [state.agenda.next(), state.zones.wake_at]
        if self._again or state.groups.touched or self._searching():
            times.append(state.now)
        times.extend(current.deadline for current in self.cycle.open)
        if state.queue.order.backing_off and (at := state.queue.order.next_ready_at()) is not None:
            times.append(at)
        if self.takeover.held and (at := self.takeover.wake_at()) is not None:
            times.append(at)
        if state.groups.members and (at := self.groups.wake_at()) is not None:
            times.append(at)
        if self.group_preemptor.begun and state.paused is None and (at := self.group_preemptor.wake_at()) is not None:
            times.append(at)
        if state.queue.turns is not None and (at := self.queues.wake_at()) is not None:
            times.append(at)
        if (at := self.nominations.holds.wake_at()) is not None:
            times.append(at)
        if (at := self.nominations.delayed.wake_at()) is not None:
            times.append(at)
        if (at := self.giving_way.wake_at()) is not None:
            times.append(at)
        if (at := self.protected.wake_at()) is not None:
            times.append(at)
        if (at := self.cycle.seats.wake_at()) is not None:
            times.append(at)
        return times

    # --- what others may look at --------------------------------------------------------------------------------

    def validate(self) -> list[str]:
        """Every invariant that does not hold between two turns, its name first; empty while all is well."""
        return validate(self)

    def story(self, uid: str) -> list[str]:
        """One pod's life in this term, oldest line first; as far back as the ring goes."""
        return self.state.queue.story.lines(uid, self.state.groups.key_of.get(uid, ""))

    @property
    def inherits_intents(self) -> bool:
        """Whether the shell must still watch the intents of an earlier term."""
        return self.takeover.inherits

    def place_of(self, uid: str) -> list[str]:
        """Every place a pending pod is in; I3 says that it is exactly one."""
        places = []
        entry = self.state.queue.entries.get(uid)
        if entry is not None:
            in_plan = entry.place is Place.IN_FLIGHT and uid in self.ledger.placed
            places.append("assumed" if in_plan else entry.place.value)
        if uid in self.takeover.held:
            places.append("intent")
        return places
