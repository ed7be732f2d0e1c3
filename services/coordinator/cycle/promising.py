"""Whom of many agents a cycle asks: those that own the most promising nodes, by what is known here.

    by kube-default, frag, or what else can be asked here: every node scored as it stands --> the best
    by any other policy: what it last said of each node to a pod of this kind       --> the best, and the least known

With an agent on each node a lone pod would be as many offers as there are nodes. What is known here chooses whom to
ask, and nothing else: those who are asked judge as ever, and where none of them accepts a unit all are asked
(``KnownClass.for_all``).

Everybody is asked about the first pod that differs from those before it by more than amounts, and where most nodes are
others since, or were heard of too long ago; about members of pod groups; and about several units that other pods decide
about too, since the best nodes for the first are not those for the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from services.coordinator.agents.registry import AgentRegistry
from services.coordinator.agents.views import AgentView
from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.candidates import asked_here
from services.coordinator.cycle.classes import AgentAnswers, OfferedClass
from services.coordinator.cycle.placing import OpenCycle
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
"""What was said is gone by for so long where the policy goes by what changes though nothing is placed there."""

DRIFT = frozenset({Need.USAGE, Need.CLUSTER_MEANS, Need.WORKLOADS})
"""What policies need that changes so: use, the cluster's means, what is learned of workloads."""

NEVER, LONG_AGO = -1, -np.inf
# Added up to four times (`_words`, `_rows`): with a score beside, that must stay within 64 bits.
NOT_ACCEPTED = 2**60
"""What a rejected node is worth less, and one that its agent does not name at all."""

