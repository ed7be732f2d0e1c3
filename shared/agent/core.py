"""The agent's decisions: an offer in, per owned node accept or reject, score and generation out. Pure.

    Offer --(view piece applied, classes learned)--> filter, rank --> Decisions
    ViewUpdate --> ViewAck

Everything an agent knows comes with these messages; losing it costs one full view. A message of a lower term than one
already seen is a deposed coordinator's and is refused (I4); of a higher one, a new coordinator's, whose slots, epochs
and class numbers mean something else: what was known is dropped. Feasibility comes before the policy (I12).

Not its job: I/O, clocks, Kubernetes, and remembering offers: the same offer again gives an answer as good (I9).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from shared.agent.experience import Experience, ExperienceSettings
from shared.agent.replica import Replica
from shared.agent.residents import ResidentsFeed
from shared.agent.variants import Lane, Lanes
from shared.decide.guard import GuardLimits, no_clock
from shared.errors import WireError
from shared.model.constraints import PodClass
from shared.policy.domain import PLACEMENT
from shared.policy.observation import Policy, Rng
from shared.policy.ranking import Slot
from shared.policy.usage.views import sample_of
from shared.scheduling.cycle.profile import DEFAULT, PluginSet
from shared.scheduling.profiles import own_policy
from shared.scheduling.state.room.counted import Counted
from shared.scheduling.state.slot_sets import unpack
from shared.wire.messages import (
    VERSION,
    Answer,
    Decisions,
    Offer,
    Refusal,
    RowGuidance,
    UnitGroup,
    ViewAck,
    ViewUpdate,
    score_to_wire,
)
from shared.wire.readings import NodeUse
from shared.wire.records import PolicyRef

CLASS_LIMIT = 4096
"""Pod classes remembered by number; an offer of a forgotten one is answered with ``unknown_classes``."""

REASON_LIMIT = 256
REASON_CHARS = 1024
"""Bounds of the wire on a refusal's reasons; beyond them the rarest are left out, texts are cut."""


class _Known(Struct, frozen=True):
    """A class by number. ``seen``: as policies see it, with its workload; the same class where none looks at that.
    ``own``: the policy that its profile names."""

    pod_class: PodClass
    seen: PodClass
    candidate: bool
    own: str = ""


