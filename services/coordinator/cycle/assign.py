"""From the agents' answers for one class to choices: the best node for each unit that takes it on assumed state.

    plain units: the agents' lists merged by head --first that takes the unit--> assumed, with the next-best nodes
    units that other pods, volumes or topology decide about: the answered nodes judged anew for each --best--> assumed

Each agent's answers about plain units are an exact greedy (``policy/ranking.py``): slot j is its best node once its
slots 0..j-1 are taken. So the lists are merged by head, accepted before rejected, higher score first, ties by the
seeded rng. Rules that span nodes hold with many units in flight too: two that keep apart may be offered the same
domain, but the second is judged with the first one counted, and offered again when no answered node is right any more.
Every choice is checked against the coordinator's own accounting, which counts everything assumed since the view was
sent (I2). Rejecting is advice: a rejected node is taken when nothing accepted is left.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace as replace_fields

from services.coordinator.core.decisions import Considered
from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.candidates import AnsweredNode, Candidates, head_of
from services.coordinator.cycle.classes import AgentAnswers
from services.coordinator.cycle.failures import ConflictTracker
from shared.model.constraints import PodClass
from shared.model.units.unit import Unit
from shared.scheduling.cycle.conflicts import fits
from shared.scheduling.cycle.constraints import Guidance, may_relate
from shared.scheduling.state.node_table import BoolArray
from shared.wire.messages import Answer

MAX_CONSIDERED = 6
"""Nodes remembered per placement for ``conclave explain``, the chosen one first."""

ROWS_PER_WORK, ANSWERS_PER_WORK = 250, 16
"""Nodes judged, and answers ranked, in the time in which a plain unit is dealt its node."""


class Choice(Struct, frozen=True):
    """A unit's node, its next-best ones, the answer that it rests on, and what was considered in order of choice."""

    unit: Unit
    node: str
    answer: Answer
    alternatives: tuple[str, ...]
    considered: tuple[Considered, ...] = ()
    policy: str = ""


Mark = tuple[int, int, list[int]]
"""How far seats were dealt: units taken, heads looked at, heads passed over."""


class PlainSeats:
    """Deals the answered nodes of one class, whose nodes alone decide, to units one by one.

    ``work``: what dealing one is worth.
    """

    work = 1

    def __init__(
        self, state: CoordinatorState, conflicts: ConflictTracker, pod_class: PodClass, lists: Sequence[AgentAnswers]
    ) -> None:
        self._state = state
        self._conflicts = conflicts
        self._pod_class = pod_class
        self._merged = Merged(lists, state.rng)
        self._judge_nodes()
        self._taken: list[tuple[Unit, int]] = []
        self._place = 0
        self._kept: list[int] = []

    @property
    def dry(self) -> bool:
        """Whether a list that was cut ran out: what comes next is not known, and nothing worse is taken instead."""
        return self._merged.dry_at is not None

    def take(self, unit: Unit) -> bool:
        """Assume the unit on the best node that is left and takes it; False where there is none."""
        state, merged, conflicts, uid = self._state, self._merged, self._conflicts, unit.pod.uid
        # A turn may lie between: a node that was cordoned since must take nobody.
        if self._judged_at != state.cache.table.decided_at(self._pod_class):
            self._judge_nodes()
        allowed = self._allowed
        found, raced = -1, uid in conflicts.races
        for index in self._kept:
            head = merged.at(index)
            takes = head and _takes(state, self._pod_class, allowed, head)
            if head and takes and not (raced and conflicts.avoids(uid, head.name)):
                found = index
                self._kept.remove(index)
                break
        while found < 0:
            head = merged.at(self._place)
            if head is None or (merged.dry_at is not None and self._place >= merged.dry_at):
                break
            self._place += 1
            if not _takes(state, self._pod_class, allowed, head):
                state.stats.misfits += 1
            elif raced and conflicts.avoids(uid, head.name):
                self._kept.append(self._place - 1)
            else:
                found = self._place - 1
        if found < 0 or (head := merged.at(found)) is None:
            return False
        _assume(state, unit, head.answer, head.name)
        self._taken.append((unit, found))
        return True

    def mark(self) -> Mark:
        """What ``undo`` goes back to."""
        return len(self._taken), self._place, list(self._kept)

    def undo(self, mark: Mark) -> None:
        """Everything since the mark is as if it had not been; what was assumed is the caller's to forget."""
        count, self._place, self._kept = mark
        del self._taken[count:]

    def choices(self) -> Iterator[Choice]:
        """The units that were taken, in order."""
        state = self._state
        wanted = _alternatives(state, self._pod_class)
        return (_choice(self._merged, *one, wanted, state.drained.keys()) for one in self._taken)

    def _judge_nodes(self) -> None:
        """Which nodes may be used at all: it may change between two turns."""
        self._judged_at = self._state.cache.table.decided_at(self._pod_class)
        self._allowed = self._state.feasibility.static_verdict(self._pod_class).mask


