"""What would happen to one pod that claims devices: every rule of the default profile, and DynamicResources too.

As ``whatif.py``, for a cluster whose slices, classes and claims are known. Extended resources that a device class
stands for are the class's business on nodes that do not offer them, and NodeResourcesFit's on the others: each node is
judged by the requests that are left to it. DynamicResources speaks after every other rule but the last filter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec.structs import replace as changed

from shared.model.devices import Allocation, DeviceClaim, DevicePod, Mapped
from shared.model.node import Node
from shared.model.pod import Pod
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import Filtered, rejection_of, run_filters
from shared.scheduling.cycle.prefilter import Prefiltered, prefilter
from shared.scheduling.cycle.scoring import score_nodes
from shared.scheduling.devices.dynamic_resources import (
    NAME,
    WEIGHT,
    Devices,
    PodDevices,
    Unblock,
    before_queueing,
    normalised,
)
from shared.scheduling.explain.whatif import FILTER, PRE_FILTER, NodeRejection, WhatIfOutcome, what_if
from shared.scheduling.filters import LAST
from shared.scheduling.framework import Code, Rejection
from shared.scheduling.gates import gate_rejection
from shared.scheduling.preemption.preemption import plan_preemption
from shared.scheduling.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class NodeAllocations:
    """What the pod's claims would be given on one node. ``mapped``: who is served by the claim for extended
    resources."""

    claims: tuple[tuple[DeviceClaim, Allocation], ...]
    mapped: tuple[Mapped, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimsOutcome:
    """``outcome`` as of any pod. ``gated``: why it would not be queued, whatever a cycle would find. ``aborted``: a
    node fails the whole cycle, so that the pod goes nowhere; ``feasible`` are those that take it by themselves.
    ``unblock`` None: not asked, as some node takes it or the cycle did not come so far."""

    outcome: WhatIfOutcome
    gated: Rejection | None = None
    aborted: bool = False
    allocations: dict[str, NodeAllocations] = field(default_factory=dict)
    unblock: Unblock | None = None


def what_if_claims(
    state: ClusterState, feasibility: FeasibilityCache, pod: Pod, devices: Devices, asks: DevicePod,
    now: float, new_share: Callable[[], str],
) -> ClaimsOutcome:  # fmt: skip
    """The verdict for ``pod``, which is ``asks`` to the rules about devices. Nothing is changed."""
    pod = changed(pod, unsupported="", asks=None)  # the rules about devices are asked here, after all others
    if gate_rejection(pod) is not None:
        return ClaimsOutcome(what_if(state, feasibility, pod))
    gated = before_queueing(asks, devices.inventory)
    prefiltered = prefilter(state, pod)
    claimed = devices.prepare(asks, now) if prefiltered.rejection is None else None
    if claimed is None:
        return ClaimsOutcome(what_if(state, feasibility, pod), gated)
    if isinstance(claimed, Rejection):
        everywhere = {name: NodeRejection(claimed, PRE_FILTER) for name in sorted(state.table.row_of)}
        return ClaimsOutcome(WhatIfOutcome(infeasible=everywhere), gated, claimed.code is Code.ERROR)
    judged = _Judged(state, feasibility, prefiltered, claimed)
    codes = [(state.table.row_of[name], found.rejection.code) for name, found in judged.infeasible.items()]
    names = tuple(judged.feasible)
    if any(code is Code.ERROR for _, code in codes):
        return ClaimsOutcome(WhatIfOutcome(names, judged.infeasible), gated, aborted=True)
    if not names:
        unblock = claimed.unblock()
        codes = [(row, judged.code_beside_devices(row, code)) for row, code in codes]
        preemption = plan_preemption(state, feasibility, prefiltered, codes)
        return ClaimsOutcome(WhatIfOutcome(infeasible=judged.infeasible, preemption=preemption), gated, unblock=unblock)
    allocations = {
        name: NodeAllocations(tuple(claimed.allocations(node, new_share)), claimed.mapped(node))
        for name, node in judged.feasible.items()
    }
    return ClaimsOutcome(replace(judged.scored(), infeasible=judged.infeasible), gated, allocations=allocations)


class _Judged:
    """Every node's verdict, by name and in their order."""

    def __init__(
        self, state: ClusterState, feasibility: FeasibilityCache, prefiltered: Prefiltered, claimed: PodDevices
    ) -> None:
        self._state, self._feasibility, self._prefiltered, self._claimed = state, feasibility, prefiltered, claimed
        self._left: dict[frozenset[str], tuple[Prefiltered, Filtered]] = {}
        self.infeasible: dict[str, NodeRejection] = {}
        self.feasible: dict[str, Node] = {}
        for name, row in sorted(state.table.row_of.items()):
            node = state.table.nodes[row]
            assert node is not None
            found = self._rejection(node, row)
            if found is None:
                self.feasible[name] = node
            else:
                rejection, early = found
                self.infeasible[name] = NodeRejection(rejection, PRE_FILTER if early else FILTER)

    def _rejection(self, node: Node, row: int) -> tuple[Rejection, bool] | None:
        prefiltered, filtered = self._filtered(self._claimed.delegated(node))
        found = rejection_of(self._feasibility, prefiltered, filtered, row)
        if found is not None and found[0].plugin != LAST:
            return found
        refused = self._claimed.rejection(node)
        return found if refused is None else (refused, False)

    def _filtered(self, delegated: frozenset[str]) -> tuple[Prefiltered, Filtered]:
        """The other filters, without the requests that are the classes' business."""
        found = self._left.get(delegated)
        if found is None:
            pod = self._prefiltered.pod
            requests = tuple(one for one in pod.pod_class.requests if one[0] not in delegated)
            left = replace(self._prefiltered, pod=changed(pod, pod_class=changed(pod.pod_class, requests=requests)))
            found = self._left[delegated] = (left, run_filters(self._state, self._feasibility, left))
        return found

    def code_beside_devices(self, row: int, code: Code) -> Code:
        """A node that gives no devices either is not opened by evicting pods."""
        node = self._state.table.nodes[row]
        if code is Code.UNSCHEDULABLE and node is not None and self._claimed.rejection(node) is not None:
            return Code.UNRESOLVABLE
        return code

    def scored(self) -> WhatIfOutcome:
        """The feasible nodes with their scores."""
        state, pod = self._state, self._prefiltered.pod
        names = list(self.feasible)
        rows = np.fromiter((state.table.row_of[name] for name in names), np.int64, len(names))
        scores = score_nodes(state, pod, rows, self._feasibility.profile.scores)
        own = normalised([self._claimed.score(node) for node in self.feasible.values()])
        scores[NAME] = WEIGHT * np.array(own, np.int64)
        per_node = {name: {plugin: int(values[i]) for plugin, values in scores.items()} for i, name in enumerate(names)}
        totals = {name: sum(found.values()) for name, found in per_node.items()}
        greatest = max(totals.values())
        best = [name for name, total in totals.items() if total == greatest]
        if pod.nominated_node in per_node:
            best = [pod.nominated_node]
        return WhatIfOutcome(feasible=tuple(names), scores=per_node, totals=totals, best=tuple(best))
