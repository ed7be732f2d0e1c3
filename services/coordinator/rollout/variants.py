"""Which policy judges which units, and how the candidate's choices are compared with the active policy's.

    pod uid --hash--> lane (active, or candidate in the canary) --> class of that lane --> agents judge by that policy
    one unit a round is asked about in the other lane too (probe) --> both choices valued on the same state --> sample

A probe is asked about and never placed: in shadow that is all a candidate gets. It costs each agent one more class to
rank per round, whatever the load. Without a rollout nobody is asked anything; now and then the active policy's choice
is valued alone.

Refuses to do: judging the samples (``evaluation.py``), placing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from random import Random

import numpy as np

from services.coordinator.core.events import NodeSample
from services.coordinator.core.state import State
from services.coordinator.cycle.classes import Classes
from services.coordinator.cycle.merging import Unit
from services.coordinator.cycle.refusals import Group
from services.coordinator.rollout.values import Sample, Valuing
from services.coordinator.usage.inventory import Residents
from shared.model.pod import Pod
from shared.policy.observation import NOTHING, Need, Needs
from shared.policy.registry import needs_of_name
from shared.policy.rollout.outcome import NEUTRAL
from shared.policy.rollout.rollout import Stage, deciding_goal, in_canary
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import NO_POD, node_view, sample_of, shares_of, summary
from shared.wire.messages import MAX_UNITS, Decisions, NodeUse
from shared.wire.records import PolicyPointer, PolicyRef

MOST_MEAN = 1e6
"""Bound of the cluster's means: pods on a node that says it has no memory are billions of its share, and a number
that the wire refuses would stop every offer."""

MOST_PAIRS, MOST_ALONE = 150, 30
"""Samples of a window, with a candidate and without: what looking costs does not grow with the pods that come."""


class Lanes:
    """The pointer's effect on rounds. ``pointer`` None: there is none yet, one policy judges everything."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._turn = 0
        self._ties = Random(state.term)
        """Looking at choices draws from a stream of its own, so that it changes none."""
        self._pair: tuple[int, int | None] | None = None
        """Classes of the active lane and the candidate's; None: there is no rollout."""
        self._next_at = 0.0
        self.valuing = Valuing(state)
        self.store = UtilisationStore(speed=state.settings.speed)
        """What all nodes were last measured to use, and what stands there."""
        self.residents = Residents(state, self.store)
        self._measurements = 0
        self._samples: dict[str, tuple[float, list[float]]] = {}
        self._told: dict[str, tuple[int, int]] = {}
        self.used: dict[str, tuple[float, NodeSample]] = {}
        """By node: when it was last measured (seconds of the clock), and the sample."""
        self.pointer: PolicyPointer | None = None

    @property
    def rolling(self) -> bool:
        """Whether a candidate judges anything."""
        pointer = self.pointer
        return pointer is not None and pointer.candidate is not None and pointer.stage in (Stage.SHADOW, Stage.CANARY)

    @property
    def number(self) -> int:
        """Of the pointer; 0: there is none."""
        return self.pointer.number if self.pointer is not None else 0

    @property
    def title(self) -> str:
        """The active policy, ``name@version``; "" where no pointer says."""
        return self.pointer.active.title if self.number and self.pointer is not None else ""

    def needs(self, *, candidate: bool) -> Needs:
        """What the policy of that lane needs; nothing where there is no such policy."""
        pointer = self.pointer
        if not candidate:
            return needs_of_name(self._state.policy if pointer is None else pointer.active.name)
        if pointer is None or pointer.candidate is None or not self.rolling:
            return NOTHING
        return needs_of_name(pointer.candidate.name)

    def wanted(self, need: Need) -> bool:
        """Whether a policy at work has the need."""
        return need in self.needs(candidate=False) or need in self.needs(candidate=True)

    def by_workload(self, *, candidate: bool) -> bool:
        """Whether that lane's units are told by workload."""
        return Need.WORKLOADS in self.needs(candidate=candidate)

    def cluster(self) -> list[float]:
        """Means over all nodes, for policies whose agents compare their own nodes with them; empty: none does."""
        self.follow()
        if not self.wanted(Need.CLUSTER_MEANS):
            return []
        table = self._state.cache.table
        self.store.advance(self._state.now)
        live, slot_of = table.live_rows(), self.store.nodes
        slots = np.array([slot_of.get(table.names[row], -1) for row in live], np.int64)
        means = summary(node_view(table, live, slots, NO_POD, self.store))
        return [float(value) for value in np.clip(np.nan_to_num(means), -MOST_MEAN, MOST_MEAN)]

    def follow(self) -> None:
        """Note when pods came to their nodes and left them, while a policy needs the workload inventory: after every
        batch of events, so that their ages are right."""
        if self.wanted(Need.WORKLOADS):
            self.residents.follow()
        else:
            self.residents.stop()

    def measured(self, samples: Sequence[NodeSample]) -> None:
        """What nodes used; told to each agent about its own nodes with the next offer."""
        table, now = self._state.cache.table, self._state.now
        self._measurements += 1
        self._samples.clear()
        self.used.clear()
        self._told.clear()
        found = []
        for sample in samples:
            row = table.row_of.get(sample.node)
            if row is None:
                continue
            shares = shares_of(table, row, sample.cpu_millis, sample.memory_bytes)
            self._samples[sample.node] = (now - sample.age_s, shares)
            self.used[sample.node] = (now - sample.age_s, sample)
            found.append(sample_of(table, row, shares, now - sample.age_s))
        self.store.measure_some([one for one in found if one is not None])
        self.residents.learned()

    def samples_for(self, agent: str, epoch: int, slots: Mapping[int, str]) -> list[NodeUse]:
        """The newest samples of an agent's nodes, once; ``slots``: the nodes it was told of."""
        told = (epoch, self._measurements)
        if not self._samples or self._told.get(agent) == told:
            return []
        self._told[agent] = told
        now, found = self._state.now, []
        for slot, name in slots.items():
            known = self._samples.get(name)
            if known is not None:
                at_s, shares = known
                found.append(NodeUse(slot, max(0, round((now - at_s) * 1000)), shares))
        return found

    def takes(self, uid: str) -> bool:
        """Whether the candidate decides for the pod."""
        return self.pointer is not None and in_canary(uid, self.pointer)

    def key(self, pod: Pod, template: Hashable | None, *, candidate: bool) -> Hashable | None:
        """Under which a pod's class is known: a candidate's is another class, and so is a workload's where the policy
        looks at it. None: by the class itself."""
        if self.by_workload(candidate=candidate):
            template = ("workload", pod.workload, pod.pod_class if template is None else template)
        return ("candidate", pod.pod_class if template is None else template) if candidate else template

    @property
    def goal(self) -> str:
        """By which choices are judged."""
        settings = self._state.settings.rollout
        return NEUTRAL if self.pointer is None else deciding_goal(self.pointer, settings)

    def probe(self, groups: dict[int, Group], class_of: dict[int, int], classes: Classes, number: int) -> None:
        """Ask about one unit in the other lane too, under ``number``; a class that is in both lanes needs no probe.
        Without a rollout the active policy's choice for it is looked at alone."""
        self._pair = None
        if self.pointer is None or self._state.now < self._next_at:
            return
        plain = [group for group in groups.values() if not group.guided]
        if not plain or (self.rolling and len(groups) >= MAX_UNITS):  # an offer has no room for another class
            return
        window_s = self._state.settings.rollout.window_s
        self._next_at = self._state.now + window_s / (MOST_PAIRS if self.rolling else MOST_ALONE)
        group = plain[self._turn % len(plain)]
        self._turn += 1
        if not self.rolling:
            self._pair = group.known.id, None
            return
        candidate, pod = not group.candidate, group.units[0].pod
        known = classes.of(group.pod_class, self.key(pod, None, candidate=candidate))
        self._pair = (known.id, group.known.id) if group.candidate else (group.known.id, known.id)
        if known.id in groups:
            return
        unit = Unit(number, pod, group.units[0].since)
        groups[known.id] = Group(
            group.pod_class, known, [unit], candidate=candidate, probe=True,
            workload=pod.workload if self.by_workload(candidate=candidate) else "",
        )  # fmt: skip
        class_of[number] = known.id

    def compare(self, groups: dict[int, Group]) -> Sample | None:
        """The sample of the round that ends, before anything of it is assumed; None where there is nothing to tell."""
        pair, self._pair = self._pair, None
        pointer = self.pointer
        if pair is None or pointer is None or (pair[1] is None) is self.rolling:
            return None
        lane = groups[pair[0]]
        agents = _judges(lane, pointer.active)
        other = groups[pair[1]] if pair[1] is not None else None
        if other is not None and pointer.candidate is not None:
            agents &= _judges(other, pointer.candidate)
        if 2 * len(agents) <= len(lane.lists):
            return None
        active = self._choice(lane, agents)
        candidate = self._choice(other, agents) if other is not None else None
        if active is None or (other is not None and candidate is None):
            return None
        return self.valuing.sample(lane.pod_class, self.goal, active, candidate)

    def _choice(self, group: Group, agents: frozenset[str]) -> int | None:
        """The row that these agents like best; ties fall as in a merge."""
        told = (answers for answers in group.lists if answers.agent in agents and answers.answers)
        heads = [(answers.answers[0], answers.names[0]) for answers in told]
        row_of = self._state.cache.table.row_of
        known = [
            (not a.accept, -a.score, self._ties.random(), row_of[name])
            for a, name in heads
            if row_of.get(name) == a.slot
        ]
        return min(known)[-1] if known else None


def _judges(group: Group, ref: PolicyRef) -> frozenset[str]:
    """The agents at which ``ref`` (or its fallback) judged the group: one that has not loaded a policy yet, or goes
    by another pointer, tells nothing about it."""
    return frozenset(answers.agent for answers in group.lists if answers.lane == ref.title)


def lane_of(decisions: Decisions, *, candidate: bool, otherwise: str) -> str:
    """Which policy (``name@version``) a lane's groups were to be judged by; ``otherwise`` where nothing is said."""
    reports = {report.candidate: report for report in decisions.lanes}
    report = reports.get(candidate) or reports.get(False)
    return otherwise if report is None else report.policy


def judged_by(decisions: Decisions, class_id: int, *, candidate: bool, otherwise: str) -> str:
    """Which policy (``name@version``) an agent judged a class by; ``otherwise`` for one that does not say."""
    reports = {report.candidate: report for report in decisions.lanes}
    report = reports.get(candidate) or reports.get(False)
    if report is None:
        return otherwise
    return FALLBACK if class_id in report.fallen else report.policy


FALLBACK = "kube-default@1"
"""What judges when a policy fails (``policy.guard``)."""
