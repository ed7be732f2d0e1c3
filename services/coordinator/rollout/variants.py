"""Which policy variant judges which units, and how the candidate policy's choices are compared with the active one's.

    pod uid --hash--> variant (active, or candidate in the canary) --> class of that variant --> agents judge by it
    one unit a cycle is asked about in the other variant too (shadow request) --> both choices valued on the same state

A shadow request is asked and never placed: in shadow that is all a candidate policy gets. It costs each agent one more
class to rank per cycle, whatever the load. Without a rollout nobody is asked anything; now and then the active policy's
choice is valued alone. The samples are judged elsewhere (``evaluation.py``).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from random import Random

import numpy as np

from services.coordinator.core.events import NodeSample
from services.coordinator.core.state import State
from services.coordinator.cycle.classes import Classes, OfferedClass
from services.coordinator.rollout.window import Sample, Valuing
from services.coordinator.usage.inventory import WorkloadInventory
from services.coordinator.usage.latency_limits import LatencyLimits
from services.coordinator.usage.measured import NEVER_S, MeasuredNode, MeasuredNodes, Telling
from shared.model.pod import Pod
from shared.model.unit import Unit
from shared.policy.observation import NOTHING, Need, Needs
from shared.policy.registry import needs_of_name, needs_of_ref
from shared.policy.rollout.outcome import NEUTRAL
from shared.policy.rollout.rollout import Stage, deciding_goal, in_canary
from shared.policy.usage.kept_views import KeptViews
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import NO_POD, sample_of, summary
from shared.wire.messages import MAX_UNITS, Decisions
from shared.wire.readings import NodeUse
from shared.wire.records import PolicyPointer, PolicyRef

MOST_MEAN = 1e6
"""Bound of the cluster's means: pods on a node that says it has no memory are billions of its share, and a number
that the wire refuses would stop every offer."""

LESSON_EVERY_S = 5.0
"""What was learned of workloads' use is told to agents no more often: sensors tell of some node all the time."""

MOST_PAIRS, MOST_ALONE = 150, 30
"""Samples of a window, with a candidate and without: what looking costs does not grow with the pods that come."""


