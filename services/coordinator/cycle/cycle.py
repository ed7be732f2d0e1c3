"""The scheduling cycle: take units, constrain, offer to agents, collect, assign, assume, plan; the rest has failed.

    IDLE --units waiting, agents ready--> OFFERING --all answered, or deadline--> IDLE (plan open, rest given back)

At most one cycle is offering. The next is offered on assumed state while earlier plans are still being bound. A lone
pod starts a cycle at once; under load the batch gathers while the agents and the binder are busy. Offers carry classes,
not pods (ADR 0008). What no node takes goes to the failure handler (``failures.py``), what is bound, or is not, to
``binding/``.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.coordinator.agents.registry import AgentRegistry
from services.coordinator.agents.views import AgentView, Request
from services.coordinator.binding.plans import Ledger
from services.coordinator.core.events import DecisionsReceived, RequestFailed
from services.coordinator.core.instructions import SendOffer
from services.coordinator.core.state import State
from services.coordinator.cycle.classes import AgentAnswers, Group
from services.coordinator.cycle.failures import FailureHandler
from services.coordinator.cycle.placing import OpenCycle, Placer
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.cycle.taking import Taken, Taker
from services.coordinator.groups.failures import GroupFailures
from services.coordinator.rollout.variants import Variants, judged_by
from services.coordinator.status.reporter import SCHEDULER_ERROR, UNSCHEDULABLE
from shared.policy.observation import Need
from shared.scheduling.cycle.feasibility import unavailable_message
from shared.scheduling.cycle.scoring import norms_of
from shared.scheduling.state.slot_sets import guidance_of
from shared.wire.messages import VERSION, ClassDefinition, Offer, UnitGroup

USUAL_WEIGHT = 0.2
"""Weight of the last cycle in the moving mean of what a cycle takes."""

PATIENCE = 5.0
"""A cycle waits for so many times its usual time before it calls an agent silent: on a machine where every cycle takes
150 ms, a deadline of 300 ms would suspect everybody in turn."""

DISTINCT_SHARE, DISTINCT_SLACK, MOST_DISTINCT = 2, 16, 1024
"""How many different nodes each agent is asked for: so many times the units, and some more, since the best nodes may
all lie in one domain that is full after the first unit."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What units go to that a cycle did not place: lone pods, pod groups, and what they were roused for."""

    failures: FailureHandler
    together: GroupFailures
    requeuer: Requeuer


