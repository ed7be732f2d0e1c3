"""Whom of many agents a cycle asks: those that own the most promising nodes, by what is known here.

    by kube-default, or what else can be asked here: every node scored as it stands --> the best
    by any other policy: what it last said of each node to a pod of this kind       --> the best, and the least known

With an agent on each node a lone pod would be as many offers as there are nodes. What is known here chooses whom to
ask, and nothing else: those who are asked judge as ever, and where none of them accepts a unit all are asked
(``KnownClass.for_all``).

Everybody is asked about the first pod that differs from those before it by more than amounts, and where most nodes are
others since; about members of pod groups; about several units that other pods decide about too, since the best nodes
for the first are not those for the next; and by a policy that goes by what it is asked about (``Need.DEMAND``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from services.coordinator.agents.registry import AgentRegistry
from services.coordinator.agents.views import AgentView
from services.coordinator.core.state import State
from services.coordinator.cycle.candidates import asked_here
from services.coordinator.cycle.classes import AgentAnswers, OfferedClass
from services.coordinator.rollout.variants import Variants
from shared.model.constraints import PodClass
from shared.policy.observation import Need, Observation
from shared.scheduling.cycle.scoring import norms_of
from shared.scheduling.state.node_table import BoolArray, IntArray
from shared.wire.messages import SCORE_SCALE

MORE_PER_UNIT = 2
"""So many more nodes for each further unit of a cycle: those before it take the best."""

MOST_KINDS = 128
"""Kinds of pods that are remembered, 25 bytes a node each: 16 MB at 5,000 nodes."""

RENEW_S = 60.0
"""After so long a node is asked about again where the policy goes by what changes though nothing is placed there."""

DRIFT = frozenset({Need.USAGE, Need.CLUSTER_MEANS, Need.WORKLOADS})
"""What policies need that changes so: use, the cluster's means, what is learned of workloads."""

NEVER, LONG_AGO = -1, -np.inf
NOT_ACCEPTED = 2**60
"""What a rejected node is worth less, and one that its agent does not name at all."""

Floats = NDArray[np.float64]
Key = tuple[int, bool, PodClass]
"""The policy pointer's number, whether the candidate judges, and the kind."""
Words = dict[int, tuple[int, bool, int]]
"""By row: the score in millionths, whether it was accepted, and the node's generation then."""


@dataclass(slots=True)
class _Said:
    """What was last said to pods of one kind. By row: ``worth`` in millionths, as to the kind's first class;
    ``accept``; the node's ``generation`` (``NEVER``: nothing was said), and the time (seconds) then."""

    worth: IntArray
    accept: BoolArray
    generation: IntArray
    at_s: Floats

    @classmethod
    def nothing(cls, rows: int) -> _Said:
        return cls(
            np.zeros(rows, np.int64), np.zeros(rows, np.bool_), np.full(rows, NEVER, np.int64),
            np.full(rows, LONG_AGO),
        )  # fmt: skip

    def copy(self) -> _Said:
        return _Said(self.worth.copy(), self.accept.copy(), self.generation.copy(), self.at_s.copy())

    def grown(self, rows: int) -> _Said:
        """For so many rows at least."""
        more = rows - len(self.worth)
        if more <= 0:
            return self
        new = _Said.nothing(more)
        return _Said(
            np.concatenate((self.worth, new.worth)), np.concatenate((self.accept, new.accept)),
            np.concatenate((self.generation, new.generation)), np.concatenate((self.at_s, new.at_s)),
        )  # fmt: skip


