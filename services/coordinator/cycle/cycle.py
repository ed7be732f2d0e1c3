"""The scheduling cycle: take units, constrain, offer to agents, collect, assign, assume, plan; the rest has failed.

    IDLE --units waiting, agents ready--> OFFERING --all answered, or deadline--> PLACING --> IDLE (plan open)

A cycle is open while it is offering or placing; with a large gang in it, that takes more than one turn. The next is
offered on assumed state while earlier plans are still being bound. A lone pod starts a cycle at once; under load the
batch gathers while the agents and the binder are busy. Offers carry classes, not pods (ADR 0008). What no node takes
goes to the failure handler (``failures.py``), what is bound, or is not, to ``binding/``.

Several may be open, up to ``open_cycles``, of which each asks agents of its own, and all ask each class of one agent
alone (ADR 0045). A unit that must be asked of all waits for all of them to end, and so does who comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from services.coordinator.agents.registry import AgentRegistry
from services.coordinator.agents.views import AgentView
from services.coordinator.binding.plans import Ledger
from services.coordinator.core.events import DecisionsReceived, RequestFailed
from services.coordinator.core.instructions import SendOffer
from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.asking import Asking
from services.coordinator.cycle.candidates import asked_here
from services.coordinator.cycle.classes import AgentAnswers, KnownClass, OfferedClass
from services.coordinator.cycle.dispatch import Dispatch, Dispatcher
from services.coordinator.cycle.failures import FailureHandler
from services.coordinator.cycle.placing import OpenCycle, Placer
from services.coordinator.cycle.promising import Promising
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.cycle.taking import TakenUnits, Taker
from services.coordinator.groups.failures import GroupFailures
from services.coordinator.rollout.sampling import Sampling
from services.coordinator.rollout.variants import Variants, judged_by
from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.policy.observation import Need
from shared.scheduling.cycle.feasibility import unavailable_message
from shared.scheduling.places import Place
from shared.scheduling.reasons import SCHEDULER_ERROR, UNSCHEDULABLE
from shared.wire.messages import VERSION, ClassDefinition, Offer, UnitGroup

USUAL_WEIGHT = 0.2
"""Weight of the last cycle in the moving mean of what a cycle takes."""

PATIENCE = 5.0
"""A cycle waits for so many times its usual time before it calls an agent silent: on a machine where every cycle takes
150 ms, a deadline of 300 ms would suspect everybody in turn."""

SLOT_S = 0.0005
"""And so much longer for each slot that an agent is asked for: one names thousands of a large gang's in a second."""


class UnplacedParts(Struct, frozen=True):
    """What units go to that a cycle did not place: lone pods, pod groups, and what they were woken for."""

    failures: FailureHandler
    group_failures: GroupFailures
    requeuer: Requeuer


