"""NodeResourceTopologyMatch as a rule of the cycle: which nodes' kubelets let the pod on, zone by zone.

The verdict is the kubelet's own (``admission.py``), where the plug-in of that name counts what is available; reasons
are the plug-in's.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from shared.model.node_topology import ContainerKind, NodeTopology, PodNeeds, TopologyRefusal
from shared.model.pod import Pod
from shared.scheduling.framework import Code
from shared.scheduling.numa.admission import AdmissionVerdict
from shared.scheduling.numa.books import Books
from shared.scheduling.numa.zones import NodeZones
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray, IntArray

NAME = "NodeResourceTopologyMatch"

MOST = 200
"""Twice what a node's totals count (``NodeResourcesFit``), which would spread the pods."""


def prepare(state: ClusterState, pod: Pod) -> NodeResourceTopologyMatch | None:
    """See ``shared.scheduling.framework``."""
    needs, zones = pod.pod_class.needs, state.zones
    if needs is None or not isinstance(zones, NodeZones) or not zones.concerns(needs):
        return None
    return NodeResourceTopologyMatch(zones, needs)


class NodeResourceTopologyMatch:
    """Prepared for one pod. In a dry run pods come to zones, and give back what they hold there."""

    name = NAME

    def __init__(self, zones: NodeZones, needs: PodNeeds) -> None:
        self._zones = zones
        self._needs = needs
        self._came: dict[int, list[tuple[str, PodNeeds]]] = {}
        self._went: dict[int, list[str]] = {}
        self._mask: BoolArray | None = None

    def mask(self) -> BoolArray:
        """``[rows]``: True where the managers let the pod on."""
        if self._mask is None:
            self._mask = self._zones.mask(self._needs)
            if self._came or self._went:
                self._mask = self._mask.copy()
            for row in self._came.keys() | self._went.keys():
                self._mask[row] = self.verdict(row) is None
        return self._mask

    def verdict(self, row: int) -> tuple[Code, tuple[str, ...]] | None:
        """The plug-in's reason, or that the kubelet refused such a pod already."""
        if refused := self._zones.refusal_at(row, self._needs):
            return Code.UNRESOLVABLE, (refused_text(refused),)
        return self._says(self._kind(row))

    def why(self, row: int) -> tuple[str, str]:
        """The kubelet's reason and words for a node that does not pass, as foreseen or as it said; for people."""
        if refused := self._zones.refusal_at(row, self._needs):
            return refused, "the kubelet refused a pod like this one a while ago"
        found = self._zones.verdict(self._kind(row), self._needs)
        return (found.refusal or "", found.message)

    def inside(self, name: str) -> tuple[NodeTopology, Books] | None:
        """A node's object, and what is free in its zones; None where it has none."""
        return self._zones.inside(name)

    def tally(self, rows: IntArray) -> dict[str, int]:
        """One reason for each row."""
        reasons: Counter[str] = Counter()
        for found, count in self._counted(rows)[0]:
            if found is not None:
                reasons.update(dict.fromkeys(found[1], count))
        return dict(reasons)

    def scores(self, rows: IntArray) -> IntArray | None:
        """Of a pod of dedicated cores, 0 to ``MOST``: how much of the zones that it would get it takes (most
        allocated), so that idle ones are left to those that want one alone; 0 where no agent would give it any. None:
        of others nothing."""
        if not self._needs.of_katalyst:
            return None
        there, which = np.unique(self._zones.kinds()[rows], return_inverse=True)
        found = [round(MOST * self._zones.filled(kind, self._needs)) for kind in there.tolist()]
        return np.array(found, np.int64)[which] if len(rows) else np.zeros(0, np.int64)

    def resolvable(self, rows: IntArray) -> BoolArray:
        """Where the pod would be let on if nobody stood there."""
        found, which = self._counted(rows)
        return np.array([one is not None and one[0] is Code.UNSCHEDULABLE for one, _ in found], np.bool_)[which]

    def adjust(self, pod: Pod, row: int, sign: int) -> None:
        """The pod comes to the row's zones, as the last one, or leaves them."""
        needs = pod.pod_class.needs
        if needs is None:
            return
        came, went = self._came.setdefault(row, []), self._went.setdefault(row, [])
        if sign > 0 and pod.uid in went:
            went.remove(pod.uid)
        elif sign > 0:
            came.append((pod.uid, needs))
        elif (pod.uid, needs) in came:
            came.remove((pod.uid, needs))
        else:
            went.append(pod.uid)
        self._mask = None

    def copy(self) -> NodeResourceTopologyMatch:
        """One that can be adjusted without touching this."""
        other = NodeResourceTopologyMatch(self._zones, self._needs)
        other._came = {row: list(pods) for row, pods in self._came.items()}
        other._went = {row: list(uids) for row, uids in self._went.items()}
        return other

    def _says(self, kind: int) -> tuple[Code, tuple[str, ...]] | None:
        found = self._zones.verdict(kind, self._needs)
        if found.refusal is None:
            return None
        code = Code.UNSCHEDULABLE if self._zones.fits_empty(kind, self._needs) else Code.UNRESOLVABLE
        dedicated = self._needs.dedicated
        return code, ((dedicated.unreadable if dedicated is not None else "") or reason_of(found),)

    def _counted(self, rows: IntArray) -> tuple[list[tuple[tuple[Code, tuple[str, ...]] | None, int]], IntArray]:
        """What is said of these rows, kind by kind, with how many it is said of; and for each row which of those.
        Rows of which something is known besides are kinds of their own."""
        kinds = self._zones.kinds()[rows]
        apart = {*self._zones.refused_at(self._needs), *self._came, *self._went}
        if apart:
            own = np.isin(rows, list(apart))
            kinds[own] = -1 - rows[own]
        there, which, counts = np.unique(kinds, return_inverse=True, return_counts=True)
        said = [self._says(kind) if kind >= 0 else self.verdict(-1 - kind) for kind in there.tolist()]
        return list(zip(said, counts.tolist(), strict=True)), which

    def _kind(self, row: int) -> int:
        came, went = self._came.get(row, ()), self._went.get(row, ())
        if not came and not went:
            return self._zones.kind_of(row)
        return self._zones.kind_with(row, [needs for _, needs in came], went)


def reason_of(verdict: AdmissionVerdict) -> str:
    """As scheduler-plugins says it; what the Memory Manager alone refuses is told apart."""
    what = "pod"
    if verdict.at is not None:
        what = {ContainerKind.INIT: "init container", ContainerKind.SIDECAR: "sidecar container"}.get(
            verdict.at.kind, "container"
        )
    return f"cannot align {what}" + (
        "" if verdict.refusal is TopologyRefusal.TOPOLOGY_AFFINITY else f" ({verdict.refusal})"
    )


def refused_text(reason: str) -> str:
    """Of a node whose kubelet has refused a pod like this one."""
    return f"its kubelet refused a pod like this one ({reason})"
