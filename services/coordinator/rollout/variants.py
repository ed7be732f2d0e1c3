"""Which policy variant judges which units, and what agents are told for it.

    pod uid, or its pod group --hash--> variant (active, or candidate in the canary) --> class of it --> agents

How the two are compared stands in ``sampling.py``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from services.coordinator.core.events import NodeSample
from services.coordinator.core.state import CoordinatorState
from services.coordinator.rollout.demand import ClusterDemand
from services.coordinator.rollout.ranked_here import RankedHere
from services.coordinator.usage.inventory import WorkloadInventory
from services.coordinator.usage.latency_limits import LatencyLimits
from services.coordinator.usage.measured import NEVER_S, NO_END_S, MeasuredNode, MeasuredNodes, Telling
from services.coordinator.usage.requested import RequestedThen
from shared.decide.stages import Stage
from shared.model.pod import Pod
from shared.policy.observation import NOTHING, Need, Needs
from shared.policy.registry import heeds_latency, needs_of_name, needs_of_ref, ref_of
from shared.policy.rollout.outcome import NEUTRAL
from shared.policy.rollout.rollout import candidate_for, deciding_goal
from shared.policy.usage.kept_views import KeptViews
from shared.policy.usage.load import node_load
from shared.policy.usage.sample_means import MEAN_S
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import MOST_SHARE, NO_POD, sample_of, summary
from shared.scheduling.profiles import own_policy
from shared.scheduling.state.measured_use import Told
from shared.wire.messages import Decisions
from shared.wire.readings import NodeUse
from shared.wire.records import PolicyPointer, PolicyRef

LatencyChanges = Mapping[str, Mapping[str, int]]
"""By node, by target: what the latency was before, ``UNKNOWN_LATENCY`` for none."""

MOST_MEAN = 1e6
"""Bound of the cluster's means: pods on a node that says it has no memory are billions of its share, and a number
that the wire refuses would stop every offer."""

LESSON_EVERY_S = 5.0
"""What was learned of workloads' use is told to agents no more often: sensors tell of some node all the time."""


