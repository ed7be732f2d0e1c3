"""The agent's decisions: an offer in, per owned node accept or reject, score and generation out. Pure.

    Offer --(view piece applied, classes learned)--> filter, rank --> Decisions
    ViewUpdate --> ViewAck

Everything an agent knows comes with these messages; losing it costs one full view. A message of a lower term than one
already seen is a deposed coordinator's and is refused (I4); of a higher one, a new coordinator's, whose slots, epochs
and class numbers mean something else: what was known is dropped. Feasibility comes before the policy (I12).

Refuses to do: I/O, clocks, Kubernetes, and remembering offers: the same offer again gives an answer as good (I9).
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from services.agent.replica import Replica
from shared.errors import WireError
from shared.model.constraints import PodClass
from shared.policy.observation import Policy, Rng
from shared.policy.ranking import Ranker
from shared.scheduling.feasibility import FeasibilityCache
from shared.scheduling.slot_sets import unpack
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

CLASS_LIMIT = 4096
"""Pod classes remembered by number; an offer of a forgotten one is answered with ``unknown_classes``."""

REASON_LIMIT = 256
REASON_CHARS = 1024
"""Bounds of the wire on a refusal's reasons; beyond them the rarest are left out, texts are cut."""


class AgentCore:
    """One agent. ``rng`` breaks ties and feeds policies that draw."""

    def __init__(self, policy: Policy, rng: Rng) -> None:
        self.replica = Replica()
        self.policy = policy
        self.term = 0
        self.offers = 0
        self.answers = 0
        self.resyncs = 0
        self.stale_terms = 0
        self._rng = rng
        self._classes: OrderedDict[int, PodClass] = OrderedDict()
        self._fallbacks_before = 0
        self._message_id = 0
        self._feasibility = FeasibilityCache(self.replica.table)
        self._ranker = Ranker(self.replica.table, self._feasibility, policy, rng)

    @property
    def policy_fallbacks(self) -> int:
        """How often the policy's answer was unusable and the heuristic decided."""
        return self._fallbacks_before + self._ranker.fallbacks

    def update(self, update: ViewUpdate) -> ViewAck:
        """Apply a piece of the view. Refused with ``WireError``: stale term, malformed piece."""
        self._admit(update.term)
        self._apply(update)
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
        if offer.forget_classes:
            self._classes.clear()
        for definition in offer.classes:
            self._classes[definition.class_id] = definition.pod_class
            self._classes.move_to_end(definition.class_id)
        while len(self._classes) > CLASS_LIMIT:
            self._classes.popitem(last=False)
        answers: list[Answer] = []
        refusals: list[Refusal] = []
        unknown: list[int] = []
        for group in offer.groups:
            pod_class = self._classes.get(group.class_id)
            if pod_class is None:
                unknown.append(group.class_id)
                continue
            self._judge(group, pod_class, offer.extra, answers, refusals)
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
        )

    def _judge(
        self, group: UnitGroup, pod_class: PodClass, extra: int, answers: list[Answer], refusals: list[Refusal]
    ) -> None:
        units = group.units
        if group.guidance is not None:
            self._judge_guided(group, group.guidance, pod_class, answers, refusals)
            return
        slots = self._ranker.slots(pod_class, len(units), extra=extra, norms=group.norms)
        if not slots:
            refusals.append(self._refusal(group.class_id, pod_class))
            return
        version, last, slot_of_row = self.policy.version, len(units) - 1, self.replica.slot_of_row
        for index, slot in enumerate(slots):
            answers.append(
                Answer(
                    units[min(index, last)],
                    slot_of_row(slot.row),
                    slot.accept,
                    score_to_wire(slot.score),
                    slot.generation,
                    version,
                )
            )

    def _judge_guided(
        self,
        group: UnitGroup,
        guidance: RowGuidance,
        pod_class: PodClass,
        answers: list[Answer],
        refusals: list[Refusal],
    ) -> None:
        """The best different nodes among those allowed, for the first unit; the coordinator deals them to all."""
        rows = self.replica.rows_of(unpack(guidance.allowed))
        added = np.zeros(self.replica.table.rows)
        for value, slots_of_level in guidance.levels:
            added[self.replica.rows_of(unpack(slots_of_level))] = value
        slots = self._ranker.guided(pod_class, guidance.distinct, rows, added, norms=group.norms)
        if not slots:
            refusals.append(self._refusal(group.class_id, pod_class))
            return
        version, unit, slot_of_row = self.policy.version, group.units[0], self.replica.slot_of_row
        answers.extend(
            Answer(unit, slot_of_row(s.row), s.accept, score_to_wire(s.score), s.generation, version) for s in slots
        )

    def _refusal(self, class_id: int, pod_class: PodClass) -> Refusal:
        diagnosis = self._feasibility.diagnosis(pod_class)
        commonest = sorted(diagnosis.reasons.items(), key=lambda item: (-item[1], item[0]))[:REASON_LIMIT]
        reasons = {reason[:REASON_CHARS]: count for reason, count in commonest}
        return Refusal(class_id, diagnosis.nodes, reasons, sorted(diagnosis.plugins))

    def _admit(self, term: int) -> None:
        if term < self.term:
            self.stale_terms += 1
            raise WireError(f"term {term} is over; {self.term} has been seen", code="stale_term")
        if term > self.term:
            self.term = term
            self.replica.drop()
            self._classes.clear()
            self._rebuild()

    def _apply(self, message: Offer | ViewUpdate) -> None:
        view = message.view
        if view is None:
            return
        epoch, table = self.replica.epoch, self.replica.table
        applied = self.replica.apply(view)
        if self.replica.epoch != epoch:
            self._classes.clear()
        if self.replica.table is not table:
            self._rebuild()
        if not applied:
            self.resyncs += 1

    def _lose_view(self) -> None:
        """The coordinator speaks of another epoch than the one known here: only a full view helps."""
        self.resyncs += 1
        self.replica.drop()
        self._classes.clear()
        self._rebuild()

    def _rebuild(self) -> None:
        self._fallbacks_before += self._ranker.fallbacks
        self._feasibility = FeasibilityCache(self.replica.table)
        self._ranker = Ranker(self.replica.table, self._feasibility, self.policy, self._rng)

    def _next_id(self) -> int:
        self._message_id += 1
        return self._message_id
