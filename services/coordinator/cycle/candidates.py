"""The nodes that agents answered with about one class, each once, and what each is worth to the next unit.

An answer was given before the units of its cycle were placed, or on the agent's guess where they would be. A node that
changed since is scored anew as the agent would, by policies whose verdict rests on the row alone and on nothing that
only agents have (``RESCORED``). By any other its answer stands, until the node gets a unit of the class: what it is
worth to the next one the agent has said as well, where it looked ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from services.coordinator.core.decisions import Considered
from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.classes import AgentAnswers
from shared.model.constraints import Norms, PodClass
from shared.policy.heuristics import KubeDefault, LeastAllocated, MostAllocated
from shared.policy.observation import Observation, Policy
from shared.scheduling.framework import Score
from shared.scheduling.state.node_table import BoolArray, IntArray
from shared.wire.messages import SCORE_SCALE, Answer

RESCORED: dict[str, Callable[[], Policy]] = {one.name: one for one in (KubeDefault, LeastAllocated, MostAllocated)}
"""By name: how the policy is made here."""

NEVER = -1
"""The generation of a node that was not scored here yet: what its agent counted there may have come otherwise."""


class AnsweredNode(NamedTuple):
    """An answer, its node's name ("": its slot means nothing any more), and the policy that gave it."""

    answer: Answer
    name: str
    policy: str
    considered: Considered


def head_of(found: AgentAnswers, place: int) -> AnsweredNode:
    """The answer at ``place`` of a list."""
    answer, name = found.answers[place], found.names[place]
    return AnsweredNode(answer, name, found.policy, Considered(name, answer.score / SCORE_SCALE, answer.accept))


def scored_here(name: str, scores: tuple[Score, ...]) -> bool:
    """Whether the policy of that name can be asked here: not with scores of the user's own (``scores``), which agents
    guard in time, and may have left out."""
    return name in RESCORED and not scores


def asked_here(name: str, scores: tuple[Score, ...]) -> Policy | None:
    """The policy of that name, where it can be asked here."""
    return RESCORED[name]() if scored_here(name, scores) else None


def rescorer(lists: Sequence[AgentAnswers], scores: tuple[Score, ...]) -> Policy | None:
    """The policy by which all the lists are, where it can be asked here."""
    policies = {found.policy for found in lists}
    name, _, version = (policies.pop() if len(policies) == 1 else "").rpartition("@")
    policy = asked_here(name, scores)
    # By version too: of another release the policy of that name may score otherwise than its agent did.
    return policy if policy is not None and str(policy.version) == version else None