def _takes(state: CoordinatorState, pod_class: PodClass, allowed: BoolArray, head: AnsweredNode) -> bool:
    """Whether the head's node is still the one meant, may be used, and takes the class as accounted now."""
    table = state.cache.table
    row = table.row_of.get(head.name)
    return (
        # The slot is the row of then: a node that was made anew under the name may stand in another, not judged.
        row is not None and row == head.answer.slot and bool(allowed[row]) and fits(state.feasibility, pod_class, row)
    )


def _alternatives(state: CoordinatorState, pod_class: PodClass) -> int:
    """How many next-best nodes the binder may take instead: none where what it does not know may refuse them by then. A
    pod that keeps others away may be assumed there; and it hears of no latency."""
    return 0 if state.cluster.index.anti_affinity or pod_class.latency_strict else state.settings.extra_candidates


def _assume(state: CoordinatorState, unit: Unit, answer: Answer, node: str) -> None:
    state.stats.stale_answers += answer.generation < int(state.cache.table.generation[answer.slot])
    state.stats.all_rejected += not answer.accept
    state.cluster.assume(unit.pod, node, state.now)


class Merged:
    """The lists merged lazily: with thousands of agents most answers are never looked at.

    ``dry_at``: the place from which on the order is not known, since a list that was cut has run out.
    """

    def __init__(self, lists: Sequence[AgentAnswers], rng: Random) -> None:
        self._lists = lists
        self._rng = rng
        self._seen: list[AnsweredNode] = []
        self.dry_at: int | None = None
        # Scores of several policies (one agent has changed over, or fallen back, before another) do not compare: one
        # counts to hundreds, one hardly to 1. Then only each list's own order is worth anything.
        self._by_place = len({answers.policy for answers in lists}) > 1
        self._heap: list[tuple[bool, int, float, int, int]] = []
        for index in range(len(lists)):
            self._push(index, 0)

    def at(self, place: int) -> AnsweredNode | None:
        """The head at ``place`` of the merged order."""
        while place >= len(self._seen):
            if not self._heap:
                return None
            _, _, _, index, position = heapq.heappop(self._heap)
            source = self._lists[index]
            self._seen.append(head_of(source, position))
            if self.dry_at is None and source.cut and position + 1 == len(source.answers):
                self.dry_at = len(self._seen)
            self._push(index, position + 1)
        return self._seen[place]

    def _push(self, index: int, position: int) -> None:
        answers = self._lists[index].answers
        if position < len(answers):
            answer = answers[position]
            worth = position if self._by_place else -answer.score
            # The draw stands before the index: ties fall by the seed and not by the agents' order (I11).
            heapq.heappush(self._heap, (not answer.accept, worth, self._rng.random(), index, position))


def _choice(merged: Merged, unit: Unit, index: int, wanted: int, closed: Collection[str]) -> Choice:
    """The unit's node, and the next distinct ones in the merged order. ``closed``: nodes that were drained since they
    were offered; the binder, which does not know of that, must not take them."""
    chosen = merged.at(index)
    assert chosen is not None
    others: list[str] = []
    considered = [chosen.considered]
    place, most = index, max(wanted, MAX_CONSIDERED - 1)
    while len(others) < most and (head := merged.at(place := place + 1)) is not None:
        if head.name and head.name != chosen.name and head.name not in others and head.name not in closed:
            others.append(head.name)
            considered.append(head.considered)
    return Choice(unit, chosen.name, chosen.answer, tuple(others[:wanted]), tuple(considered), chosen.policy)


# --- nodes that are judged anew for each unit ---------------------------------------------------------------------


