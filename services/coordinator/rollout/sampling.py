"""Which decisions both policies are asked about, and how the answers become samples of a window.

    a cycle's classes --one in turn--> asked in the other variant too (shadow request), with the same guidance
    both answers --dealt on a fork of the accounting--> rows --valued on the state as it stands--> Sample

Any pod is sampled that has a choice: about which its nodes alone decide, or also other pods, volumes or topology
(``Guidance``: the same nodes and the same added points for both policies). A pod group is one sample: of its members
that are alike, up to ``MOST_MEMBERS`` of them, dealt one after the other; where more than their nodes decides, each to
a node of its own before any gets a second. A shadow request is asked and never placed. It costs each agent one more
class to rank per cycle, whatever the load. Without a rollout nobody is asked anything; now and then the active policy's
choice is valued alone. What was left out, and why, is counted (``SamplingTally``). The samples are judged in
``evaluation.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.assign import Merged
from services.coordinator.cycle.classes import Classes, OfferedClass
from services.coordinator.rollout.variants import Variants
from services.coordinator.rollout.window import Rows, Skipped, Valuing, WindowSample
from shared.model.units.unit import Unit
from shared.scheduling.state.node_table import BoolArray
from shared.scheduling.state.room.counted import Counted
from shared.wire.messages import MAX_UNITS
from shared.wire.records import PolicyRef

MOST_PAIRS, MOST_ALONE = 150, 30
"""Cycles of a window that are looked at, with a candidate and without: what looking costs does not grow with the pods
that come."""

MOST_MEMBERS = 8
"""Of a pod group that are dealt in thought: with more, the windows of a cluster of groups would last for minutes."""


@dataclass(slots=True)
class SamplingTally:
    """Of the ``cycles`` that were looked at. ``offered``: their pods; ``choosing``: those that had a choice of nodes;
    ``lost``: cycles without a sample."""

    cycles: int = 0
    offered: int = 0
    choosing: int = 0
    lost: Counter[Skipped] = field(default_factory=Counter)


class Sampling:
    """One term's. ``samples``: of cycles that ended, until ``RolloutEvaluation`` takes them."""

    def __init__(self, state: CoordinatorState, variants: Variants) -> None:
        self._state = state
        self._variants = variants
        self._turn = 0
        self.begin(state.term)
        self._pair: tuple[int, int | None] | None = None
        """Classes of the active variant and the candidate's; None: nothing is compared in this cycle."""
        self._members = 1
        """How many units of each are dealt."""
        self._next_at = 0.0
        self.valuing = Valuing(state)
        self.samples: list[WindowSample] = []
        self.tally, self.before = SamplingTally(), SamplingTally()
        """Of the window that is open, and of the last one."""

    def begin(self, term: int) -> None:
        """Looking at choices draws from a stream of the term's own, so that it changes none."""
        self._ties = Random(term)

    def reopen(self) -> None:
        """A window begins."""
        self.valuing.reopen()
        self.tally, self.before = SamplingTally(), self.tally

    @property
    def compared(self) -> tuple[int, ...]:
        """The classes by which policies are compared in the cycle that begins: the active one's, the candidate's."""
        return () if self._pair is None else tuple(number for number in self._pair if number is not None)

    def ask(
        self, offered: dict[int, OfferedClass], class_of: dict[int, int], classes: Classes, number: Callable[[], int]
    ) -> None:
        """Ask about one unit in the other variant too, under a ``number``; a class that is in both needs no shadow
        request. Without a rollout the active policy's choice for it is looked at alone."""
        state, variants = self._state, self._variants
        self._pair = None
        if variants.pointer is None or state.now < self._next_at or not offered:
            return
        most = MOST_PAIRS if variants.has_candidate else MOST_ALONE
        pause_s = state.settings.rollout.window_s / most
        self._next_at = state.now + pause_s
        choosing = [one for one in offered.values() if self._chooses(one)]
        self.tally.cycles += 1
        self.tally.offered += sum(len(one.units) for one in offered.values())
        self.tally.choosing += sum(len(one.units) for one in choosing)
        if not choosing:
            self.tally.lost[Skipped.ONE_NODE] += 1
            return
        if variants.has_candidate and len(offered) >= MAX_UNITS:
            self.tally.lost[Skipped.FULL] += 1
            return
        one = choosing[self._turn % len(choosing)]
        self._turn += 1
        units = self._together(one)
        self._members = len(units)
        self._next_at = state.now + len(units) * pause_s  # each member costs as much as a pod's sample
        if not variants.has_candidate:
            self._pair = one.known.id, None
            return
        candidate, first = not one.candidate, units[0]
        known = classes.of(one.pod_class, variants.key(first.pod, one.template, candidate=candidate))
        self._pair = (known.id, one.known.id) if one.candidate else (one.known.id, known.id)
        if known.id in offered:
            return
        asked = [Unit(number(), unit.pod, unit.since) for unit in units]
        offered[known.id] = OfferedClass(
            one.pod_class, known, asked, guidance=one.guidance, candidate=candidate, shadow=True,
            workload=first.pod.workload if variants.looks[candidate] else "", template=one.template,
        )  # fmt: skip
        class_of.update((unit.number, known.id) for unit in asked)

    def take(self, offered: dict[int, OfferedClass]) -> None:
        """Take the sample of the cycle that ends, before anything of it is assumed, where there is anything to tell."""
        pair, self._pair = self._pair, None
        pointer = self._variants.pointer
        if pair is None or pointer is None or (pair[1] is None) is self._variants.has_candidate:
            return
        one = offered[pair[0]]
        agents = _judges(one, pointer.active)
        other = offered[pair[1]] if pair[1] is not None else None
        if other is not None and pointer.candidate is not None:
            agents &= _judges(other, pointer.candidate)
        if 2 * len(agents) <= len(one.lists):
            self.tally.lost[Skipped.UNHEARD] += 1
            return
        active = self._choice(one, agents)
        candidate = self._choice(other, agents) if other is not None else None
        dealt = len(active) if candidate is None else min(len(active), len(candidate))
        if not dealt:
            self.tally.lost[Skipped.NO_NODE] += 1
            return
        sample = self.valuing.sample(
            one.pod_class, self._allowed(one), self._variants.goal, active[:dealt],
            None if candidate is None else candidate[:dealt],
        )  # fmt: skip
        if isinstance(sample, Skipped):
            self.tally.lost[sample] += 1
        else:
            self.samples.append(sample)

    def _chooses(self, one: OfferedClass) -> bool:
        """Whether several nodes are open to its units."""
        if one.seated or one.known.own:
            return False
        mask = self._state.feasibility.of(one.pod_class).mask
        if (allowed := self._allowed(one)) is not None:
            mask = mask & allowed
        return int(np.count_nonzero(mask)) > 1

    def _allowed(self, one: OfferedClass) -> BoolArray | None:
        """``[rows]``: the only nodes open to its units, as they were offered; None: all."""
        if one.guidance is None or one.guidance.mask is None:
            return None
        mask: BoolArray = np.zeros(self._state.cache.table.rows, np.bool_)
        known = min(len(mask), len(one.guidance.mask))
        mask[:known] = one.guidance.mask[:known]
        return mask

    def _together(self, one: OfferedClass) -> list[Unit]:
        """The units of a class that are one sample: its first, and the members of its pod group that go with it."""
        first, entries = one.units[0], self._state.queue.entries
        entry = entries.get(first.pod.uid)
        if entry is None or entry.group is None:
            return [first]
        return [unit for unit in one.units if unit.pod.group == first.pod.group][:MOST_MEMBERS]

    def _choice(self, one: OfferedClass, agents: frozenset[str]) -> Rows:
        """The rows that these agents like best, dealt to the units of the sample; ties fall as in a merge."""
        heard = [answers for answers in one.lists if answers.agent in agents and answers.answers]
        merged, table = Merged(heard, self._ties), self._state.cache.table
        allowed = self._allowed(one)
        if self._members > 1:
            table = table.fork()
            feasibility = self._state.feasibility.fork(table, {one.pod_class})
        else:
            feasibility = self._state.feasibility
        dealt: list[int] = []
        with Counted(table) as counted:
            while len(dealt) < self._members:
                before, place = len(dealt), 0
                while len(dealt) < self._members and (head := merged.at(place)) is not None:
                    place += 1
                    row = table.row_of.get(head.name)
                    if row is None or row != head.answer.slot or not (allowed is None or allowed[row]):
                        continue
                    if not feasibility.of(one.pod_class).mask[row]:
                        continue
                    dealt.append(row)
                    if self._members > 1:
                        counted.add(row, one.pod_class)
                if one.guidance is None or len(dealt) == before:
                    break  # a list of different nodes begins again, a greedy one is over
        return dealt


def _judges(one: OfferedClass, ref: PolicyRef) -> frozenset[str]:
    """The agents at which ``ref`` (or its fallback) judged the group: one that has not loaded a policy yet, or goes
    by another pointer, tells nothing about it."""
    return frozenset(answers.agent for answers in one.lists if answers.variant == ref.title)