class Candidates:
    """``added``: points that the offer added to scores. ``rows``, ``accept``, ``own`` (scores in millionths,
    with nothing added) and ``taken`` (units of the class) belong together. ``floor``: what a list that was cut may have
    beyond its end is worth no more than that."""

    def __init__(
        self, state: CoordinatorState, pod_class: PodClass, norms: Norms, lists: Sequence[AgentAnswers],
        added: IntArray | None = None,
    ) -> None:  # fmt: skip
        self._state = state
        self._pod_class = pod_class
        self._norms = norms
        row_of = state.cache.table.row_of
        by_place = len({found.policy for found in lists}) > 1
        heads: dict[int, list[tuple[AgentAnswers, int]]] = {}
        for found in lists:
            for place, (answer, name) in enumerate(zip(found.answers, found.names, strict=True)):
                if row_of.get(name) != answer.slot:
                    continue
                said = heads.setdefault(answer.slot, [])
                if not said or said[0][0] is found:  # of two that answer for a node, as it changes hands, the first
                    said.append((found, place))
        self._heads = list(heads.values())
        """Of each node what was said of it: to the first unit of the class that it gets, to the next, and so on."""
        self._ranks = _ranks(lists) if by_place else None
        """By agent's list of each place: the node's rank among those that the list names; two policies' scores do not
        compare."""
        self.rows: IntArray = np.fromiter(heads, np.int64, len(heads))
        self._added = self._points(added)
        firsts = [one[0] for one in self._heads]
        answers = [found.answers[place] for found, place in firsts]
        worth = [one.score for one in answers] if self._ranks is None else [self._worth(*one) for one in firsts]
        self.own: IntArray = np.array(worth, np.int64) - SCORE_SCALE * self._added
        self.accept: BoolArray = np.array([one.accept for one in answers], np.bool_)
        self.taken: IntArray = np.zeros(len(heads), np.int64)
        self.floor = max(((end.accept, end.score) for end in _ends(lists)), default=None)
        self._generation: IntArray = np.full(len(heads), NEVER)
        self.policy = rescorer(lists, state.settings.profile.scores)
        """By which nodes are scored anew; None: what agents said stands."""

    def __len__(self) -> int:
        return len(self._heads)

    def head(self, at: int) -> AnsweredNode:
        """The answer about a node, as it stands now."""
        return head_of(*self._said(at))

    def name(self, at: int) -> str:
        """A node's name."""
        found, place = self._heads[at][0]
        return found.names[place]

    def take(self, at: int, units: int = 1) -> None:
        """A node gets so many more units of the class; fewer where that is negative."""
        self.taken[at] += units
        if self.policy is None and len(self._heads[at]) > 1:
            found, place = self._said(at)
            self.own[at] = self._worth(found, place) - SCORE_SCALE * self._added[at]
            self.accept[at] = found.answers[place].accept

    def _said(self, at: int) -> tuple[AgentAnswers, int]:
        """The answer to the unit that is next on the node: the last one where the agent did not look so far."""
        said = self._heads[at]
        return said[min(int(self.taken[at]), len(said) - 1)]

    def _worth(self, found: AgentAnswers, place: int) -> int:
        return found.answers[place].score if self._ranks is None else -SCORE_SCALE * self._ranks[id(found)][place]

    def refresh(self) -> None:
        """Score anew what changed since it was judged."""
        if self.policy is None:
            return
        table = self._state.cache.table
        generation = table.generation[self.rows]
        changed = np.flatnonzero(generation != self._generation)
        if not len(changed):
            return
        self._generation = generation
        seen = Observation(table, self._pod_class, self.rows[changed], self._norms)
        score = self.policy.decide(seen, _NONE).score
        self.own[changed] = np.rint(score * SCORE_SCALE).astype(np.int64)

    def below_floor(self, at: int) -> bool:
        """Whether a list that was cut may have a better node than this."""
        return self.floor is not None and self.floor > (bool(self.accept[at]), int(self.own[at]))

    def ranked(self, places: IntArray, added: IntArray | None = None) -> list[int]:
        """These places, best first: accepted ones, then by score plus ``added [rows]`` points, then the least taken;
        ties fall at random."""
        worth = self.own + SCORE_SCALE * self._points(added)
        rng = self._state.rng
        ties = np.array([rng.random() for _ in range(len(places))])
        order = np.lexsort((ties, self.taken[places], -worth[places], ~self.accept[places]))
        best: list[int] = places[order].tolist()
        return best

    def _points(self, added: IntArray | None) -> IntArray:
        """``[len(self)]``; of rows that came later 0."""
        found: IntArray = np.zeros(len(self.rows), np.int64)
        if added is not None:
            there = self.rows < len(added)
            found[there] = added[self.rows[there]]
        return found


def _ranks(lists: Sequence[AgentAnswers]) -> dict[int, list[int]]:
    """A node that is named again takes no rank from those after it: who looks ahead is worth no less for that."""
    found: dict[int, list[int]] = {}
    for one in lists:
        seen: set[int] = set()
        ranks = found[id(one)] = []
        for answer in one.answers:
            ranks.append(len(seen))
            seen.add(answer.slot)
    return found


def _ends(lists: Sequence[AgentAnswers]) -> list[Answer]:
    """Of each list that was cut the least: what it left out is no better. Further units on a node may score higher."""
    return [
        min(found.answers, key=lambda one: (one.accept, one.score)) for found in lists if found.cut and found.answers
    ]


_NONE = Random(0)
"""No policy that is asked here draws."""