class RejudgedSeats:
    """Deals as ``PlainSeats`` where several agents were asked in one cycle with other classes: none knew what units of
    those are given at the others, so what a node is worth is seen when it is a unit's turn."""

    work = 2

    def __init__(
        self, state: CoordinatorState, conflicts: ConflictTracker, pod_class: PodClass, candidates: Candidates
    ) -> None:
        self._state = state
        self._conflicts = conflicts
        self._pod_class = pod_class
        self._candidates = candidates
        self._choices: list[Choice] = []
        self._chosen: list[int] = []
        self.dry = False
        """Whether a list that was cut may have better than what is left of those answered."""

    def take(self, unit: Unit) -> bool:
        """Assume the unit on the best node that is left and takes it; False where there is none."""
        state, candidates, conflicts, uid = self._state, self._candidates, self._conflicts, unit.pod.uid
        allowed = state.feasibility.static_verdict(self._pod_class).mask
        raced = uid in conflicts.races
        candidates.refresh()
        ranked = candidates.ranked(np.arange(len(candidates)))
        for place, at in enumerate(ranked):
            head = candidates.head(at)
            # What the list left out may be better: more is asked for next time, rather than a worse node taken now.
            if candidates.below_floor(at):
                self.dry = True
                return False
            if not _takes(state, self._pod_class, allowed, head):
                state.stats.misfits += 1
            elif not (raced and conflicts.avoids(uid, head.name)):
                _assume(state, unit, head.answer, head.name)
                candidates.take(at)
                self._chosen.append(at)
                others = [candidates.head(other) for other in ranked[place + 1 :][: _looked_at(state)]]
                wanted = _alternatives(state, self._pod_class)
                self._choices.append(_judged_choice(state, unit, head, others, wanted))
                return True
        return False

    def mark(self) -> Mark:
        """What ``undo`` goes back to."""
        return len(self._choices), 0, []

    def undo(self, mark: Mark) -> None:
        """Everything since the mark is as if it had not been; what was assumed is the caller's to forget."""
        count = mark[0]
        for at in self._chosen[count:]:
            self._candidates.take(at, -1)
        del self._choices[count:], self._chosen[count:]

    def choices(self) -> Iterable[Choice]:
        """The units that were taken, in order."""
        return self._choices


def _looked_at(state: CoordinatorState) -> int:
    """So many of the next best are enough for a choice."""
    return max(MAX_CONSIDERED, state.settings.extra_candidates + len(state.drained))


def _judged_choice(
    state: CoordinatorState, unit: Unit, chosen: AnsweredNode, others: Sequence[AnsweredNode], wanted: int
) -> Choice:
    """``others``: the next best, of which so many may be taken instead."""
    next_best = tuple(o.name for o in others if o.name not in state.drained)[:wanted] if wanted else ()
    considered = tuple(head.considered for head in (chosen, *others[: MAX_CONSIDERED - 1]))
    return Choice(unit, chosen.name, chosen.answer, next_best, considered, chosen.policy)


