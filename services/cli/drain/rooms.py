"""What is asked for a pod that is to leave a node: room for one as its owner makes it, anywhere but there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from shared.kube.pods.standing_pods import SourcedPod
from shared.rebalance.draining.leavers import Leaver
from shared.rebalance.planner import ClusterSituation
from shared.rebalance.residents import Resident
from shared.rebalance.trial import ClusterTrial, room_for

Json = dict[str, Any]
LEAST_PRIORITY, MOST_PRIORITY = -(10**9), 10**9
"""Of a Reservation."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def room_spec(
    raw: SourcedPod, leaver: Leaver, node: str, time_to_live_s: int, *, names: Sequence[str], ours: Sequence[str]
) -> Json:
    """The spec of the Reservation. ``names``: the only nodes, () any but ``node``; ``ours``: scheduler names that a
    mesh serves: for a pod of another the mesh judges as for one of its own."""
    spec = msgspec.to_builtins(raw.spec)
    for field in ("nodeName", "schedulingGates", "priority"):
        spec.pop(field, None)
    if raw.spec.scheduler_name not in ours:
        spec.pop("schedulerName", None)
    if not names:
        _keep_off(spec, node)
    _, kind, name, _ = leaver.owner
    return {
        "template": {"metadata": {"labels": raw.metadata.labels or {}}, "spec": spec},
        "owners": [{"controller": {"kind": kind, "name": name}}],
        **({"nodes": {"names": list(names)}} if names else {}),
        "priority": min(max(raw.spec.priority or 0, LEAST_PRIORITY), MOST_PRIORITY),
        "allocateOnce": True,
        "ttlSeconds": time_to_live_s,
    }


def _keep_off(spec: Json, node: str) -> None:
    """Not on the node, also where the pod tolerates that it is cordoned."""
    elsewhere = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    terms = affinity.setdefault(REQUIRED, {}).setdefault("nodeSelectorTerms", [])
    for term in terms or [terms.append({}) or terms[0]]:
        term["matchFields"] = [*(term.get("matchFields") or ()), elsewhere]


class RoomJudge:
    """Which nodes take a pod, by every filter over the cluster as it was read: also by its volumes and claims, for
    which Reservations keep nothing."""

    def __init__(self, there: ClusterSituation, node: str) -> None:
        self._trial = ClusterTrial(there.state)
        self._of = {one.uid: one for one in there.residents}
        self._node = node

    def nodes_for(self, leaver: Leaver) -> list[str]:
        """Other nodes that take the pod as if it had left."""
        resident = self._of.get(leaver.uid)
        return self._names(resident) if resident is not None else []

    def in_turn(self, leavers: Sequence[Leaver]) -> dict[str, str]:
        """By uid a node with room for each pod that is replaced, beside those before it; "" where there is none."""
        mark, table, found = self._trial.mark, self._trial.table, dict[str, str]()
        for leaver in leavers:
            resident = self._of.get(leaver.uid)
            if not leaver.replaced or resident is None:
                continue
            names = self._names(resident)
            found[leaver.uid] = max(names, key=self._free, default="")
            if found[leaver.uid]:
                self._trial.put(room_for(resident), table.row_of[found[leaver.uid]])
        self._trial.undo(mark)
        return found

    def _names(self, resident: Resident) -> list[str]:
        names = self._trial.names_of(self._trial.rows_for(resident.replacement, instead_of=resident.uid))
        return [name for name in names if name != self._node]

    def _free(self, name: str) -> float:
        """The least part that is free of what the node has."""
        table = self._trial.table
        row = table.row_of[name]
        has, asked = table.allocatable[:, row], table.requested[:, row]
        return float(np.min(1.0 - asked[has > 0] / has[has > 0], initial=1.0))