class Cycle:
    """Begins cycles, hears the agents, ends cycles. ``current``: the one that is offering."""

    def __init__(self, state: State, registry: AgentRegistry, variants: Variants, ledger: Ledger, parts: Parts) -> None:
        self._state = state
        self._registry = registry
        self._variants = variants
        self._failures = parts.failures
        self._ledger = ledger
        self._taker = Taker(state, variants, parts.failures, parts.together)
        self._placer = Placer(state, registry, parts.failures, parts.together, parts.requeuer)
        self._usual_s = 0.0
        self.current: OpenCycle | None = None
        self.cut_short = False
        """The turn's work was used up by units that no node takes: there is more to do at once."""

    # --- take and offer -------------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Begin a cycle if units are active, scheduling is not paused, no agent that is asked is busy and the binder
        has room for a plan. Where there are no nodes or no agents, all units are parked."""
        state, failures = self._state, self._failures
        self.cut_short = False
        state.queue.flush(state.now)
        if self.current is not None or state.paused is not None or not state.queue.has_active():
            return False
        if not state.cache.table.row_of:
            failures.park_all(UNSCHEDULABLE, unavailable_message(0, {}))
            return False
        agents, missing = self._registry.askable()
        if not agents:
            if why := self._registry.nobody():
                failures.park_all(SCHEDULER_ERROR, why)
            return False
        if not self._ledger.has_room():
            return False
        taken = self._taker.take()
        self.cut_short = taken.cut_short
        if not taken.groups:
            return False
        if self._variants.pointer is not None:
            self._variants.shadow(taken.groups, taken.class_of, self._taker.classes, self._taker.number())
        self._offer(agents, missing, taken)
        return True

    def _offer(self, agents: list[AgentView], missing: int, taken: Taken) -> None:
        """Ask every agent that owns nodes for its best slots per class."""
        state, settings, groups = self._state, self._state.settings, taken.groups
        plain, guided = [], []
        for class_id, group in groups.items():
            units = len(group.units)
            group.asked = min(units, group.known.share * units // len(agents) + 1)
            if group.guidance is None:
                numbers = [unit.number for unit in group.units[: group.asked]]
                plain.append(UnitGroup(class_id, numbers, norms_of(state.feasibility, group.pod_class)))
            else:
                guided.append(class_id)
        first_offer = state.messages + 1
        cluster = self._variants.cluster() if Need.CLUSTER_MEANS in self._variants.needs else []
        asked = set()
        for view in agents:
            wire_groups = plain + self._guided(view, groups, guided) if guided else plain
            if wire_groups:
                self._send(view, groups, wire_groups, cluster)
                asked.add(view.record.id)
        # the setting, or longer where cycles usually take long (a loaded machine)
        longest_s = max(settings.offer_deadline_s, settings.request_timeout_s / 2)
        patience_s = min(max(settings.offer_deadline_s, PATIENCE * self._usual_s), longest_s)
        self.current = OpenCycle(
            groups, taken.class_of, taken.order, taken.together, asked, missing, state.now, state.now + patience_s,
            first_offer, self._variants.title,
        )  # fmt: skip
        state.stats.rounds += 1
        state.stats.units_offered += len(taken.class_of)

    def _guided(self, view: AgentView, groups: dict[int, Group], guided: list[int]) -> list[UnitGroup]:
        """What one agent is asked about units that its own nodes alone do not decide about."""
        owned, found = view.owned_slots(), []
        for class_id in guided:
            group = groups[class_id]
            assert group.guidance is not None
            wanted = DISTINCT_SHARE * len(group.units) + DISTINCT_SLACK + self._state.settings.extra_candidates
            guidance = group.guidance
            told = guidance_of(owned, guidance.mask, guidance.scores, min(MOST_DISTINCT, wanted))
            if told is not None:
                found.append(UnitGroup(class_id, [group.units[0].number], guidance.norms, told))
        return found

    def _send(
        self, view: AgentView, groups: dict[int, Group], wire_groups: list[UnitGroup], cluster: list[float]
    ) -> None:
        state, variants = self._state, self._variants
        piece = view.piece(state.cache.table, self._registry.ownership.owner)
        forget = len(view.classes) + len(groups) > state.settings.classes_per_agent
        if forget:
            view.classes.clear()
        used = [group.class_id for group in wire_groups]
        fresh = [groups[class_id] for class_id in used if class_id not in view.classes]
        residents, inventory = None, variants.inventory
        if Need.WORKLOADS in variants.needs:
            residents = inventory.tell(view, [(group.workload, group.pod_class) for group in fresh])
        unknown = [
            ClassDefinition(g.known.id, g.pod_class, g.candidate, inventory.id_of(g.workload) if g.workload else 0)
            for g in fresh
        ]
        view.classes.update(used)
        state.messages += 1
        view.request = Request(state.messages, state.now, is_offer=True)
        samples = variants.samples_for(view.record.id, view.epoch, view.slots) if variants.used else []
        offer = Offer(
            VERSION, view.request.id, 0, state.term, view.epoch, piece, wire_groups, unknown, forget,
            state.settings.extra_candidates, cluster, variants.number, samples, residents,
        )  # fmt: skip
        state.out.append(SendOffer(view.record.id, view.record.url, offer))

    # --- collect --------------------------------------------------------------------------------------------------

    def decided(self, event: DecisionsReceived) -> None:
        """An agent answered. Late answers count for the agent's health only."""
        decisions, current, stats = event.decisions, self.current, self._state.stats
        known = self._registry.answered(event.agent, event.request, decisions.revision)
        if known is None or current is None or event.agent not in current.waiting:
            return
        view, in_step = known
        current.waiting.discard(event.agent)
        if not in_step:
            current.missing += 1
            return
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
                group = current.groups[class_id]
                otherwise = current.policy or f"{self._state.policy}@{answer.policy_version}"
                policy, variant = judged_by(decisions, class_id, candidate=group.candidate, otherwise=otherwise)
                answers = by_class[class_id] = AgentAnswers(policy=policy, variant=variant, agent=event.agent)
                group.lists.append(answers)
            answers.answers.append(answer)
            answers.names.append(view.slots.get(answer.slot, ""))
        for class_id, answers in by_class.items():
            group = current.groups[class_id]
            wanted = group.asked + self._state.settings.extra_candidates
            answers.cut = group.asked < len(group.units) and len(answers.answers) >= wanted
        for class_id in decisions.unknown_classes:
            view.classes.discard(class_id)
            if class_id in current.groups:
                current.groups[class_id].unknown = True

    def failed(self, event: RequestFailed) -> None:
        """An agent gave no usable answer."""
        if self._registry.failed(event) is not None:
            self.leave({event.agent})

    def leave(self, agents: set[str]) -> None:
        """Agents that failed, or are registered no more (or anew), cannot answer."""
        if self.current is not None and (gone := self.current.waiting & agents):
            self.current.waiting -= gone
            self.current.missing += len(gone)

    # --- assign, assume, plan -------------------------------------------------------------------------------------

    def finish(self) -> bool:
        """End the cycle if all answered, or without the silent ones at its deadline."""
        current, state = self.current, self._state
        if current is None or (current.waiting and state.now < current.deadline):
            return False
        self.current = None
        took_s = state.now - current.started_at
        state.stats.rounds_s.append(took_s)
        self._usual_s += USUAL_WEIGHT * (took_s - self._usual_s)
        if current.waiting:
            state.stats.rounds_cut += 1
            current.missing += len(current.waiting)
            for agent in sorted(current.waiting):
                self._registry.suspect(self._registry.views[agent], "silent")
        if self._variants.pointer is not None:
            self._variants.compare(current.groups)
        placements, gangs = self._placer.place(current)
        if placements:
            self._ledger.open(placements, current.first_offer, gangs=gangs)
        return True
