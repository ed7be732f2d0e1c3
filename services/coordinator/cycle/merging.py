"""From the agents' answers for one class to placements: the best node for each unit that takes it on assumed state.

Each agent's answers are an exact greedy (``policy/ranking.py``): slot j is its best node once its slots 0..j-1 are
taken. So the agents' lists are merged by head, accepted before rejected, higher score first, ties by the seeded rng;
what is skipped was judged on a state that has passed. Every head is checked against the coordinator's own cache, which
counts everything assumed since the view was sent (I2). Rejecting is advice: a rejected node is taken when nothing
accepted is left (architecture.md, Policies).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random

from services.coordinator.core.state import State
from services.coordinator.cycle.losses import Losses
from services.coordinator.inspect.decisions import Considered
from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.scheduling.cycle.conflicts import fits
from shared.scheduling.state.node_table import BoolArray
from shared.wire.messages import SCORE_SCALE, Answer


@dataclass(slots=True)
class Unit:
    """One pod of a round. ``since``: seconds at which it was first seen, or woken last if no node took it before."""

    number: int
    pod: Pod
    since: float


@dataclass(slots=True)
class AgentAnswers:
    """One agent's answers for one class, in its order; ``names``: the node each one's slot meant to it ("": none).

    ``cut``: it was asked for fewer than there are units and gave as many: it may have more. ``policy``: by which it
    judged, ``name@version``; ``lane``: the policy whose turn it was, also where its fallback judged; ``agent``: its id.
    """

    answers: list[Answer] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    cut: bool = False
    policy: str = ""
    lane: str = ""
    agent: str = ""


MAX_CONSIDERED = 6
"""Nodes remembered per placement for ``conclave explain``, the chosen one first."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A unit's node, its next-best ones, the answer that it rests on, and what was considered in order of choice."""

    unit: Unit
    node: str
    answer: Answer
    alternatives: tuple[str, ...]
    considered: tuple[Considered, ...] = ()
    policy: str = ""


class _Merged:
    """The lists merged lazily: with thousands of agents most answers are never looked at.

    ``dry_at``: the place from which on the order is not known, since a list that was cut has run out.
    """

    def __init__(self, lists: Sequence[AgentAnswers], rng: Random) -> None:
        self._lists = lists
        self._rng = rng
        self._heads: list[tuple[bool, int, float, int, int]] = []
        self._seen: list[tuple[Answer, str]] = []
        self._policies: list[str] = []
        self._by_place = mixed(lists)
        self.dry_at: int | None = None
        for index in range(len(lists)):
            self._push(index, 0)

    def at(self, place: int) -> tuple[Answer, str] | None:
        """The answer at ``place`` of the merged order, with its node's name ("": the row means nothing any more)."""
        while place >= len(self._seen):
            if not self._heads:
                return None
            _, _, _, index, position = heapq.heappop(self._heads)
            source = self._lists[index]
            self._seen.append((source.answers[position], source.names[position]))
            self._policies.append(source.policy)
            if self.dry_at is None and source.cut and position + 1 == len(source.answers):
                self.dry_at = len(self._seen)
            self._push(index, position + 1)
        return self._seen[place]

    def policy(self, place: int) -> str:
        """By which policy the answer at ``place``, which was looked at, was judged."""
        return self._policies[place]

    def _push(self, index: int, position: int) -> None:
        answers = self._lists[index].answers
        if position < len(answers):
            answer = answers[position]
            worth = position if self._by_place else -answer.score
            heapq.heappush(self._heads, (not answer.accept, worth, self._rng.random(), index, position))


def mixed(lists: Sequence[AgentAnswers]) -> bool:
    """Whether the agents judged by several policies: one has changed over, or fallen back, before another. Their
    scores do not compare (one counts to hundreds, one hardly to 1), only each list's order is worth anything."""
    return len({answers.policy for answers in lists}) > 1


def merge(
    state: State, losses: Losses, pod_class: PodClass, units: Sequence[Unit], lists: Sequence[AgentAnswers]
) -> tuple[list[Choice], list[Unit], bool]:
    """Choices in queue order, each assumed in the cache; the units for which no head was left; whether that is because
    a list that was cut ran out: then what comes next is not known, and nothing worse is taken instead."""
    merged = _Merged(lists, state.rng)
    table, stats, wanted = state.cache.table, state.stats, state.settings.extra_candidates
    allowed = state.feasibility.static_mask(pod_class)
    taken: list[tuple[Unit, int]] = []
    left: list[Unit] = []
    place, kept = 0, list[int]()
    for unit in units:
        found = -1
        for index in kept:
            if _usable(state, pod_class, merged.at(index), allowed) and not _avoided(losses, unit, merged.at(index)):
                found = index
                kept.remove(index)
                break
        while found < 0:
            head = merged.at(place)
            if head is None or (merged.dry_at is not None and place >= merged.dry_at):
                break
            place += 1
            if not _usable(state, pod_class, head, allowed):
                stats.misfits += 1
            elif _avoided(losses, unit, head):
                kept.append(place - 1)
            else:
                found = place - 1
        if found < 0:
            left.append(unit)
            continue
        answer, name = _known(merged.at(found))
        row = table.row_of[name]
        stats.stale_answers += answer.generation < int(table.generation[row])
        stats.all_rejected += not answer.accept
        state.cluster.assume(unit.pod, name, state.now)
        taken.append((unit, found))
    if state.cluster.index.anti_affinity:
        wanted = 0  # a pod that keeps others away may be assumed there before the binder takes a next-best node
    closed = state.drained.keys()
    return [_choice(merged, unit, index, wanted, closed) for unit, index in taken], left, merged.dry_at is not None


def _usable(state: State, pod_class: PodClass, head: tuple[Answer, str] | None, allowed: BoolArray) -> bool:
    """Whether the head's node is still the one meant, may be used, and takes the class as accounted now."""
    answer, name = _known(head)
    row = state.cache.table.row_of.get(name)
    if row is None or row != answer.slot:
        return False
    if not state.settings.check_fits:
        return True
    node = state.cache.table.nodes[row]
    return bool(allowed[row]) and node is not None and fits(state.feasibility, pod_class, row)


def _avoided(losses: Losses, unit: Unit, head: tuple[Answer, str] | None) -> bool:
    return losses.avoids(unit.pod.uid, _known(head)[1])


def _known(head: tuple[Answer, str] | None) -> tuple[Answer, str]:
    assert head is not None
    return head


def _choice(merged: _Merged, unit: Unit, index: int, wanted: int, closed: Collection[str]) -> Choice:
    """The unit's node, and the next distinct ones in the merged order. ``closed``: nodes that were drained since they
    were offered; the binder, which does not know of that, must not take them."""
    answer, node = _known(merged.at(index))
    others: list[str] = []
    considered = [Considered(node, answer.score / SCORE_SCALE, answer.accept)]
    place = index + 1
    while len(others) < max(wanted, MAX_CONSIDERED - 1):
        head = merged.at(place)
        if head is None:
            break
        place += 1
        if head[1] and head[1] != node and head[1] not in others and head[1] not in closed:
            others.append(head[1])
            considered.append(Considered(head[1], head[0].score / SCORE_SCALE, head[0].accept))
    return Choice(unit, node, answer, tuple(others[:wanted]), tuple(considered), merged.policy(index))
