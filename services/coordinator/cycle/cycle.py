"""One round: pop units, group them by class, offer them to every agent that owns nodes, merge, plan.

    IDLE --units waiting, agents ready--> OFFERING --all answered, or deadline--> IDLE (plan open, rest given back)

The next round is offered on assumed state while earlier plans are still being bound. A lone pod starts a round at
once; under load the batch gathers while the agents and the binder are busy. Offers carry classes, not pods (ADR 0008).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from services.coordinator.agents.registry import Roster
from services.coordinator.agents.views import AgentView
from services.coordinator.binding.plans import Ledger
from services.coordinator.core.events import DecisionsReceived, RequestFailed
from services.coordinator.core.instructions import SendOffer
from services.coordinator.core.state import State
from services.coordinator.cycle.classes import MAX_CLASS_BYTES, MAX_ROUND_BYTES, Classes
from services.coordinator.cycle.constraints import Guiding, deal, distinct_for
from services.coordinator.cycle.losses import Losses
from services.coordinator.cycle.merging import AgentAnswers, Choice, Unit, merge
from services.coordinator.cycle.refusals import Group, Refusals
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.inspect.decisions import PastDecision
from services.coordinator.preemption.search import Preemptor
from services.coordinator.rollout.evaluation import Rolling
from services.coordinator.rollout.variants import Lanes, judged_by, lane_of
from services.coordinator.status.reporter import Notices
from shared.model.pod import Pod
from shared.scheduling.cycle.constraints import Guidance
from shared.scheduling.cycle.scoring import norms_of
from shared.scheduling.queue import Place
from shared.scheduling.state.slot_sets import guidance_of
from shared.wire.messages import VERSION, ClassDefinition, Offer, Placement, UnitGroup

USUAL_WEIGHT = 0.2
"""Weight of the last round in the moving mean of what a round takes."""

PATIENCE = 5.0
"""A round waits for so many times its usual time before it calls an agent silent: on a machine where every round takes
150 ms, a deadline of 300 ms would suspect everybody in turn."""


WORK_PER_TURN = 160
"""Work of telling units that no node takes them, in one go: in units of some 50 us, what one of them costs."""

WORK_IN_FULL = 10
"""The same for the first of a class that no node takes, or that more than the nodes themselves decides about."""


@dataclass(slots=True)
class Round:
    """An offer that is out. ``missing``: agents that own nodes and were not asked, or did not answer."""

    groups: dict[int, Group]
    class_of: dict[int, int]
    waiting: set[str]
    missing: int
    started_at: float
    deadline: float
    cause_id: int
    policy: str
    """The active one as it was offered."""


class Rounds:
    """At most one round is offering; its successors' plans may still be open."""

    def __init__(
        self, state: State, roster: Roster, ledger: Ledger, notices: Notices, losses: Losses, guiding: Guiding,
        preemptor: Preemptor, requeuer: Requeuer, lanes: Lanes, rolling: Rolling,
    ) -> None:  # fmt: skip
        self._state = state
        self._roster = roster
        self._ledger = ledger
        self._losses = losses
        self._guiding = guiding
        self._lanes = lanes
        self._rolling = rolling
        self._requeuer = requeuer
        self._refusals = Refusals(state, roster, notices, losses, guiding, preemptor, requeuer)
        self._units = 0
        self._classes = Classes()
        self._usual_s = 0.0
        self.current: Round | None = None
        self.cut_short = False
        """The turn's work was used up by units that no node takes: there is more to do at once."""

    # --- start --------------------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Offer the next units, if there are any, everybody needed is ready and scheduling is not paused."""
        state = self._state
        self.cut_short = False
        state.queue.flush(state.now)
        if self.current is not None or state.paused is not None or not state.queue.has_active():
            return False
        if not state.cache.table.row_of:
            self._refusals.no_nodes()
            return False
        agents = self._roster.askable()
        if not agents:
            self._refusals.no_agents()
            return False
        if not self._ledger.has_room():
            return False
        groups, class_of = self._take()
        if not groups:
            return False
        self._units += 1
        self._lanes.probe(groups, class_of, self._classes, self._units)
        self._offer(agents, groups, class_of)
        return True

    def _take(self) -> tuple[dict[int, Group], dict[int, int]]:
        """Units by class, and the class of each unit. What does not fit into one offer waits for the next; units that
        no node takes are told so at once, as many as one turn has time for."""
        state, settings = self._state, self._state.settings
        size_bytes, work = 0, 0
        groups: dict[int, Group] = {}
        class_of: dict[int, int] = {}
        nowhere: dict[Hashable, bool] = {}
        while len(class_of) < settings.batch_units and state.queue.has_active():
            if work >= WORK_PER_TURN:
                self.cut_short = True
                break
            (pod,) = state.queue.pop(1, state.now)
            self._units += 1
            unit = Unit(self._units, pod, state.queue.entries[pod.uid].able_since)
            template = self._guiding.template(pod)
            judged = pod.pod_class if template is None else template
            candidate = self._lanes.takes(pod.uid)
            known = self._classes.of(pod.pod_class, self._lanes.key(pod, template, candidate=candidate))
            if known.size_bytes > MAX_CLASS_BYTES:
                work += 1
                self._refusals.too_large(pod, known.size_bytes)
                continue
            if judged not in nowhere:
                nowhere[judged] = self._guiding.fits_nowhere(pod, guided=template is not None)
                work += WORK_IN_FULL if nowhere[judged] or template is not None else 0
            if nowhere[judged]:
                work += 1
                self._refusals.park(unit, guided=template is not None)
                continue
            group = groups.get(known.id)
            if group is None:
                size_bytes += known.size_bytes
                if size_bytes > MAX_ROUND_BYTES:
                    state.queue.retry(pod.uid, state.now, failed=False)
                    break
                group = groups[known.id] = Group(pod.pod_class, known, candidate=candidate)
                group.guidance = None if template is None else self._guiding.judge(pod)
                group.workload = pod.workload if self._lanes.by_workload(candidate=candidate) else ""
            group.units.append(unit)
            class_of[unit.number] = known.id
        return groups, class_of

    def _offer(self, agents: list[AgentView], groups: dict[int, Group], class_of: dict[int, int]) -> None:
        state = self._state
        for group in groups.values():
            group.asked = group.known.slots(len(group.units), len(agents))
        plain = [
            UnitGroup(class_id, [u.number for u in g.units[: g.asked]], norms_of(state.feasibility, g.pod_class))
            for class_id, g in groups.items()
            if g.guidance is None
        ]
        guided = {class_id: g.guidance for class_id, g in groups.items() if g.guidance is not None}
        cause_id, cluster = state.messages + 1, self._lanes.cluster()
        asked = set()
        for view in agents:
            wire_groups = plain + self._guided(view, groups, guided) if guided else plain
            if wire_groups:
                self._send(view, groups, wire_groups, cluster)
                asked.add(view.record.id)
        self.current = Round(
            groups, class_of, asked, self._roster.suspects(), state.now,
            state.now + self._patience_s(), cause_id, self._lanes.title,
        )  # fmt: skip
        state.stats.rounds += 1
        state.stats.units_offered += len(class_of)

    def _patience_s(self) -> float:
        """How long a round waits: the setting, or longer where rounds usually take long (a loaded machine)."""
        settings = self._state.settings
        longest_s = max(settings.offer_deadline_s, settings.request_timeout_s / 2)
        return min(max(settings.offer_deadline_s, PATIENCE * self._usual_s), longest_s)

    def _guided(self, view: AgentView, groups: dict[int, Group], guided: dict[int, Guidance]) -> list[UnitGroup]:
        """What one agent is asked about units that its own nodes alone do not decide about."""
        owned = view.owned_slots()
        found = []
        for class_id, guidance in guided.items():
            group = groups[class_id]
            mask = guidance.mask
            distinct = distinct_for(len(group.units), self._state.settings.extra_candidates)
            told = guidance_of(owned, mask, guidance.scores, distinct)
            if told is not None:
                found.append(UnitGroup(class_id, [group.units[0].number], guidance.norms, told))
        return found

    def _send(
        self, view: AgentView, groups: dict[int, Group], wire_groups: list[UnitGroup], cluster: list[float]
    ) -> None:
        state = self._state
        piece = view.piece(state.cache.table, self._roster.ownership.owner)
        forget = len(view.classes) + len(groups) > state.settings.classes_per_agent
        if forget:
            view.classes.clear()
        used = [group.class_id for group in wire_groups]
        fresh = [groups[i] for i in used if i not in view.classes]
        residents = self._lanes.residents.tell(view, [(g.workload, g.pod_class) for g in fresh])
        unknown = [
            ClassDefinition(g.known.id, g.pod_class, g.candidate, self._lanes.residents.id_of(g.workload))
            for g in fresh
        ]
        view.classes.update(used)
        message_id = self._roster.begin(view, is_offer=True)
        offer = Offer(
            VERSION, message_id, 0, state.term, view.epoch, piece, wire_groups, unknown, forget,
            state.settings.extra_candidates, cluster, self._lanes.number,
            self._lanes.samples_for(view.record.id, view.epoch, view.slots), residents,
        )  # fmt: skip
        state.emit(SendOffer(view.record.id, view.record.url, offer))

    # --- answers ------------------------------------------------------------------------------------------------

    def decided(self, event: DecisionsReceived) -> None:
        """An agent answered. Late answers count for the agent's health only."""
        view = self._roster.answered(event.agent, event.request)
        if view is None:
            return
        decisions, current = event.decisions, self.current
        in_step = self._roster.check_revision(view, decisions.revision)
        if current is None or event.agent not in current.waiting:
            return
        current.waiting.discard(event.agent)
        if not in_step:
            current.missing += 1
            return
        self._state.stats.answers += len(decisions.answers)
        self._state.stats.refusals += len(decisions.refusals)
        slots = view.slots
        by_class: dict[int, AgentAnswers] = {}
        for answer in decisions.answers:
            class_id = current.class_of.get(answer.unit)
            if class_id is None:
                continue
            answers = by_class.get(class_id)
            if answers is None:
                group = current.groups[class_id]
                otherwise = current.policy or f"{self._state.policy}@{answer.policy_version}"
                policy = judged_by(decisions, class_id, candidate=group.candidate, otherwise=otherwise)
                lane = lane_of(decisions, candidate=group.candidate, otherwise=otherwise)
                answers = by_class[class_id] = AgentAnswers(policy=policy, lane=lane, agent=event.agent)
                group.lists.append(answers)
            answers.answers.append(answer)
            answers.names.append(slots.get(answer.slot, ""))
        for class_id, answers in by_class.items():
            group = current.groups[class_id]
            wanted = group.asked + self._state.settings.extra_candidates
            answers.cut = group.asked < len(group.units) and len(answers.answers) >= wanted
        self._state.stats.refused_nodes += sum(refusal.nodes for refusal in decisions.refusals)
        for class_id in decisions.unknown_classes:
            view.classes.discard(class_id)
            if class_id in current.groups:
                current.groups[class_id].unknown = True

    def failed(self, event: RequestFailed) -> None:
        """An agent gave no usable answer."""
        view = self._roster.failed(event)
        if view is not None and self.current is not None and event.agent in self.current.waiting:
            self.current.waiting.discard(event.agent)
            self.current.missing += 1

    def leave(self, agents: set[str]) -> None:
        """Agents that are registered no more (or anew) cannot answer."""
        if self.current is not None and (gone := self.current.waiting & agents):
            self.current.waiting -= gone
            self.current.missing += len(gone)

    # --- end ----------------------------------------------------------------------------------------------------

    def finish(self) -> bool:
        """End the round if all answered, or without the silent ones at its deadline."""
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
                self._roster.suspect(self._roster.views[agent], "silent")
        placements: list[tuple[Placement, Pod]] = []
        if (sample := self._lanes.compare(current.groups)) is not None:
            self._rolling.compared(sample)
        for group in current.groups.values():
            if group.probe:
                continue
            group.units = [unit for unit in group.units if self._still_wanted(unit)]
            if group.guidance is not None:
                choices, left = deal(state, self._losses, self._guiding, group.guidance, group.units, group.lists)
                dry = bool(choices)
            else:
                group.units = [unit for unit in group.units if self._still_plain(unit)]
                choices, left, dry = merge(state, self._losses, group.pod_class, group.units, group.lists)
            placements.extend((self._placement(choice), choice.unit.pod) for choice in choices)
            for choice in choices:
                self._requeuer.attempt_ended(choice.unit.pod.uid, choice.node)
            if left and dry and not group.guided:
                group.known.widen()
            for unit in left:
                if dry and choices and not (group.guided and self._guiding.waits(unit.pod)):
                    state.queue.retry(unit.pod.uid, state.now, failed=False)  # it was not lost: nobody was asked
                else:
                    self._refusals.give_back(unit, group, missing=current.missing)
        if placements:
            self._ledger.open(placements, current.cause_id)
        return True

    def _still_wanted(self, unit: Unit) -> bool:
        """Whether the pod is still the one that was offered."""
        entry = self._state.queue.entries.get(unit.pod.uid)
        if entry is None or entry.place is not Place.IN_FLIGHT:
            return False
        before, pod = unit.pod, entry.pod
        if (before.pod_class, before.labels, before.relations) != (pod.pod_class, pod.labels, pod.relations):
            self._state.queue.retry(unit.pod.uid, self._state.now, failed=False)
            return False
        return True

    def _still_plain(self, unit: Unit) -> bool:
        """Whether its nodes alone still decide about the unit; a pod assumed since may keep it away."""
        cluster = self._state.cluster
        if not (cluster.index.anti_affinity or cluster.has_nominated) or not self._state.settings.judge_again:
            return True
        if self._guiding.template(unit.pod) is None:
            return True
        self._state.queue.retry(unit.pod.uid, self._state.now, failed=False)
        return False

    def _placement(self, choice: Choice) -> Placement:
        state, entry = self._state, self._state.queue.entries[choice.unit.pod.uid]
        pod = entry.pod  # the newest: its resourceVersion is a precondition of the Binding
        waited_us = max(0, int((state.now - choice.unit.since) * 1e6))
        name, _, told = choice.policy.rpartition("@")
        policy, version = (name, int(told)) if name else (state.policy, choice.answer.policy_version)
        state.recent.remember(
            pod.uid,
            PastDecision(
                state.now,
                choice.unit.number,
                choice.node,
                policy,
                version,
                choice.considered,
                pod.uid,
                pod.namespace,
                pod.name,
                entry.attempts + 1,
            ),
        )
        return Placement(
            choice.unit.number, pod.uid, pod.namespace, pod.name, pod.resource_version, choice.node,
            list(choice.alternatives), policy, version, choice.answer.score, waited_us,
        )  # fmt: skip