class Cycle:
    """Begins cycles, hears the agents, ends cycles. ``open``: those whose offers are out, oldest first; ``most``: how
    many might be when the newest began."""

    def __init__(
        self,
        state: CoordinatorState,
        registry: AgentRegistry,
        variants: Variants,
        sampling: Sampling,
        ledger: Ledger,
        parts: UnplacedParts,
    ) -> None:
        self._state = state
        self._registry = registry
        self._variants = variants
        self._sampling = sampling
        self._failures = parts.failures
        self._ledger = ledger
        self._requeuer = parts.requeuer
        self._taker = Taker(state, variants, parts.failures, parts.group_failures)
        self.seats = self._taker.reserved
        self._dispatcher = Dispatcher(state)
        self._promising = Promising(state, registry, variants)
        self._placer = Placer(state, registry, parts.failures, parts.group_failures, parts.requeuer)
        self._usual_s = 0.0
        self.open: list[OpenCycle] = []
        self.most = 1
        self._held_up = False
        """The next unit in order must be asked of all."""
        self.cut_short = False
        """The turn's work was used up by units that no node takes: there is more to do at once."""

    @property
    def examined(self) -> Sequence[Pod]:
        """Members of the group that was taken, and is not judged yet."""
        return self._taker.examination.pods if self._taker.examination is not None else ()

    @property
    def _policy(self) -> str:
        """The name of the one that decides."""
        return self._variants.name_of()

    @property
    def has_room(self) -> bool:
        """Whether one more may be open."""
        return not self.open or len(self.open) < self._state.settings.open_cycles

    def give_up(self) -> None:
        """No cycle is to begin for now."""
        self._taker.give_up()

    # --- take and offer -------------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Begin a cycle, if no agent that is asked is busy and the binder has room for a plan. Where there are no nodes
        or no agents, all active units are parked."""
        state, failures = self._state, self._failures
        self.cut_short = False
        if not state.cache.table.row_of:
            self.cut_short = failures.park_all(UNSCHEDULABLE, unavailable_message(0, {}))
            return False
        agents, idle, missing = self._registry.askable({agent for one in self.open for agent in one.asked})
        if not idle or (len(idle) < len(agents) and not self.open):
            if why := self._registry.nobody():
                self.cut_short = failures.park_all(SCHEDULER_ERROR, why)
            return False
        # Before anything is taken: what is popped is in flight, and would have to be given back (I3).
        if (self.open and not (len(agents) > 1 and self._overlaps())) or not self._ledger.has_room():
            return False
        if self.open:
            taken = self._taker.take(sole=self._alone(agents, idle))
        else:
            taken = self._taker.take(apart=self._apart(agents, idle))
        state.work -= taken.work
        self.cut_short = taken.cut_short
        self._held_up = taken.held_up
        if taken.seated:
            for placement, pod in taken.seated:
                self._requeuer.attempt_ended(pod.uid, placement.node)
            self._ledger.open(taken.seated, 0, gangs=taken.seated_gangs)
        if not taken.classes:
            return False
        if self._variants.pointer is not None:
            self._sampling.ask(taken.classes, taken.class_of, self._taker.classes, self._taker.number)
        self._offer(agents, idle, missing, taken)
        return True

    def _overlaps(self) -> bool:
        """Whether one may begin beside those that are open."""
        state = self._state
        if not self.has_room or self._held_up or self._taker.examination is not None:
            return False
        if self._variants.pointer is not None or not all(one.sole for one in self.open):
            return False
        more = state.queue.count()[Place.ACTIVE] > state.settings.batch_units
        return self._dispatcher.strategy(more=more) is not Dispatch.BROADCAST

    def _alone(self, agents: list[AgentView], idle: list[AgentView]) -> Callable[[PodClass], bool]:
        """Whether one of the idle agents may decide alone about a class."""
        return lambda pod_class: bool(self._dispatcher.able(pod_class, agents, idle).any())

    def _apart(self, agents: list[AgentView], idle: list[AgentView]) -> Callable[[KnownClass, PodClass], bool] | None:
        """Whether a class must have a cycle of its own, since several agents are asked about it and none knows what
        units of others are given there. None: none must, as one agent knows all, or nodes can be scored anew here."""
        variants, dispatcher = self._variants, self._dispatcher
        here = asked_here(self._policy, self._state.settings.profile.scores)
        if len(idle) < 2 or variants.has_candidate or here is not None:
            return None
        if dispatcher.strategy(more=True) is Dispatch.BROADCAST:
            return lambda known, pod_class: True  # noqa: ARG005
        return lambda known, pod_class: known.for_all or not dispatcher.able(pod_class, agents, idle).any()

    def _offer(self, agents: list[AgentView], idle: list[AgentView], missing: int, taken: TakenUnits) -> None:
        """Ask the idle ones of the agents that own nodes, or the most promising, for their best slots per class."""
        state, settings, classes = self._state, self._state.settings, taken.classes
        cluster = self._variants.cluster() if Need.CLUSTER_MEANS in self._variants.needs else []
        for offered in classes.values():  # before anybody is told: all agents go by the same
            if offered.workload and offered.units:
                highest = max(unit.pod.priority for unit in offered.units)
                offered.priority = self._variants.inventory.rank(offered.workload, offered.pod_class, highest)
        if not taken.together and not self._variants.has_candidate:
            # beside others there were more when it began to take, and what is in those counts as well; several classes
            # compete, and one agent alone knows what of its nodes the others are given
            more = bool(self.open) or state.queue.has_active() or len(classes) > 1
            self._dispatcher.deal(classes, agents, idle, more=more, policy=self._policy)
        compared = [number for number in self._sampling.compared if number in classes]
        together = bool(taken.together)
        if Need.DEMAND in self._variants.needs:
            for offered in classes.values():
                if not offered.shadow:
                    self._variants.demand.offered(offered.pod_class, len(offered.units))
        chosen = self._promising.among(classes, idle, together=together)
        share = len(agents) if len(chosen) == len(idle) else len(chosen)
        policies = self._policy, self._variants.name_of(candidate=True)
        asking = Asking(state, classes, share, chosen, compared, together=together, policies=policies)
        first_offer = state.messages + 1
        asked: dict[str, int] = {}
        for place, view in enumerate(chosen):
            if wire_groups := asking.groups(place):
                asked[view.record.id] = self._send(view, classes, wire_groups, cluster, asking.extra)
        # the setting, or longer where cycles usually take long (a loaded machine)
        longest_s = max(settings.offer_deadline_s, settings.request_timeout_s / 2)
        patience_s = min(max(settings.offer_deadline_s, PATIENCE * self._usual_s), longest_s)
        patience_s += SLOT_S * sum(offered.asked for offered in classes.values())
        current = OpenCycle(
            classes, taken.class_of, taken.order, taken.together, asked, missing, state.now, state.now + patience_s,
            first_offer, self._variants.title, frozenset(asked), state.cache.table.clock,
        )  # fmt: skip
        self.open.append(current)
        self.most = settings.open_cycles
        state.stats.rounds += 1
        state.stats.units_offered += len(taken.class_of)

    def _send(
        self, view: AgentView, classes: dict[int, OfferedClass], wire_groups: list[UnitGroup], cluster: list[float],
        extra: int,
    ) -> int:  # fmt: skip
        """The request's number."""
        state, variants = self._state, self._variants
        piece = view.piece(state.cache.table, self._registry.ownership.owner)
        forget = len(view.classes) + len(classes) > state.settings.classes_per_agent
        if forget:
            view.classes.clear()
        used = [one.class_id for one in wire_groups]
        fresh = [classes[class_id] for class_id in used if class_id not in view.classes]
        residents, inventory = None, variants.inventory
        if Need.WORKLOADS in variants.needs:
            residents = inventory.tell(view, [(classes[number].workload, classes[number].pod_class) for number in used])
        unknown = [
            ClassDefinition(g.known.id, g.pod_class, g.candidate, inventory.id_of(g.workload) if g.workload else 0)
            for g in fresh
        ]
        view.classes.update(used)
        request = self._registry.asked(view, is_offer=True)
        demand = variants.demand.news(view) if Need.DEMAND in variants.needs else None
        samples = variants.samples_for(view.record.id, view.epoch, view.slots)
        offer = Offer(
            VERSION, request, 0, state.term, view.epoch, piece, wire_groups, unknown, forget,
            extra, cluster, variants.number, samples, residents, demand,
        )  # fmt: skip
        state.out.append(SendOffer(view.record.id, view.record.url, offer))
        return request

    # --- collect --------------------------------------------------------------------------------------------------

    def decided(self, event: DecisionsReceived) -> None:
        """An agent answered. Late answers count for the agent's health only."""
        decisions, stats = event.decisions, self._state.stats
        known = self._registry.answered(event.agent, event.request, decisions.revision)
        # By request, not by agent: it may be asked in another cycle by now, about other units (ADR 0045).
        current = next((one for one in self.open if one.waiting.get(event.agent) == event.request), None)
        if known is None or current is None:
            return
        view, in_step = known
        del current.waiting[event.agent]
        # Its slots may mean other nodes by now: what it says of them is about none that is known here.
        if not in_step:
            current.missing += 1
            return
        current.answered[event.agent] = view.epoch, view.moves
        stats.answers += len(decisions.answers)
        stats.refusals += len(decisions.refusals)
        stats.refused_nodes += sum(refusal.nodes for refusal in decisions.refusals)
        by_class: dict[int, AgentAnswers] = {}
        for answer in decisions.answers:
            class_id = current.class_of.get(answer.unit)
            if class_id is None:
                continue
            answers = by_class.get(class_id)
            if answers is None:
                offered = current.classes[class_id]
                otherwise = current.policy or f"{self._state.policy}@{answer.policy_version}"
                by = offered.known.own
                policy, variant = judged_by(
                    decisions, class_id, candidate=offered.candidate, otherwise=otherwise, own=by
                )
                answers = by_class[class_id] = AgentAnswers(policy=policy, variant=variant, agent=event.agent)
                offered.lists.append(answers)
            answers.answers.append(answer)
            answers.names.append(view.slots.get(answer.slot, ""))
        for class_id, answers in by_class.items():
            offered = current.classes[class_id]
            wanted = offered.asked + offered.extra
            answers.cut = offered.asked < len(offered.units) and len(answers.answers) >= wanted
        for class_id in decisions.unknown_classes:
            view.classes.discard(class_id)
            if class_id in current.classes:
                current.classes[class_id].unknown = True

    def failed(self, event: RequestFailed) -> None:
        """An agent gave no usable answer."""
        if self._registry.failed(event) is not None:
            self.leave({event.agent})

    def leave(self, agents: set[str]) -> None:
        """Agents that failed, or are registered no more (or anew), cannot answer."""
        for current in self.open:
            for agent in current.waiting.keys() & agents:
                del current.waiting[agent]
                current.missing += 1

    # --- assign, assume, plan -------------------------------------------------------------------------------------

    def finish(self) -> bool:
        """Go on with each cycle if all answered, or without the silent ones at its deadline. True: one is over."""
        state, left, ended = self._state, self._state.settings.units_per_turn, False
        for current in list(self.open):
            if current.waiting and state.now < current.deadline:
                continue
            if current.placing is None:
                self._heard(current)
                current.placing = self._placer.place(current)
            try:
                while left > 0:
                    left -= next(current.placing)
            except StopIteration as end:
                self.open.remove(current)
                self._held_up, ended = self._held_up and bool(self.open), True
                if end.value.each:
                    self._ledger.open(end.value.each, current.first_offer, gangs=end.value.gangs)
                continue
            current.deadline = state.now  # the next turn goes on, and comes at once
        return ended

    def _heard(self, current: OpenCycle) -> None:
        """Nobody is waited for any more."""
        state = self._state
        took_s = state.now - current.started_at
        state.stats.rounds_s.append(took_s)
        self._usual_s += USUAL_WEIGHT * (took_s - self._usual_s)
        # Before rejected answers are left out, below: that a node was refused is to be remembered as well.
        self._promising.heard(current)
        if current.waiting:
            state.stats.rounds_cut += 1
            current.missing += len(current.waiting)
            # Sorted: what follows must not hang on the order in which agents were asked (I11).
            for agent in sorted(current.waiting):
                self._registry.suspect(self._registry.views[agent], "silent")
            current.waiting.clear()
        if self._variants.pointer is not None:
            self._sampling.take(current.classes)
        for offered in current.classes.values():
            if offered.few:
                offered.keep_accepted()
