"""What the nodes say to reclaim: would a unit find room once certain pods are gone? (``reclaim/search.py``, ``Room``)

A lone pod asks about one node, in dry runs; members that go together ask about many, in trials of the whole group. Pods
that are leaving already, for whomever, count as gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

import numpy as np

from services.coordinator.core.state import CoordinatorState
from shared.model.pod import Pod
from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.cycle.prefilter import Prefiltered
from shared.scheduling.groups.placing import runs
from shared.scheduling.groups.trial import Standing, Trial
from shared.scheduling.groups.tried_members import TriedMembers
from shared.scheduling.queues.nodes import Charge, WaitingUnit
from shared.scheduling.queues.outlook import QueueOutlook
from shared.scheduling.state.node_table import BoolArray

BY_UID = attrgetter("uid")

DRY_RUN = 50
"""Work of one dry run, in nodes looked at."""


class NodeRoom:
    """Answers of one node, for a lone pod. ``nodes``: where it would go, by uid."""

    def __init__(self, state: CoordinatorState, pod: Pod, prefiltered: Prefiltered, node: str) -> None:
        self.nodes = {pod.uid: node}
        self._state = state
        self._prefiltered = prefiltered
        self._node = node
        self._row = state.cache.table.row_of[node]
        self._gone: set[str] = set()
        self.work = 0

    def anew(self, pods: Sequence[Pod], _: WaitingUnit) -> NodeRoom | None:
        """The same question, as of now; None: the node is gone."""
        [pod] = pods
        there = self._node in self._state.cache.table.row_of
        return NodeRoom(self._state, pod, self._state.constraints.prefiltered(pod), self._node) if there else None

    def fits(self, gone: Sequence[Charge]) -> bool:
        """As ``Room``."""
        self._gone = {pod.uid for pod in gone}
        return self._takes(self._gone)

    def spares(self, back: Sequence[Charge]) -> bool:
        """As ``Room``."""
        left = self._gone - {pod.uid for pod in back}
        if not self._takes(left):
            return False
        self._gone = left
        return True

    def awaited(self, leaves: Callable[[Pod], bool]) -> list[Pod]:
        """Of the pods that leave (``leaves``), those whose room the unit needs: nobody else has to go then. Empty where
        it fits without any of them, or not with all."""
        state = self._state
        leaving = [pod for pod in state.cluster.index.pods_on(self._node) if leaves(pod)]
        if not leaving:
            return []
        # In one order: whoever leads waits for the same pods (I11).
        leaving.sort(key=BY_UID)
        self.work += DRY_RUN
        run, needed = DryRun(state.cluster, state.feasibility, self._prefiltered, self._row), list[Pod]()
        for pod in leaving:
            run.remove(pod)
        if not run.takes_beside_nominated():
            return []
        for pod in leaving:
            run.add(pod)
            if not run.takes_beside_nominated():
                run.remove(pod)
                needed.append(pod)
        return needed

    def _takes(self, gone: set[str]) -> bool:
        state, leaving = self._state, self._state.queues.decided.leaving
        self.work += DRY_RUN
        run = DryRun(state.cluster, state.feasibility, self._prefiltered, self._row)
        for pod in list(state.cluster.index.pods_on(self._node)):
            if pod.uid in gone or pod.terminating or pod.uid in leaving:
                run.remove(pod)
        return run.takes_beside_nominated()


class GroupRoom:
    """For members of a pod group, as many of which must go at once as it lacks. ``allowed [rows]``: among these nodes;
    None: all. ``nodes``: where they would go, by uid, as last asked."""

    def __init__(
        self, state: CoordinatorState, pods: Sequence[Pod], unit: WaitingUnit, allowed: BoolArray | None
    ) -> None:
        self._state = state
        self._pods = pods
        self._lacking = max(1, state.groups.lacking(unit.key))
        self._allowed = allowed
        self._nodes_version = state.nodes_version
        outlook = QueueOutlook(state.queues)
        self._free = {name: outlook.free(name) - amount for name, amount in unit.amounts}
        self._tried = TriedMembers(state.cluster, pods)
        self._base = self._trial = Trial.of(self._tried, state.feasibility)
        self._base.leave(self._standing(state.queues.decided.leaving))
        self.work = self._base.work

    def anew(self, pods: Sequence[Pod], unit: WaitingUnit) -> GroupRoom | None:
        """The same question, as of now; None: which nodes it is about may be others by now."""
        same = self._allowed is None or self._nodes_version == self._state.nodes_version
        return GroupRoom(self._state, pods, unit, self._allowed) if same else None

    @property
    def nodes(self) -> dict[str, str]:
        """Where the members would go, by uid."""
        return dict(self._trial.nodes)

    def helpful(self) -> Iterator[str]:
        """Uids of pods on nodes that take some of the members, were they empty."""
        cluster, feasibility = self._state.cluster, self._state.feasibility
        mask = np.zeros(cluster.table.rows, np.bool_)
        for pod_class in {pod.pod_class for pod in self._pods}:
            mask |= feasibility.static_verdict(pod_class).mask
        for row in np.flatnonzero(mask if self._allowed is None else mask & self._allowed).tolist():
            yield from cluster.index.uids_on(cluster.table.names[row])

    def fits(self, gone: Sequence[Charge]) -> bool:
        """As ``Room``: by the cluster's sums first, which most often say no."""
        free = dict(self._free)
        for pod in gone:
            for name, amount in pod.amounts:
                if name in free:
                    free[name] += amount
        if any(left < 0 for left in free.values()):
            return False
        trial = self._trial = self._base.fork()
        trial.leave(self._standing(pod.uid for pod in gone))
        for template, alike in runs(self._pods, self._tried):
            trial.place(template, alike[: self._lacking - len(trial.nodes)], self._allowed)
        self.work += trial.work
        return len(trial.nodes) >= self._lacking

    def spares(self, back: Sequence[Charge]) -> bool:
        """As ``Room``."""
        return self._trial.put_back(self._standing(pod.uid for pod in back))

    def _standing(self, uids: Iterable[str]) -> list[Standing]:
        cluster, found = self._state.cluster, list[Standing]()
        for uid in uids:
            pod, account = cluster.index.get(uid), cluster.cache.accounts.get(uid)
            row = cluster.table.row_of.get(account.node_name) if account is not None else None
            if pod is not None and account is not None and row is not None:
                found.append((pod, row, account.devices))
        return found
