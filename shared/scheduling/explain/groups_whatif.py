"""What some scheduling cycles would do to all pending pods of a cluster that is given whole, groups among them.

kube-scheduler's rule (1.36, gates GenericWorkload and GangScheduling): the unit of the most important pod comes first;
all queued members of its group go with it and are tried on one state, each on its best node, in one order only. One
that no node takes preempts, in thought: the others find its victims gone and it in their place; a group that reaches
its minimum so is nominated and waits, and none of it is bound in this cycle. Below the minimum none is bound either.

The mesh places more: what another order could place (``groups/placing.py``) is told apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from shared.model.pod import Pod
from shared.model.units.queue import QUEUE_LABEL
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import Filtered, rejection_of, run_filters
from shared.scheduling.cycle.prefilter import Prefiltered, prefilter
from shared.scheduling.cycle.profile import UNMEASURED
from shared.scheduling.cycle.scoring import score_nodes
from shared.scheduling.framework import Rejection
from shared.scheduling.gates import entry_rejection
from shared.scheduling.groups.placing import try_group
from shared.scheduling.groups.quorum import Roll, quorum_rejection
from shared.scheduling.preemption.preemption import plan_preemption
from shared.scheduling.state.cluster_state import ClusterState


@dataclass(slots=True)
class UnitsOutcome:
    """``bound``: nodes by uid; ``gated``: why pods are not queued, by uid; ``reordered``: by group the nodes, by uid,
    that its members would get in another order than kube-scheduler's, which places none of them."""

    bound: dict[str, str] = field(default_factory=dict)
    gated: dict[str, Rejection] = field(default_factory=dict)
    reordered: dict[str, dict[str, str]] = field(default_factory=dict)


def what_if_units(state: ClusterState, pods: Sequence[Pod], cycles: int) -> UnitsOutcome:
    """What ``cycles`` cycles do to ``pods``: all there are, bound and pending. ``state`` holds what is bound."""
    outcome = UnitsOutcome()
    pods = [pod for pod in pods if not pod.finished]
    members: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.group:
            members.setdefault(pod.group, []).append(pod)
    totals = state.table.totals()
    kept_out = {key: quorum_rejection(key, state.pod_groups.get(key), _roll(of), totals) for key, of in members.items()}
    queued = []
    for pod in pods:
        if pod.node_name or pod.terminating:
            continue
        gated = entry_rejection(pod) or kept_out.get(pod.group)
        if gated is None:
            queued.append(pod)
        else:
            outcome.gated[pod.uid] = gated
    cycle = _Cycle(state, pods)
    queued.sort(key=lambda pod: -pod.priority)
    for _ in range(cycles):
        if not queued:
            break
        first = queued[0]
        unit = [pod for pod in queued if pod is first or (first.group and pod.group == first.group)]
        queued = [pod for pod in queued if pod not in unit]
        group = state.pod_groups.get(first.group)
        bound = [pod for pod in members.get(first.group, ()) if pod.node_name]
        cycle.run(unit)
        below = group is not None and group.gang and len(bound) + len(cycle.placed) < group.min_count
        if below or cycle.victims:
            placed, waits = cycle.placed, not below
            cycle.undo()
            if waits:
                for pod in unit:
                    state.nominate(replace(pod, nominated_node=placed.get(pod.uid, "")))
            elif group is not None:
                attempt = try_group(state, cycle.feasibility, group, unit, bound)
                if attempt.reached:
                    outcome.reordered[group.title] = attempt.nodes
        else:
            outcome.bound |= cycle.placed
    return outcome


def _roll(members: Sequence[Pod]) -> Roll:
    """Whoever names one scheduler is taken for ours; of several, nobody knows which is."""
    return Roll(
        there=len(members),
        bound=sum(1 for pod in members if pod.node_name),
        mixed=len({pod.scheduler_name for pod in members}) > 1,
        queues={pod.labels.get(QUEUE_LABEL, "") for pod in members if not pod.node_name},
    )


class _Cycle:
    """One unit on one state. ``placed``: nodes by uid of members assumed there, also those that preempt; ``victims``:
    who had to leave for them."""

    def __init__(self, state: ClusterState, pods: Iterable[Pod]) -> None:
        self.feasibility = FeasibilityCache(state.table, profile=UNMEASURED)
        self.placed: dict[str, str] = {}
        self.victims: list[str] = []
        self._state = state
        self._pods = {pod.uid: pod for pod in pods}

    def run(self, unit: Iterable[Pod]) -> None:
        """Each member on its best node beside those before it; of equally good nodes the first by name."""
        self.placed, self.victims = {}, []
        for pod in unit:
            node = self._best(pod)
            if node:
                self._state.assume(pod, node, 0.0)
                self.placed[pod.uid] = node

    def undo(self) -> None:
        """Nobody was placed and nobody left."""
        for uid in self.placed:
            self._state.forget(uid)
        for uid in self.victims:
            self._state.observe(self._pods[uid])

    def _best(self, pod: Pod) -> str:
        """The node that scores best, or that preemption opens, its victims gone; "" if there is none."""
        state, feasibility = self._state, self.feasibility
        prefiltered = prefilter(state, pod)
        filtered = run_filters(state, feasibility, prefiltered)
        rows, names = np.flatnonzero(filtered.mask), state.table.names
        if not len(rows):
            return self._preempted(prefiltered, filtered)
        if pod.nominated_node in {names[row] for row in rows.tolist()}:
            return pod.nominated_node
        totals = np.sum(list(score_nodes(state, pod, rows).values()), axis=0)
        best: list[int] = rows[totals == totals.max()].tolist()
        return min(names[row] for row in best)

    def _preempted(self, prefiltered: Prefiltered, filtered: Filtered) -> str:
        state, codes = self._state, []
        for row in state.table.by_name()[1].tolist():
            found = rejection_of(self.feasibility, prefiltered, filtered, row)
            if found is not None:
                codes.append((row, found[0].code))
        best = plan_preemption(state, self.feasibility, prefiltered, codes).best
        if not best:
            return ""
        chosen = min(best, key=lambda candidate: candidate.node_name)
        for victim in chosen.victims:
            state.forget(victim.uid)
            if self.placed.pop(victim.uid, None) is None:
                self.victims.append(victim.uid)
        return chosen.node_name
