"""What is asked for a pod that is to leave a node: room for one as its owner makes it, anywhere but there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from shared.kube.objects import KubeNode, KubePod
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.kube.pods.convert_relations import node_images
from shared.kube.pods.standing_pods import SourcedPod
from shared.kube.resources import NODES, PODS, Resource
from shared.model.pod import Pod
from shared.model.terms.relations import NO_RELATIONS
from shared.rebalance.draining.leavers import Leaver
from shared.rebalance.planner import ClusterSituation
from shared.rebalance.residents import Resident
from shared.rebalance.trial import COPY, ClusterTrial, copy_of, room_for
from shared.scheduling.state.node_table import BoolArray

Json = dict[str, Any]
LEAST_PRIORITY, MOST_PRIORITY = -(10**9), 10**9
"""Of a Reservation."""
MOST_NAMES = 512
"""That a Reservation may name (``spec.nodes.names`` of its definition)."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HARD = "DoNotSchedule"


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
    labels = raw.metadata.labels or {}
    if leaver.ruled and names:
        _free_of_rules(spec)
        labels = {}
    if not names:
        _keep_off(spec, node)
    _, kind, name, _ = leaver.owner
    return {
        "template": {"metadata": {"labels": labels}, "spec": spec},
        "owners": [{"controller": {"kind": kind, "name": name}}],
        **({"nodes": {"names": list(names)}} if names else {}),
        "priority": min(max(raw.spec.priority or 0, LEAST_PRIORITY), MOST_PRIORITY),
        "allocateOnce": True,
        "ttlSeconds": time_to_live_s,
    }


def _free_of_rules(spec: Json) -> None:
    """Rules among pods would be judged beside the pod that leaves; ``names`` are judged without it."""
    for kind in ("podAffinity", "podAntiAffinity"):
        (spec.get("affinity", {}).get(kind) or {}).pop(REQUIRED, None)
    soft = [one for one in spec.pop("topologySpreadConstraints", None) or () if one["whenUnsatisfiable"] != HARD]
    if soft:
        spec["topologySpreadConstraints"] = soft


def _keep_off(spec: Json, node: str) -> None:
    """Not on the node, also where the pod tolerates that it is cordoned."""
    elsewhere = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    terms = affinity.setdefault(REQUIRED, {}).setdefault("nodeSelectorTerms", [])
    for term in terms or [terms.append({}) or terms[0]]:
        term["matchFields"] = [*(term.get("matchFields") or ()), elsewhere]


class Going(NamedTuple):
    """A pod that leaves, or has left. ``target``: where its replacement is expected, "" nowhere, or it stands there
    already; ``room``: the uid of the Reservation that is kept for it."""

    uid: str
    target: str = ""
    room: str = ""


Way = Sequence[Going]
"""How it may come out: those who are gone by then."""