Floats = NDArray[np.float64]
Key = tuple[int, bool, int | None, PodClass]
"""The policy pointer's number, whether the candidate judges, the priority where its policy looks at it, the kind."""
Words = dict[int, tuple[int, bool, int]]
"""By row: the score in millionths, whether it was accepted, and the node's generation then; ``NEVER``: another policy
judged."""


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
    """Chooses whom of many agents to ask, in one term."""

    def __init__(self, state: CoordinatorState, registry: AgentRegistry, variants: Variants) -> None:
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
        few = None if together or not self._many(len(idle)) else self._few(classes, idle)
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
        """``[rows]``: nodes whose agent can be asked. One that failed has forgotten which nodes it has."""
        table, ownership = self._state.cache.table, self._registry.ownership
        there = table.present[: table.rows].copy()
        there[[table.row_of[name] for name in ownership.unowned if name in table.row_of]] = False
        if len(idle) < len(self._registry.views):
            names = {view.record.id for view in idle}
            away = [name for name, agent in ownership.owner.items() if agent not in names]
            there[[table.row_of[name] for name in away if name in table.row_of]] = False
        return there

    def _rows(self, offered: OfferedClass, there: BoolArray, wanted: int) -> IntArray | None:
        """The nodes that are to be asked about; None: all."""
        state, table, guidance = self._state, self._state.cache.table, offered.guidance
        rows: IntArray = np.flatnonzero(there & self._right(offered))
        if len(rows) <= wanted:
            return rows
        worth = np.zeros(len(rows), np.int64)
        if guidance is not None and guidance.scores is not None:
            worth += SCORE_SCALE * guidance.scores[rows]
        norms = norms_of(state.feasibility, offered.pod_class) if guidance is None else guidance.norms
        score = self._scored_here(offered, Observation(table, offered.pod_class, rows, norms))
        if score is not None:
            return rows[self._best(rows, worth + np.rint(score * SCORE_SCALE).astype(np.int64), wanted)]
        if self._variants.goes_by_demand[offered.candidate]:
            return None  # what was said of a node to one pod says little of it to another
        if (known := self._known(offered, rows)) is None:
            return None
        said, changed, doubtful = known
        worth = worth + said.worth[rows] - NOT_ACCEPTED * ~said.accept[rows]
        # what was best and has taken pods since would fill all places with what it was worth before
        best = self._best(rows, worth - 2 * NOT_ACCEPTED * changed, wanted)
        others = self._of_others(np.flatnonzero(doubtful), rows, best)
        return rows[np.concatenate((best, self._doubtful(others, rows, worth, said.at_s[rows])))]

    def _scored_here(self, offered: OfferedClass, seen: Observation) -> Floats | None:
        """What the class's policy makes of the nodes as they stand; None: it cannot be asked here."""
        if (plain := asked_here(self._name(offered), self._state.settings.profile.scores)) is not None:
            return plain.decide(seen, self._state.rng).score
        ranked = self._variants.ranked_here.of(candidate=offered.candidate)
        if ranked is None:
            return None
        verdicts, by_another = ranked.decide(seen, self._state.rng)
        return None if by_another else verdicts.score

    def _right(self, offered: OfferedClass) -> BoolArray:
        """``[rows]``: nodes that are right for the class by what is known here."""
        mask, guidance = self._state.feasibility.of(offered.pod_class).mask, offered.guidance
        if guidance is None or guidance.mask is None:
            return mask
        right = np.zeros(len(mask), np.bool_)
        rows = min(len(mask), len(guidance.mask))  # nodes that came since it was offered
        right[:rows] = mask[:rows] & guidance.mask[:rows]
        return right

    def _known(self, offered: OfferedClass, rows: IntArray) -> tuple[_Said, BoolArray, BoolArray] | None:
        """What was said of these nodes, which are others since, and of which too little is known; None: of most."""
        for find in (self._remembered, self._inherited):
            if (said := find(offered)) is None:
                continue
            changed = said.generation[rows] != self._state.cache.table.generation[rows]
            doubtful = changed | (said.at_s[rows] < self._renewed_s)
            if 2 * int(np.count_nonzero(doubtful)) <= len(rows):
                return said, changed, doubtful
        return None

    @property
    def _renewed_s(self) -> float:
        """What was said before then is not gone by."""
        drifts = self._variants.needs & DRIFT or self._variants.heeds_latency
        return self._state.now - RENEW_S if drifts else LONG_AGO

    def _doubtful(self, places: IntArray, rows: IntArray, worth: IntArray, at_s: Floats) -> IntArray:
        """Of places of which too little is known: those that were worth most, and those not heard of for longest."""
        most = self._state.settings.asked_agents
        promising = places[self._best(rows[places], worth[places], most // 2)]
        others = self._of_others(places, rows, promising)
        longest = others[self._best(rows[others], -at_s[others], most - len(promising))]
        return np.concatenate((promising, longest))

    def _best(self, rows: IntArray, worth: IntArray | Floats, count: int) -> IntArray:
        """Where the best node stands of each of the ``count`` agents that have the best; whom of equals, is drawn."""
        names, owner = self._state.cache.table.names, self._registry.ownership.owner
        turn = int(self._state.rng.random() * len(rows))  # a partition takes the same ones of equals each time
        turned, most = -np.roll(worth, turn), count
        best: dict[str, int] = {}
        while len(best) < count and len(best) < len(rows):
            most = min(most, len(rows))
            found = np.argpartition(turned, most - 1)[:most]
            for place in ((found[np.argsort(turned[found])] - turn) % len(rows)).tolist():
                best.setdefault(owner.get(names[rows[place]], ""), place)
            if most == len(rows):
                break
            most *= 2  # several were one agent's
        return np.array(list(best.values())[:count], np.int64)

    def _of_others(self, places: IntArray, rows: IntArray, taken: IntArray) -> IntArray:
        """The places of nodes that agents own who own none of those that are taken."""
        table, owner = self._state.cache.table, self._registry.ownership.owner
        owned = np.zeros(table.capacity, np.bool_)
        for agent in {owner.get(table.names[row], "") for row in rows[taken].tolist()}:
            if (view := self._registry.views.get(agent)) is not None:
                owned[view.owned_slots()] = True
        return places[~owned[rows[places]]]

    # --- what they say ----------------------------------------------------------------------------------------------

    def heard(self, current: OpenCycle) -> None:
        """Remember what the agents that answered, in step, said of their nodes, each to the first unit of a class that
        it would get. Only where it may be gone by: kinds of pods for few nodes would wash out all others."""
        if not self._many(len(self._registry.views)):
            return
        scores, most = self._state.settings.profile.scores, self._state.settings.asked_agents
        for offered in current.classes.values():
            if offered.sole or offered.unknown or offered.known.own or asked_here(self._name(offered), scores):
                continue
            if self._variants.goes_by_demand[offered.candidate]:
                continue
            if self._variants.ranked_here.of(candidate=offered.candidate) is not None:
                continue
            right = self._right(offered)
            if int(np.count_nonzero(right)) > most:
                self._learn(offered, self._words(offered, current, right))

    def _words(self, offered: OfferedClass, current: OpenCycle, right: BoolArray) -> Words:
        """What they said. A right node that its agent does not name is worth no more to it than the last that it does;
        of one that was judged by another policy, or changed since it was asked about, nothing is known."""
        table, title = self._state.cache.table, self._variants.title_of(candidate=offered.candidate)
        asked_about = right & (table.stamp[: len(right)] <= current.stamp)
        lists = {found.agent: found for found in offered.lists}
        words: Words = {}
        for agent, heard in sorted(current.answered.items()):
            view = self._registry.views.get(agent)
            found = lists.get(agent)
            if view is None or heard != (view.epoch, view.moves):  # it was given other nodes since
                continue
            rows = [row for row in view.slots if row < len(right) and asked_about[row]]
            if found is not None and found.policy != (title or found.policy):  # by what stands in for it, say
                words |= dict.fromkeys(rows, (0, False, NEVER))
                continue
            named = {} if found is None else self._named(found)
            last = min(((accept, worth) for worth, accept, _ in named.values()), default=(False, -NOT_ACCEPTED))
            words |= {row: (last[1], last[0], int(table.generation[row])) for row in rows}
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
        said = self._remembered(offered) or self._begin(offered)
        known = generation != NEVER
        said.generation[rows[~known]] = NEVER  # what it was worth says how soon it is asked again
        rows, worth, accept, generation = rows[known], worth[known], accept[known], generation[known]
        if offered.guidance is not None and offered.guidance.scores is not None:
            worth -= SCORE_SCALE * offered.guidance.scores[rows]
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
        """What pods of other amounts were told last: a kind that is new, or not told for long, begins with it."""
        own = self._key(offered)
        shape = kind_of(own[3], amounts=False)
        for key, said in reversed(self._said.items()):
            if key != own and key[:3] == own[:3] and kind_of(key[3], amounts=False) == shape:
                return self._begin(offered, said.grown(self._state.cache.table.rows).copy())
        return None

    def _begin(self, offered: OfferedClass, said: _Said | None = None) -> _Said:
        self._said.pop(key := self._key(offered), None)
        while len(self._said) >= MOST_KINDS:
            del self._said[next(iter(self._said))]
        said = self._said[key] = said or _Said.nothing(self._state.cache.table.capacity)
        return said

    def _key(self, offered: OfferedClass) -> Key:
        return self._variants.number, offered.candidate, offered.priority, kind_of(offered.pod_class)

    def _name(self, offered: OfferedClass) -> str:
        return self._variants.name_of(candidate=offered.candidate)


def kind_of(pod_class: PodClass, *, amounts: bool = True) -> PodClass:
    """One for all classes that differ by amounts of about the same size alone, or without ``amounts`` by any. What a
    kubelet aligns it by are amounts once more, which filters look at and policies do not."""
    size = int.bit_length if amounts else bool
    return replace(
        pod_class,
        requests=tuple((name, int(size(amount))) for name, amount in pod_class.requests),
        score_cpu_millis=int(size(pod_class.score_cpu_millis)),
        score_memory_bytes=int(size(pod_class.score_memory_bytes)),
        claimed=(int(size(pod_class.claimed[0])), int(size(pod_class.claimed[1]))),
        needs=None,
    )