class Promising:
    """One term's."""

    def __init__(self, state: State, registry: AgentRegistry, variants: Variants) -> None:
        self._state = state
        self._registry = registry
        self._variants = variants
        self._said: dict[Key, _Said] = {}
        """The kind that was asked about last stands last."""

    # --- whom to ask ------------------------------------------------------------------------------------------------

    def among(
        self, classes: dict[int, OfferedClass], idle: Sequence[AgentView], *, together: bool
    ) -> Sequence[AgentView]:
        """Those of the idle agents that are asked, in their order. ``together``: there are members of pod groups."""
        all_are = together or Need.DEMAND in self._variants.needs or not self._many(len(idle))
        few = None if all_are else self._few(classes, idle)
        for offered in classes.values():
            offered.few = few is not None and not offered.sole
        return idle if few is None else few

    def _many(self, agents: int) -> bool:
        """Whether so many agents are more than would be asked: the best, and as many of whom little is known."""
        most = self._state.settings.asked_agents
        return 0 < 2 * most < agents

    def _few(self, classes: dict[int, OfferedClass], idle: Sequence[AgentView]) -> list[AgentView] | None:
        """None: all are to be asked."""
        asked = [offered for offered in classes.values() if not offered.sole]
        if any(one.known.for_all or (one.guidance is not None and len(one.units) > 1) for one in asked):
            return None
        table, owner, there = self._state.cache.table, self._registry.ownership.owner, self._there(idle)
        units = sum(len(one.units) for one in asked if not one.shadow)
        wanted = self._state.settings.asked_agents + MORE_PER_UNIT * max(0, units - 1)
        names = {offered.sole for offered in classes.values() if offered.sole}
        for one in asked:
            rows = self._rows(one, there, wanted)
            if rows is None or not len(rows):
                return None
            names.update(owner.get(table.names[row], "") for row in rows.tolist())
        few = [view for view in idle if view.record.id in names]
        return few if few and len(few) < len(idle) else None

    def _there(self, idle: Sequence[AgentView]) -> BoolArray:
        """``[rows]``: nodes whose agent can be asked."""
        table, registry = self._state.cache.table, self._registry
        there = table.present[: table.rows].copy()
        there[[table.row_of[name] for name in registry.ownership.unowned if name in table.row_of]] = False
        if len(idle) < len(registry.views):
            names = {view.record.id for view in idle}
            for agent, view in registry.views.items():
                if agent not in names:
                    there[[row for row in view.slots if row < len(there)]] = False
        return there

    def _rows(self, offered: OfferedClass, there: BoolArray, wanted: int) -> IntArray | None:
        """The nodes that are to be asked about; None: all."""
        state, table, guidance = self._state, self._state.cache.table, offered.guidance
        mask = there & state.feasibility.of(offered.pod_class).mask
        if guidance is not None and guidance.mask is not None:
            mask &= guidance.mask
        rows: IntArray = np.flatnonzero(mask)
        if len(rows) <= wanted:
            return rows
        worth = np.zeros(len(rows), np.int64)
        if guidance is not None and guidance.scores is not None:
            worth += SCORE_SCALE * guidance.scores[rows]
        if (policy := asked_here(self._name(offered), state.settings.profile.scores)) is not None:
            norms = norms_of(state.feasibility, offered.pod_class) if guidance is None else guidance.norms
            score = policy.decide(Observation(table, offered.pod_class, rows, norms), state.rng).score
            return rows[self._best(worth + np.rint(score * SCORE_SCALE).astype(np.int64), wanted)]
        if (said := self._remembered(offered) or self._inherited(offered)) is None:
            return None
        changed = said.generation[rows] != table.generation[rows]
        if 2 * int(np.count_nonzero(changed)) > len(rows):
            return None
        worth = worth + said.worth[rows] - NOT_ACCEPTED * ~said.accept[rows]
        # what was best and has taken pods since would fill all places with what it was worth before
        best = self._best(worth - 2 * NOT_ACCEPTED * changed, wanted)
        doubtful = changed | (said.at_s[rows] < self._renewed_s)
        doubtful[best] = False
        asked = np.concatenate((best, self._doubtful(np.flatnonzero(doubtful), worth, said.at_s[rows])))
        return rows[asked]

    @property
    def _renewed_s(self) -> float:
        """What was said before then is asked again."""
        return self._state.now - RENEW_S if self._variants.needs & DRIFT else LONG_AGO

    def _doubtful(self, places: IntArray, worth: IntArray, at_s: Floats) -> IntArray:
        """Of places of which too little is known: those that were worth most, and those not heard of for longest."""
        most = self._state.settings.asked_agents
        if len(places) <= most:
            return places
        promising = places[self._best(worth[places], most // 2)] if most > 1 else places[:0]
        others = np.setdiff1d(places, promising)
        longest = others[np.argsort(at_s[others], kind="stable")[: most - len(promising)]]
        return np.concatenate((promising, longest))

    def _best(self, worth: IntArray, count: int) -> IntArray:
        """Where the ``count`` greatest stand; whom of equals, is drawn."""
        turn = int(self._state.rng.random() * len(worth))  # a partition takes the same ones of equals each time
        found: IntArray = np.argpartition(-np.roll(worth, turn), count - 1)[:count]
        return (found - turn) % len(worth)

    # --- what they say ----------------------------------------------------------------------------------------------

    def heard(self, classes: dict[int, OfferedClass], asked: Collection[str]) -> None:
        """Remember what the agents that were ``asked``, and answered, said of their nodes, each to the first unit of a
        class that it would get."""
        if not self._many(len(self._registry.views)):
            return
        scores = self._state.settings.profile.scores
        for offered in classes.values():
            if not (offered.sole or offered.unknown or asked_here(self._name(offered), scores)):
                self._learn(offered, self._words(offered, asked))

    def _words(self, offered: OfferedClass, asked: Collection[str]) -> Words:
        """What they said. A node that its agent does not name is worth no more to it than the last that it does; of one
        that was judged by another policy nothing is known, whatever was."""
        table, title = self._state.cache.table, self._variants.title_of(candidate=offered.candidate)
        mask = offered.guidance.mask if offered.guidance is not None else None
        lists = {found.agent: found for found in offered.lists}
        words: Words = {}
        for agent in sorted(asked):
            view = self._registry.views.get(agent)
            found = lists.get(agent)
            if view is None:
                continue
            if found is not None and found.policy != (title or found.policy):  # by what stands in for it, say
                words |= {row: (-NOT_ACCEPTED, False, NEVER) for row in view.slots if row < table.rows}
                continue
            named = {} if found is None else self._named(found)
            last = min(((accept, worth) for worth, accept, _ in named.values()), default=(False, -NOT_ACCEPTED))
            for row in view.slots:
                if row not in named and row < table.rows and (mask is None or mask[row]):
                    words[row] = last[1], last[0], int(table.generation[row])
            words |= named
        return words

    def _named(self, found: AgentAnswers) -> Words:
        row_of, words = self._state.cache.table.row_of, Words()
        for answer, name in zip(found.answers, found.names, strict=True):
            if row_of.get(name) == answer.slot and answer.slot not in words:
                words[answer.slot] = answer.score, answer.accept, answer.generation
        return words

    def _learn(self, offered: OfferedClass, words: Words) -> None:
        if not words:
            return
        rows = np.fromiter(words, np.int64, len(words))
        worth = np.array([one[0] for one in words.values()], np.int64)
        accept = np.array([one[1] for one in words.values()], np.bool_)
        generation = np.array([one[2] for one in words.values()], np.int64)
        if offered.guidance is not None and offered.guidance.scores is not None:
            worth -= SCORE_SCALE * offered.guidance.scores[rows]
        said = self._remembered(offered) or self._begin(offered)
        # of a node that is as it was, another worth is what this class differs by from those before it
        same = (said.generation[rows] == generation) & accept & said.accept[rows]
        shift = int(np.median((worth - said.worth[rows])[same])) if same.any() else 0
        said.worth[rows], said.accept[rows] = worth - shift, accept
        said.generation[rows], said.at_s[rows] = generation, self._state.now

    def _remembered(self, offered: OfferedClass) -> _Said | None:
        said = self._said.pop(key := self._key(offered), None)
        if said is not None:
            said = self._said[key] = said.grown(self._state.cache.table.rows)
        return said

    def _inherited(self, offered: OfferedClass) -> _Said | None:
        """What pods of other amounts were told last: a kind that is new begins with it."""
        number, candidate, kind = self._key(offered)
        shape = kind_of(kind, amounts=False)
        for key, said in reversed(self._said.items()):
            if key[:2] == (number, candidate) and kind_of(key[2], amounts=False) == shape:
                return self._begin(offered, said.grown(self._state.cache.table.rows).copy())
        return None

    def _begin(self, offered: OfferedClass, said: _Said | None = None) -> _Said:
        while len(self._said) >= MOST_KINDS:
            del self._said[next(iter(self._said))]
        said = self._said[self._key(offered)] = said or _Said.nothing(self._state.cache.table.capacity)
        return said

    def _key(self, offered: OfferedClass) -> Key:
        return self._variants.number, offered.candidate, kind_of(offered.pod_class)

    def _name(self, offered: OfferedClass) -> str:
        return self._variants.name_of(candidate=offered.candidate)


def kind_of(pod_class: PodClass, *, amounts: bool = True) -> PodClass:
    """One for all classes that differ by amounts of about the same size alone, or without ``amounts`` by any."""
    size = int.bit_length if amounts else bool
    return replace(
        pod_class,
        requests=tuple((name, int(size(amount))) for name, amount in pod_class.requests),
        score_cpu_millis=int(size(pod_class.score_cpu_millis)),
        score_memory_bytes=int(size(pod_class.score_memory_bytes)),
    )