class RoomJudge:
    """Which nodes take a pod, by every filter over the cluster as it was read and was seen since: also by its volumes
    and claims, for which Reservations keep nothing, and by the rules among pods once who leaves does not count."""

    def __init__(self, there: ClusterSituation, node: str) -> None:
        self._trial = ClusterTrial(there.state)
        self._state = there.state
        self._of = {one.uid: one for one in there.residents}
        self._node = node

    # --- what is seen ---------------------------------------------------------------------------------------------

    def see_pod(self, raw: KubePod, *, gone: bool) -> None:
        """A pod as a watch shows it."""
        uid = raw.metadata.uid
        known = self._state.index.get(uid)
        if gone:
            self._state.forget(uid)
        elif known is None or known.resource_version != raw.metadata.resource_version:
            self._state.observe(pod_from_api(raw))

    def see_room(self, reserve: Pod, *, gone: bool) -> None:
        """A reserve pod; room that is only asked for is none."""
        if gone or reserve.finished or not reserve.node_name:
            self._state.forget(reserve.uid)
        else:
            self._state.observe(reserve)

    def see_node(self, raw: KubeNode, *, gone: bool) -> None:
        """A node. ``ObjectError``: it cannot be read."""
        if gone:
            self._state.remove_node(raw.metadata.name)
        else:
            self._state.upsert_node(node_from_api(raw), node_images(raw))

    def only(self, resource: Resource[Any], uids: set[str], names: set[str]) -> None:
        """A list shows these alone."""
        if resource is NODES:
            for name in [name for name in self._trial.table.row_of if name not in names]:
                self._state.remove_node(name)
            return
        for uid in [uid for uid in self._state.cache.accounts if uid not in uids]:
            pod = self._state.index.get(uid)
            if pod is not None and (pod.reserves is not None) == (resource is not PODS):
                self._state.forget(uid)

    # --- what is asked --------------------------------------------------------------------------------------------

    def nodes_for(self, leaver: Leaver, *ways: Way) -> list[str]:
        """Other nodes that take its replacement, whichever way it comes out; at most what a Reservation may name, the
        freest ones."""
        resident = self._of.get(leaver.uid)
        if resident is None:
            return []
        mask = np.logical_and.reduce([self._rows(resident, way) for way in ways or ((),)])
        names = [name for name in self._trial.names_of(mask) if name != self._node]
        return names if len(names) <= MOST_NAMES else sorted(names, key=self._free, reverse=True)[:MOST_NAMES]

    def fits(self, leaver: Leaver, node: str, room: str, *ways: Way) -> bool:
        """Whether the node takes its replacement into its ``room``, whichever way it comes out. What is not known here
        the mesh has judged."""
        resident, row = self._of.get(leaver.uid), self._trial.table.row_of.get(node)
        if resident is None or row is None:
            return True
        return all(bool(self._rows(resident, way, room)[row]) for way in ways or ((),))

    def in_turn(self, leavers: Sequence[Leaver]) -> dict[str, str]:
        """By uid a node for each pod that is replaced, "" where none has room: as a drain goes. Room is kept for all
        beside one another while they stand, and looked at again as each leaves after those before it."""
        mark, found, going = self._trial.mark, dict[str, str](), list[Going]()
        replaced = [one for one in leavers if one.replaced and one.uid in self._of]
        for leaver in replaced:
            found[leaver.uid] = self._keep(leaver)
        for leaver in replaced:
            uid, room = leaver.uid, leaver.uid + COPY
            if found[uid] and not self.fits(leaver, found[uid], room, going):
                self._trial.take(room)
                found[uid] = self._keep(leaver, going)
            if found[uid]:
                going.append(Going(uid, found[uid], room))
        self._trial.undo(mark)
        return found

    def _keep(self, leaver: Leaver, *ways: Way) -> str:
        """Keep room on the freest node; "" where there is none."""
        name = max(self.nodes_for(leaver, *ways), key=self._free, default="")
        if name:
            room = room_for(self._of[leaver.uid])
            relations = replace(room.relations or NO_RELATIONS, affinity=(), anti_affinity=(), spread=())
            self._trial.put(replace(room, relations=relations), self._trial.table.row_of[name])
        return name

    def _rows(self, resident: Resident, way: Way, room: str = "") -> BoolArray:
        trial, mark = self._trial, self._trial.mark
        for one in way:
            trial.take(one.uid)
            trial.take(one.room)
            stayed, row = self._of.get(one.uid), trial.table.row_of.get(one.target)
            if stayed is not None and row is not None:
                trial.put(copy_of(stayed), row)
        trial.take(room)
        rows = trial.rows_for(resident.replacement, instead_of=resident.uid)
        trial.undo(mark)
        return rows

    def _free(self, name: str) -> float:
        """The least part that is free of what the node has."""
        table = self._trial.table
        row = table.row_of[name]
        has, asked = table.allocatable[:, row], table.requested[:, row]
        return float(np.min(1.0 - asked[has > 0] / has[has > 0], initial=1.0))