class AgentCore:
    """One agent. ``rng`` breaks ties and feeds policies that draw; ``clock`` counts CPU seconds of this thread;
    ``speed``: pods live so many seconds per second (``UtilisationStore``)."""

    def __init__(
        self,
        policy: Policy,
        rng: Rng,
        *,
        ref: PolicyRef | None = None,
        clock: Callable[[], float] = no_clock,
        limits: GuardLimits = PLACEMENT.limits,
        experience: ExperienceSettings | None = None,
        speed: float = 1.0,
        profile: PluginSet = DEFAULT,
    ) -> None:
        self.replica = Replica()
        self.lanes = Lanes(
            ref or PolicyRef(policy.name, policy.version), policy, rng, clock=clock,
            limits=limits, speed=speed, profile=profile,
        )  # fmt: skip
        self.residents = ResidentsFeed(self.lanes.store)
        self.term = 0
        self.offers = 0
        self.answers = 0
        self.resyncs = 0
        self.stale_terms = 0
        self._clock = clock
        self._classes: OrderedDict[int, _Known] = OrderedDict()
        self._message_id = 0
        self._recorded = False
        self.lanes.rank(self.replica.table)
        self.experience = Experience(experience)
        self.now_s = 0.0
        """Seconds of the shell's clock, for what is recorded; decisions do not depend on it."""

    @property
    def policy(self) -> Policy:
        """The active policy."""
        return self.lanes.active.guard.policy

    @property
    def policy_fallbacks(self) -> int:
        """How often a policy's answer was unusable and the heuristic decided."""
        return self.lanes.fallbacks

    def update(self, update: ViewUpdate) -> ViewAck:
        """Apply a piece of the view. Refused with ``WireError``: stale term, malformed piece."""
        self._admit(update.term)
        self._apply(update)
        self.experience.told += 1
        return ViewAck(VERSION, self._next_id(), update.message_id, self.term, self.replica.revision)

    def decide(self, offer: Offer) -> Decisions:
        """Judge an offer's units on the nodes owned here; revision 0 in the answer asks for a full view.

        Slot j of a group's list answers for its j-th unit, slots beyond the units for the last one: merged with other
        agents' lists they are an exact greedy. Refused with ``WireError``: stale term, malformed view.
        """
        self._admit(offer.term)
        self.offers += 1
        if offer.view is not None:
            self._apply(offer)
        if offer.epoch != self.replica.epoch:
            self._lose_view()
        if not self.replica.revision:
            return Decisions(VERSION, self._next_id(), offer.message_id, self.term, 0, [])
        self.experience.told += 1
        if offer.residents is not None:
            self.residents.take(offer.residents, self.replica, self.now_s)
        if offer.cluster:
            self.lanes.see_cluster(np.array(offer.cluster))
        if offer.demand is not None:
            self.lanes.demand.demand = offer.demand
        if offer.cluster or offer.samples:
            self._measure(offer.samples)
        if offer.forget_classes:
            self._classes.clear()
        for definition in offer.classes:
            workload, seen = self.residents.workload(definition.workload), definition.pod_class
            if workload:
                seen = replace(seen, workload=workload)
            own = own_policy(seen)
            self._classes[definition.class_id] = _Known(definition.pod_class, seen, definition.candidate, own)
            self._classes.move_to_end(definition.class_id)
        while len(self._classes) > CLASS_LIMIT:
            self._classes.popitem(last=False)
        self._recorded = False
        answers: list[Answer] = []
        refusals: list[Refusal] = []
        unknown: list[int] = []
        self._prepare(offer.groups)
        with Counted(self.replica.table) as counted:
            for group in offer.groups:
                known = self._classes.get(group.class_id)
                if known is None:
                    unknown.append(group.class_id)
                    continue
                lane = self.lanes.own(known.own) if known.own else self.lanes.of(candidate=known.candidate)
                started = self._clock()
                slots = self._judge(lane, group, known, offer.extra, answers, refusals)
                lane.judged(group.class_id, known.seen, self._clock() - started)
                if group is not offer.groups[-1]:
                    for slot in slots[: group.counted]:
                        counted.add(slot.row, known.pod_class)
        self.answers += len(answers)
        return Decisions(
            VERSION,
            self._next_id(),
            offer.message_id,
            self.term,
            self.replica.revision,
            answers,
            refusals,
            unknown,
            self.lanes.reports(offer.pointer),
            self.lanes.failures(),
        )

    def _prepare(self, groups: Sequence[UnitGroup]) -> None:
        """What an offer asks for is told at once."""
        asked: dict[bool, list[tuple[PodClass, PodClass]]] = {}
        for group in groups:
            known = self._classes.get(group.class_id)
            if known is not None and not known.own:
                asked.setdefault(known.candidate, []).append((known.pod_class, known.seen))
        for candidate, classes in asked.items():
            self.lanes.of(candidate=candidate).ranker.prepare(classes)

    def _judge(
        self,
        lane: Lane,
        group: UnitGroup,
        known: _Known,
        extra: int,
        answers: list[Answer],
        refusals: list[Refusal],
    ) -> Sequence[Slot]:
        """What was answered, best first."""
        units = group.units
        if group.guidance is not None:
            return self._judge_guided(lane, group, group.guidance, known, answers, refusals)
        slots = lane.ranker.slots(known.pod_class, len(units), extra=extra, norms=group.norms, seen=known.seen)
        if not slots:
            refusals.append(self._refusal(group.class_id, known.pod_class))
            return slots
        if self.experience.wanted and not self._recorded:
            self._record(lane, known.seen, [slot.row for slot in slots])
        version, last, slot_of_row = lane.ref.version, len(units) - 1, self.replica.slot_of_row
        for index, slot in enumerate(slots):
            answers.append(
                Answer(
                    units[min(index, last)],
                    slot_of_row[slot.row],
                    slot.accept,
                    score_to_wire(slot.score),
                    slot.generation,
                    version,
                )
            )
        return slots

    def _judge_guided(
        self,
        lane: Lane,
        group: UnitGroup,
        guidance: RowGuidance,
        known: _Known,
        answers: list[Answer],
        refusals: list[Refusal],
    ) -> Sequence[Slot]:
        """The best different nodes among those allowed, and, where it is asked about several units, what they are worth
        once units before stand there; the coordinator deals them to all."""
        rows = self.replica.rows_of(unpack(guidance.allowed))
        added = np.zeros(self.replica.table.rows)
        for value, slots_of_level in guidance.levels:
            added[self.replica.rows_of(unpack(slots_of_level))] = value
        slots = lane.ranker.guided(
            known.pod_class, guidance.distinct, rows, added, norms=group.norms, seen=known.seen, units=len(group.units)
        )
        if not slots:
            refusals.append(self._refusal(group.class_id, known.pod_class))
            return slots
        version, unit, slot_of_row = lane.ref.version, group.units[0], self.replica.slot_of_row
        answers.extend(
            Answer(unit, slot_of_row[s.row], s.accept, score_to_wire(s.score), s.generation, version) for s in slots
        )
        return slots

    def read_rewards(self, now_s: float) -> bool:
        """Read some of what is due of what was recorded (``experience.py``); whether more is."""
        self.now_s = now_s
        return self.experience.read(self.replica.table, self.lanes.store, now_s)

    def _measure(self, samples: list[NodeUse]) -> None:
        """Take over what our nodes were measured to use, and let what was known grow older."""
        table, row_of_slot, store = self.replica.table, self.replica.row_of_slot, self.lanes.store
        found = [
            sample_of(
                table, row_of_slot[sample.slot], sample.shares, self.now_s - sample.age_ms / 1000, sample.unmeasured
            )
            for sample in samples
            if sample.slot in row_of_slot
        ]
        for sample in samples:
            if (row := row_of_slot.get(sample.slot)) is not None:
                table.set_latencies(row, sample.latencies)
                store.delay(table.names[row], None if sample.delay_us < 0 else sample.delay_us / 1000)
                if not sample.shares:  # nothing that is measured is of this machine
                    store.begin_anew(table.names[row])
        told = [one for one in samples if one.slot in row_of_slot]
        for row in table.use.put_some(
            (row_of_slot[one.slot], one.shares, one.unmeasured, one.requested) for one in told
        ):
            table.judge_anew(row)
        store.measure_some([sample for sample in found if sample is not None])
        if len(store.nodes) > len(row_of_slot):  # a view that began again has other nodes
            store.forget([name for name in store.nodes if name not in table.row_of])
        store.advance(self.now_s)

    def _record(self, lane: Lane, pod_class: PodClass, rows: list[int]) -> None:
        """One group of an offer is recorded: looking at its features costs as much as judging it."""
        self._recorded = True
        self.experience.judged(lane.guard.policy, self.replica.table, pod_class, rows, self.now_s)

    def _refusal(self, class_id: int, pod_class: PodClass) -> Refusal:
        diagnosis = self.lanes.feasibility.diagnosis(pod_class)
        commonest = sorted(diagnosis.reasons.items(), key=lambda item: (-item[1], item[0]))[:REASON_LIMIT]
        reasons = {reason[:REASON_CHARS]: count for reason, count in commonest}
        return Refusal(class_id, diagnosis.nodes, reasons, sorted(diagnosis.plugins))

    def validate(self) -> list[str]:
        """Every invariant that does not hold between two messages, its name first; empty while all is well."""
        broken = list(self.replica.validate())
        if len(self._classes) > CLASS_LIMIT:
            broken.append(f"agent-classes: {len(self._classes)} classes are remembered")
        if self.lanes.feasibility.table is not self.replica.table:
            broken.append("agent-table: nodes are judged by a table that is not the replica's")
        return broken

    def _admit(self, term: int) -> None:
        if term < self.term:
            self.stale_terms += 1
            raise WireError(f"term {term} is over; {self.term} has been seen", code="stale_term")
        if term > self.term:
            self.term = term
            self.replica.drop()
            self._forget_words()
            self._rebuild()
            self.lanes.see_cluster(None)
            self.lanes.demand.demand = None

    def _apply(self, message: Offer | ViewUpdate) -> None:
        view = message.view
        if view is None:
            return
        epoch, table = self.replica.epoch, self.replica.table
        applied = self.replica.apply(view)
        if self.replica.epoch != epoch:
            self._forget_words()
        if left := self.replica.take_left():
            self.lanes.store.forget(left)
        if self.replica.table is not table:
            self._rebuild()
        if not applied:
            self.resyncs += 1

    def _lose_view(self) -> None:
        """The coordinator speaks of another epoch than the one known here: only a full view helps."""
        self.resyncs += 1
        self.replica.drop()
        self._forget_words()
        self._rebuild()

    def _forget_words(self) -> None:
        """Numbers of classes, workloads and pods mean nothing any more."""
        self._classes.clear()
        self.residents.drop()

    def _rebuild(self) -> None:
        self.lanes.rank(self.replica.table)

    def _next_id(self) -> int:
        self._message_id += 1
        return self._message_id