class Variants:
    """The pointer's effect on cycles: ``follow`` takes over a pointer, the rest goes by what it set."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._turn = 0
        self._ties = Random(state.term)
        """Looking at choices draws from a stream of its own, so that it changes none."""
        self._pair: tuple[int, int | None] | None = None
        """Classes of the active variant and the candidate's; None: there is no rollout."""
        self._next_at = 0.0
        self.valuing = Valuing(state)
        self.samples: list[Sample] = []
        """Of cycles that ended, until ``RolloutEvaluation`` takes them."""
        self.store = UtilisationStore(speed=state.settings.speed)
        """What all nodes were last measured to use, and what stands there."""
        self._views = KeptViews()
        self.inventory = WorkloadInventory(state, self.store)
        self.nodes = MeasuredNodes()
        self.limits = LatencyLimits(state)
        self._telling = Telling()
        self._targets = False
        """Whether any latency was ever measured in this term: agents are told its end too."""
        self._lesson_s = -np.inf
        self.pointer: PolicyPointer | None = None
        """None: there is none yet, one policy judges everything."""
        self.has_candidate = False
        """Whether a candidate policy judges anything."""
        self.number = 0
        """Of the pointer; 0: there is none."""
        self.title = ""
        """The active policy, ``name@version``; "" where no pointer says."""
        self._take(needs_of_name(state.policy), NOTHING)

    def follow(self, pointer: PolicyPointer) -> None:
        """Go by this pointer from now on."""
        self.pointer, self.number, candidate = pointer, pointer.number, pointer.candidate
        self.title = pointer.active.title if pointer.number else ""
        self.has_candidate = candidate is not None and pointer.stage in (Stage.SHADOW, Stage.CANARY)
        needs = needs_of_ref(candidate) if candidate is not None and self.has_candidate else NOTHING
        self._take(needs_of_ref(pointer.active), needs)
        if Need.WORKLOADS not in self.needs:
            self.inventory.stop()

    def _take(self, active: Needs, candidate: Needs) -> None:
        self.looks = (Need.WORKLOADS in active, Need.WORKLOADS in candidate)
        """Whether the units of the active policy, and of the candidate policy, are told by workload too."""
        self.needs = active | candidate
        """What either of them needs."""

    def cluster(self) -> list[float]:
        """Means over all nodes, for policies whose agents compare their own nodes with them."""
        if Need.WORKLOADS in self.needs:
            self.inventory.follow()
        table = self._state.cache.table
        self.store.advance(self._state.now)
        means = summary(self._views.of(table, table.live_rows(), NO_POD, self.store))
        return [float(value) for value in np.clip(np.nan_to_num(means), -MOST_MEAN, MOST_MEAN)]

    def measured(self, samples: Sequence[NodeSample]) -> None:
        """What nodes used, as some source tells it; told to each agent about its own nodes with the next offer."""
        table, now = self._state.cache.table, self._state.now
        self.nodes.forget(table.row_of, now)
        self._telling.forget(table.row_of)
        fresh = dict.fromkeys([*self.nodes.take(samples, now), *self.nodes.expire(now)])
        changed = [name for name in fresh if name in table.row_of]
        found = []
        for name in changed:
            row, node = table.row_of[name], self.nodes.nodes[name]
            sample = self.nodes.sample(name, table, row)
            if sample is not None:
                found.append(sample_of(table, row, sample.shares, sample.at_s, sample.unmeasured))
            if node.delay_us is not None:
                self.store.delay(name, node.delay_us / 1000)
            if table.set_latencies(row, {target: median for target, (median, _) in node.latencies.items()}):
                self.limits.look(name)
        self._telling.changed(changed)
        self._targets = self._targets or bool(table.latencies)
        self.store.measure_some([one for one in found if one is not None])
        if now >= self._lesson_s:
            self._lesson_s = now + LESSON_EVERY_S
            self.inventory.learned()

    @property
    def used(self) -> Mapping[str, MeasuredNode]:
        """By node, what was last measured."""
        return self.nodes.nodes

    def samples_for(self, agent: str, epoch: int, slots: Mapping[int, str]) -> list[NodeUse]:
        """The newest samples of an agent's nodes, once; ``slots``: the nodes it was told of."""
        table, now, looks = self._state.cache.table, self._state.now, Need.USAGE in self.needs
        found: list[NodeUse] = []
        if not looks and not self._targets:
            return found
        for slot, name in self._telling.news(agent, epoch, slots):
            node, row = self.nodes.nodes.get(name), table.row_of.get(name)
            if node is None or row is None:
                continue
            sample = self.nodes.sample(name, table, row) if looks else None
            latencies = {target: median for target, (median, _) in node.latencies.items()}
            if sample is not None:
                age_ms, delay_us = max(0, round((now - sample.at_s) * 1000)), node.delay_us
                found.append(
                    NodeUse(
                        slot, age_ms, sample.shares, sample.unmeasured, -1 if delay_us is None else delay_us, latencies
                    )
                )
            elif self._targets and node.told_s > NEVER_S:  # of others there is no latency to tell, nor its end
                found.append(NodeUse(slot, max(0, round((now - node.told_s) * 1000)), [], 0, -1, latencies))
        return found

    def takes(self, uid: str) -> bool:
        """Whether the candidate policy decides for the pod."""
        return self.pointer is not None and in_canary(uid, self.pointer)

    def key(self, pod: Pod, template: Hashable | None, *, candidate: bool) -> Hashable | None:
        """Under which a pod's class is known: a candidate policy's is another class, and so is a workload's where the
        policy looks at it. None: by the class itself."""
        if self.looks[candidate]:
            template = ("workload", pod.workload, pod.pod_class if template is None else template)
        return ("candidate", pod.pod_class if template is None else template) if candidate else template

    @property
    def goal(self) -> str:
        """By which choices are judged."""
        settings = self._state.settings.rollout
        return NEUTRAL if self.pointer is None else deciding_goal(self.pointer, settings)

    def shadow(self, offered: dict[int, OfferedClass], class_of: dict[int, int], classes: Classes, number: int) -> None:
        """Ask about one unit in the other variant too, under ``number``; a class that is in both needs no
        shadow request. Without a rollout the active policy's choice for it is looked at alone."""
        self._pair = None
        if self.pointer is None or self._state.now < self._next_at:
            return
        plain = [one for one in offered.values() if one.guidance is None]
        if not plain or (self.has_candidate and len(offered) >= MAX_UNITS):  # an offer has no room for another class
            return
        window_s = self._state.settings.rollout.window_s
        self._next_at = self._state.now + window_s / (MOST_PAIRS if self.has_candidate else MOST_ALONE)
        one = plain[self._turn % len(plain)]
        self._turn += 1
        if not self.has_candidate:
            self._pair = one.known.id, None
            return
        candidate, pod = not one.candidate, one.units[0].pod
        known = classes.of(one.pod_class, self.key(pod, None, candidate=candidate))
        self._pair = (known.id, one.known.id) if one.candidate else (one.known.id, known.id)
        if known.id in offered:
            return
        unit = Unit(number, pod, one.units[0].since)
        offered[known.id] = OfferedClass(
            one.pod_class, known, [unit], candidate=candidate, shadow=True,
            workload=pod.workload if self.looks[candidate] else "",
        )  # fmt: skip
        class_of[number] = known.id

    @property
    def compared(self) -> tuple[int, ...]:
        """The classes by which policies are compared in the cycle that begins: the active one's, the candidate's."""
        return () if self._pair is None else tuple(number for number in self._pair if number is not None)

    def compare(self, offered: dict[int, OfferedClass]) -> None:
        """Take the sample of the cycle that ends, before anything of it is assumed, where there is anything to tell."""
        pair, self._pair = self._pair, None
        pointer = self.pointer
        if pair is None or pointer is None or (pair[1] is None) is self.has_candidate:
            return
        one = offered[pair[0]]
        agents = _judges(one, pointer.active)
        other = offered[pair[1]] if pair[1] is not None else None
        if other is not None and pointer.candidate is not None:
            agents &= _judges(other, pointer.candidate)
        if 2 * len(agents) <= len(one.lists):
            return
        active = self._choice(one, agents)
        candidate = self._choice(other, agents) if other is not None else None
        if active is None or (other is not None and candidate is None):
            return
        if (sample := self.valuing.sample(one.pod_class, self.goal, active, candidate)) is not None:
            self.samples.append(sample)

    def _choice(self, one: OfferedClass, agents: frozenset[str]) -> int | None:
        """The row that these agents like best; ties fall as in a merge."""
        told = (answers for answers in one.lists if answers.agent in agents and answers.answers)
        heads = [(answers.answers[0], answers.names[0]) for answers in told]
        row_of = self._state.cache.table.row_of
        known = [
            (not a.accept, -a.score, self._ties.random(), row_of[name])
            for a, name in heads
            if row_of.get(name) == a.slot
        ]
        return min(known)[-1] if known else None


def _judges(one: OfferedClass, ref: PolicyRef) -> frozenset[str]:
    """The agents at which ``ref`` (or its fallback) judged the group: one that has not loaded a policy yet, or goes
    by another pointer, tells nothing about it."""
    return frozenset(answers.agent for answers in one.lists if answers.variant == ref.title)


def judged_by(decisions: Decisions, class_id: int, *, candidate: bool, otherwise: str) -> tuple[str, str]:
    """By which policy (``name@version``) an agent judged a class, and by which it was to; ``otherwise`` for one that
    does not say."""
    reports = {report.candidate: report for report in decisions.lanes}
    report = reports.get(candidate) or reports.get(False)
    if report is None:
        return otherwise, otherwise
    return (FALLBACK if class_id in report.fallen else report.policy), report.policy


FALLBACK = "kube-default@1"
"""What judges when a policy fails (``policy.guard``)."""