class GuidedSeats:
    """Deals to units about which more than the nodes themselves decide: each is judged anew when it is its turn.

    Scores were answered with the offer's guidance; each unit's are corrected to the guidance of its own moment.
    """

    def __init__(
        self, state: CoordinatorState, conflicts: ConflictTracker, offered: Guidance, candidates: Candidates
    ) -> None:
        self._state = state
        self._conflicts = conflicts
        self._offered = offered
        self._candidates = candidates
        self._choices: list[Choice] = []
        self._chosen: list[int] = []
        self._named: dict[str, int] = {}
        self._lasts = offered.scores is None and not offered.prefiltered.rules
        self._line: list[_InLine] | None = None

    @property
    def work(self) -> int:
        """What dealing one is worth, in plain units."""
        if self._line is not None:
            return 1
        return 4 + self._state.cache.table.rows // ROWS_PER_WORK + len(self._candidates) // ANSWERS_PER_WORK

    @property
    def dry(self) -> bool:
        """Whether other nodes than those answered may be right for units that got none, now that some did."""
        return bool(self._choices)

    def take(self, unit: Unit, only: str = "") -> bool:
        """Assume the unit on the best of the answered nodes that is right for it now; False where none is. ``only``:
        on no other node than this."""
        if self._lasts and not only and self._unmoved(unit):
            return self._take_in_line(unit)
        self._line = None
        state, candidates = self._state, self._candidates
        # where one node is given it alone is judged, not all of them
        guidance = state.constraints.judge(replace_fields(unit.pod, nominated_node=only) if only else unit.pod)
        ranked = self._ranked(unit, guidance, only) if guidance.rejection is None else []
        pod_class = unit.pod.pod_class
        allowed = state.feasibility.static_verdict(pod_class).mask
        chosen = next((at for at in ranked if _takes(state, pod_class, allowed, candidates.head(at))), None)
        if chosen is None:
            state.stats.misfits += bool(len(candidates))
            return False
        # the binder does not know rules that span nodes: it gets no other node than the one judged here
        self._choose(unit, chosen, [at for at in ranked if at != chosen], alone=bool(guidance.prefiltered.rules))
        return True

    def _choose(self, unit: Unit, chosen: int, others: Sequence[int], *, alone: bool = False) -> None:
        """Assume it, and note the choice. ``others``: the next best; ``alone``: none of them may be taken instead."""
        state, candidates = self._state, self._candidates
        head = candidates.head(chosen)
        _assume(state, unit, head.answer, head.name)
        wanted = 0 if alone or unit.pod.pod_class.latency_strict else state.settings.extra_candidates
        self._choices.append(
            _judged_choice(state, unit, head, [candidates.head(at) for at in others[: _looked_at(state)]], wanted)
        )
        candidates.take(chosen)
        self._chosen.append(chosen)

    # --- confined to some nodes, and nothing else ---------------------------------------------------------------

    def _unmoved(self, unit: Unit) -> bool:
        """Whether units placed before do not change which nodes are right for this one, nor how right: a domain
        confines it, and nothing else is the matter."""
        cluster, pod = self._state.cluster, unit.pod
        if pod.nominated_node or cluster.nominated or cluster.index.anti_affinity or pod.uid in self._conflicts.races:
            return False
        return not may_relate(cluster, pod)

    def _take_in_line(self, unit: Unit) -> bool:
        """The same as ``take``, by an order of nodes that lasts."""
        state, pod_class, candidates = self._state, unit.pod.pod_class, self._candidates
        line = self._line = self._line_up() if self._line is None else self._line
        allowed = state.feasibility.static_verdict(pod_class).mask
        while line and not _takes(state, pod_class, allowed, candidates.head(line[0].at)):
            heapq.heappop(line)
        if not line:
            state.stats.misfits += bool(len(candidates))
            return False
        best = [heapq.heappop(line) for _ in range(min(len(line), MAX_CONSIDERED))]
        self._choose(unit, best[0].at, [place.at for place in best[1:]])
        for place in (self._in_line(best[0].at), *best[1:]):
            heapq.heappush(line, place)
        return True

    def _line_up(self) -> list[_InLine]:
        candidates, mask = self._candidates, self._offered.mask
        allowed = [True] * len(candidates) if mask is None else mask[candidates.rows].tolist()
        line = [self._in_line(at) for at in range(len(candidates)) if allowed[at]]
        heapq.heapify(line)
        return line

    def _in_line(self, at: int) -> _InLine:
        candidates = self._candidates
        accept, own, taken = bool(candidates.accept[at]), int(candidates.own[at]), int(candidates.taken[at])
        return _InLine(not accept, -own, taken, self._state.rng.random(), at)

    def _ranked(self, unit: Unit, guidance: Guidance, only: str) -> list[int]:
        """The places of nodes that the unit may have, best first."""
        candidates, conflicts, uid = self._candidates, self._conflicts, unit.pod.uid
        rows = candidates.rows
        if only:
            if not self._named:
                self._named = {candidates.name(at): at for at in range(len(candidates))}
            at = self._named.get(only)
            places = np.array([] if at is None else [at], np.int64)
        else:
            places = np.arange(len(rows))
        if guidance.mask is not None:
            places = places[guidance.mask[rows[places]]]
        if uid in conflicts.races:
            avoided = (at for at in places.tolist() if not conflicts.avoids(uid, candidates.name(at)))
            places = np.fromiter(avoided, np.int64)
        candidates.refresh()
        return candidates.ranked(places, guidance.scores)

    def mark(self) -> Mark:
        """What ``undo`` goes back to."""
        return len(self._choices), 0, []

    def undo(self, mark: Mark) -> None:
        """Everything since the mark is as if it had not been; what was assumed is the caller's to forget."""
        count = mark[0]
        for at in self._chosen[count:]:
            self._candidates.take(at, -1)
        del self._choices[count:], self._chosen[count:]
        self._line = None

    def choices(self) -> Iterable[Choice]:
        """The units that were taken, in order."""
        return self._choices


class _InLine(NamedTuple):
    """A node's place in the order in which units take them: the smaller, the sooner. ``at``: its index."""

    rejected: bool
    worth: int
    taken: int
    tie: float
    at: int


Seats = PlainSeats | RejudgedSeats | GuidedSeats