class Variants:
    """The pointer's effect on cycles: ``follow`` takes over a pointer, the rest goes by what it set."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self.store = UtilisationStore(speed=state.settings.speed)
        """What all nodes were last measured to use, and what stands there."""
        self._views = KeptViews()
        self.inventory = WorkloadInventory(state, self.store)
        self.demand = ClusterDemand(state)
        self.ranked_here = RankedHere(state, self.demand.told)
        self.nodes = MeasuredNodes()
        self.limits = LatencyLimits(state, lambda: "" if self.heeds_latency else self.title or state.policy)
        self._requested = RequestedThen(speed=state.settings.speed)
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
        self.heeds_latency = heeds_latency(PolicyRef(state.policy, 0))
        """Whether the active policy looks at limits of latency that are no more than preferred."""
        self.needs = NOTHING
        """What the active policy or the candidate needs, and those that profiles name."""
        self._own = {name: needs_of_ref(ref_of(name)) for name in state.settings.profiles.policies()}
        """What each policy needs that a profile names."""
        self._take(needs_of_name(state.policy), NOTHING)
        self.ranked_here.follow((PolicyRef(state.policy, 0),), None)

    def follow(self, pointer: PolicyPointer) -> None:
        """Go by this pointer from now on."""
        self.pointer, self.number, candidate = pointer, pointer.number, pointer.candidate
        self.title = pointer.active.title if pointer.number else ""
        self.has_candidate = candidate is not None and pointer.stage in (Stage.SHADOW, Stage.CANARY)
        self.heeds_latency = heeds_latency(pointer.active)
        needs = needs_of_ref(candidate) if candidate is not None and self.has_candidate else NOTHING
        self._take(needs_of_ref(pointer.active), needs)
        # a candidate that judges nothing yet too: its weights are read once
        refs = (pointer.active,) if candidate is None else (pointer.active, candidate)
        self.ranked_here.follow(refs, pointer)
        if Need.WORKLOADS not in self.needs:
            self.inventory.stop()

    def title_of(self, *, candidate: bool) -> str:
        """By which policy such units are decided, ``name@version``; "" where no pointer says."""
        other = self.pointer.candidate if candidate and self.pointer is not None else None
        return self.title if other is None else other.title

    def name_of(self, *, candidate: bool = False) -> str:
        """The same by its name alone."""
        return self.title_of(candidate=candidate).partition("@")[0] or self._state.policy

    def _take(self, active: Needs, candidate: Needs) -> None:
        self.looks = (Need.WORKLOADS in active, Need.WORKLOADS in candidate)
        """Whether the units of the active policy, and of the candidate policy, are told by workload too."""
        self.goes_by_demand = (Need.DEMAND in active, Need.DEMAND in candidate)
        """Whether the active policy does, and the candidate."""
        looked, self.needs = Need.USAGE in self.needs, active.union(candidate, *self._own.values())
        if looked and Need.USAGE not in self.needs:
            self._requested.stop()
            for row in self._state.cache.table.row_of.values():
                self._state.cache.table.use.clear(row)
        elif not looked and Need.USAGE in self.needs:
            self._telling.anew()
        told = Need.WORKLOADS in self.needs
        self.store.means.mean_s = MEAN_S / self._state.settings.speed if told else 0.0

    def follow_requests(self) -> None:
        """Each turn, once all are known: what is requested of nodes, while a policy looks at what they use."""
        if Need.USAGE in self.needs and self._state.started:
            self._requested.follow(self._state.cache.table, self._state.now)

    def cluster(self) -> list[float]:
        """Means over all nodes, for policies whose agents compare their own nodes with them."""
        if Need.WORKLOADS in self.needs:
            self.inventory.follow()
        table = self._state.cache.table
        self.store.advance(self._state.now)
        rows = table.live_rows()
        load = node_load(table, rows, self._state.settings.profile.load_parts)
        means = summary(self._views.of(table, rows, NO_POD, self.store), load)
        return [float(value) for value in np.clip(np.nan_to_num(means), -MOST_MEAN, MOST_MEAN)]

    def measured(self, samples: Sequence[NodeSample]) -> LatencyChanges:
        """What nodes used, as some source tells it; told to each agent about its own nodes with the next offer. What
        latencies changed."""
        table, now = self._state.cache.table, self._state.now
        self.nodes.forget(table.row_of, now)
        self._telling.forget(table.row_of)
        if len(self.store.nodes) > len(table.row_of):
            self.store.forget([name for name in self.store.nodes if name not in table.row_of])
        fresh = self.nodes.take(samples, now)
        soonest = min((self.nodes.nodes[name].expires_s for name in fresh), default=NO_END_S)
        self._state.agenda.latencies = min(self._state.agenda.latencies, soonest)
        changed = [name for name in fresh if name in table.row_of]
        found = []
        for name in changed:
            row = table.row_of[name]
            sample = self.nodes.sample(name, table, row)
            if sample is not None:
                found.append(sample_of(table, row, sample.shares, sample.at_s, sample.unmeasured, sample.newest_s))
        self.store.measure_some([one for one in found if one is not None])
        latencies = self._take_over(changed)
        self._targets = self._targets or bool(table.latencies)
        if now >= self._lesson_s:
            self._lesson_s = now + LESSON_EVERY_S
            self.inventory.learned()
        return latencies

    def expire(self) -> LatencyChanges:
        """Use, latencies and delays that nobody has renewed end now; what latencies changed by it."""
        old = self.nodes.expire(self._state.now)
        self._state.agenda.latencies = self.nodes.expires_s
        return self._take_over([name for name in old if name in self._state.cache.table.row_of])

    def forget_readings(self, name: str) -> None:
        """The machine of that name is gone: nothing that was measured of it is true of another."""
        if self.nodes.begin_anew(name, self._state.now):
            self.store.delay(name, None)
            self.store.begin_anew(name)
            if (row := self._state.cache.table.row_of.get(name)) is not None:
                self._state.cache.table.use.clear(row)
            self._telling.changed([name])

    def node_joined(self, name: str) -> None:
        """A node has come; the last machine of its name may have gone on telling of itself meanwhile."""
        if self.nodes.left_lately(name):
            self.forget_readings(name)

    def _take_over(self, nodes: Sequence[str]) -> LatencyChanges:
        """Judge by what is measured of these nodes now, and tell it to their agents."""
        table, found = self._state.cache.table, dict[str, Mapping[str, int]]()
        for name in nodes:
            node = self.nodes.nodes[name]
            self.store.delay(name, None if node.delay_us is None else node.delay_us / 1000)
            latencies = {target: median for target, (median, _) in node.latencies.items()}
            if before := table.set_latencies(table.row_of[name], latencies):
                found[name] = before
                self.limits.look(name)
        self._use(nodes)
        self._telling.changed(nodes)
        return found

    def _use(self, nodes: Sequence[str]) -> None:
        """The load of these is by what they were measured to use, and what was requested of them by then."""
        if Need.USAGE not in self.needs:
            return
        table, told = self._state.cache.table, list[Told]()
        for name in nodes:
            row, node = table.row_of[name], self.nodes.nodes[name]
            sample = self.nodes.sample(name, table, row) if node.counts else None
            if sample is None:
                table.use.clear(row)
            else:
                shares = self.store.smoothed(name, sample.shares, MOST_SHARE, sample.unmeasured)
                told.append((row, shares, sample.unmeasured, self._requested.at(table, row, sample.at_s)))
        table.use.put_some(told)

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
            if row is None:
                continue
            if node is None:  # it may have been told of what has ended since
                found.append(NodeUse(slot, 0, []))
                continue
            sample = self.nodes.sample(name, table, row) if looks else None
            latencies = {target: median for target, (median, _) in node.latencies.items()}
            delay_us = -1 if node.delay_us is None else node.delay_us
            if sample is not None:
                age_ms = max(0, round((now - sample.at_s) * 1000))
                then = table.use.then(row)
                smoothed = self.store.smoothed(name, sample.shares, MOST_SHARE, sample.unmeasured)
                shares = table.use.shares[:, row].tolist() if then else smoothed  # what the leader goes by, agents do
                found.append(NodeUse(slot, age_ms, shares, sample.unmeasured, delay_us, latencies, then))
            elif looks or node.told_s > NEVER_S:  # of others there is no latency to tell, nor its end
                age_s = now - node.told_s if node.told_s > NEVER_S else 0.0
                found.append(NodeUse(slot, max(0, round(age_s * 1000)), [], 0, delay_us, latencies))
        return found

    def takes(self, pod: Pod) -> bool:
        """Whether the candidate policy decides for the pod: for all members of a pod group, or for none."""
        if self.pointer is None or own_policy(pod.pod_class):
            return False
        return candidate_for(pod.group or pod.uid, self.pointer)

    def looks_at(self, pod: Pod, *, candidate: bool) -> bool:
        """Whether the policy that judges the pod tells pods by workload."""
        own = own_policy(pod.pod_class)
        return Need.WORKLOADS in self._own.get(own, NOTHING) if own else self.looks[candidate]

    def key(self, pod: Pod, template: Hashable | None, *, candidate: bool) -> Hashable | None:
        """Under which a pod's class is known: a candidate policy's is another class, and so is a workload's where the
        policy looks at it. None: by the class itself."""
        if self.looks_at(pod, candidate=candidate):
            template = ("workload", pod.workload, pod.pod_class if template is None else template)
        return ("candidate", pod.pod_class if template is None else template) if candidate else template

    @property
    def goal(self) -> str:
        """By which choices are judged."""
        settings = self._state.settings.rollout
        return NEUTRAL if self.pointer is None else deciding_goal(self.pointer, settings)


def judged_by(
    decisions: Decisions, class_id: int, *, candidate: bool, otherwise: str, own: str = ""
) -> tuple[str, str]:
    """By which policy (``name@version``) an agent judged a class, and by which it was to; ``otherwise`` for one that
    does not say. ``own``: the one that its profile names, of which an agent that knows no profiles says nothing: its
    scores compare with nobody's."""
    if own:
        report = next((report for report in decisions.lanes if report.own == own), None)
        if report is None:
            return UNPROFILED, UNPROFILED
    else:
        reports = {report.candidate: report for report in decisions.lanes if not report.own}
        report = reports.get(candidate) or reports.get(False)
    if report is None:
        return otherwise, otherwise
    return (FALLBACK if class_id in report.fallen else report.policy), report.policy


UNPROFILED = "unprofiled@0"
"""An agent of an older version, which judged by its own policy and all filters."""

FALLBACK = "kube-default@1"
"""What judges when a policy fails (``policy.guard``)."""
