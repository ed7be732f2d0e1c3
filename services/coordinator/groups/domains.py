"""To which nodes members of a pod group are confined: the topology domain that it demands, or that was chosen for it.

members run somewhere --> their domain, for late members and replacements too
none runs, a cycle tries the group --> the domain that its own accounting chose, until the cycle is over
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shared.model.pod import Pod
from shared.model.units.pod_group import PodGroup
from shared.scheduling.cycle.feasibility import Diagnosis, FeasibilityCache
from shared.scheduling.groups.placing import Attempt, Exploring, allowed_rows, exploring
from shared.scheduling.groups.topology import domains
from shared.scheduling.parts import in_one_go
from shared.scheduling.pod_groups import PodGroups
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray

NOWHERE = ""
"""No domain holds all members that run."""


class TopologyDomain(NamedTuple):
    """``value`` of the topology label for members of group ``key``."""

    key: str
    value: str


class DomainKeeper:
    """``chosen``: by group, the domain of the attempt under way."""

    def __init__(self, cluster: ClusterState, feasibility: FeasibilityCache, groups: PodGroups) -> None:
        self._cluster = cluster
        self._feasibility = feasibility
        self._groups = groups
        self.chosen: dict[str, str] = {}

    def of(self, pod: Pod) -> TopologyDomain | None:
        """The domain that the pod must go to; None: any."""
        if not pod.group or (group := self._groups.group(pod.group)) is None or group.topology is None:
            return None
        value = self.chosen.get(pod.group)
        if value is None and group.topology.required:
            value = self._occupied(group)
        return None if value is None else TopologyDomain(pod.group, value)

    def rows(self, domain: TopologyDomain) -> BoolArray:
        """``[rows]``: its nodes."""
        group = self._groups.group(domain.key)
        rows = allowed_rows(self._cluster, group, domain.value) if group is not None else None
        return self._cluster.table.present[: self._cluster.table.rows] & False if rows is None else rows

    def attempting(self, group: PodGroup, pods: Sequence[Pod]) -> Exploring[Attempt]:
        """Where the pods would go as things stand, beside the members that run."""
        bound = self._bound(group)
        attempt, _ = yield from exploring(self._cluster, self._feasibility, group, pods, bound)
        return attempt

    def diagnosis(self, pod: Pod) -> Diagnosis | None:
        """Why no node of its domain takes the pod; None if one does, or it is confined to none."""
        group = self._groups.group(pod.group) if pod.group else None
        return in_one_go(self.attempting(group, [pod])).rejected.get(pod.uid) if group is not None else None

    def _bound(self, group: PodGroup) -> list[Pod]:
        index = self._cluster.index
        found = (index.get(uid) for uid in self._groups.members[group.key].bound)
        return [pod for pod in found if pod is not None]

    def _occupied(self, group: PodGroup) -> str | None:
        """The domain of the members that run, and of those on their way; None while there are none."""
        members = self._groups.members.get(group.key)
        if members is None or group.topology is None:
            return None
        accounts = self._cluster.cache.accounts
        on = [accounts[uid].node_name for uid in (*members.bound, *members.away) if uid in accounts]
        if not any(name in self._cluster.table.row_of for name in on):
            return None
        values = domains(self._cluster, group.topology.key, on).values
        return values[0] if values else NOWHERE
