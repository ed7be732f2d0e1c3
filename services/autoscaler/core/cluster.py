"""What the watches show of the cluster, indexed as decisions read it. Pure.

Pods of a Deployment are found by the owners of their ReplicaSets, those of StatefulSets and ReplicaSets by their owner;
only where the owners are not known to us, pods are found by the Scale's selector, as HPA does: labels are anybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.autoscaler.core.events import (
    BudgetGone,
    BudgetSeen,
    Event,
    HpaFact,
    HpaGone,
    HpaSeen,
    NodeFact,
    PodFact,
    ScaledListed,
    ScaledNodeGone,
    ScaledNodeSeen,
    ScaledPodGone,
    ScaledPodSeen,
    SetGone,
    SetSeen,
    TargetFact,
)
from shared.autoscaling.safety.scene import FreeNode
from shared.kube.label_selectors import SelectorError, parse_label_selector
from shared.model.cluster_objects import DisruptionBudget
from shared.model.controllers.autoscaler import TargetRef
from shared.model.resources import CPU, MEMORY
from shared.model.terms.labels import selects

OWNING = ("StatefulSet", "ReplicaSet")


@dataclass(slots=True)
class ScaledCluster:
    """The cluster as told so far."""

    pods: dict[str, PodFact] = field(default_factory=dict)
    nodes: dict[str, NodeFact] = field(default_factory=dict)
    hpas: dict[str, HpaFact] = field(default_factory=dict)
    budgets: dict[str, DisruptionBudget] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    """Kinds of which nothing was told because the server refused to."""
    _sets: dict[str, str] = field(default_factory=dict)
    _sets_of: dict[str, set[str]] = field(default_factory=dict)
    _owned: dict[str, dict[str, PodFact]] = field(default_factory=dict)
    _in_namespace: dict[str, dict[str, PodFact]] = field(default_factory=dict)
    _used: dict[str, list[float]] = field(default_factory=dict)
    """By node: cores, bytes and pods that are taken."""

    def take(self, event: Event) -> bool:
        """Take in a change; False: it is none of the cluster."""
        match event:
            case ScaledPodSeen(pod):
                self._drop(pod.uid)
                self._add(pod)
            case ScaledPodGone(uid):
                self._drop(uid)
            case SetSeen(uid, owner):
                self._drop_set(uid)
                self._sets[uid] = owner
                self._sets_of.setdefault(owner, set()).add(uid)
            case SetGone(uid):
                self._drop_set(uid)
            case ScaledNodeSeen(node):
                self.nodes[node.name] = node
            case ScaledNodeGone(name):
                self.nodes.pop(name, None)
            case HpaSeen(hpa):
                self.hpas[f"{hpa.namespace}/{hpa.name}"] = hpa
            case HpaGone(key):
                self.hpas.pop(key, None)
            case BudgetSeen(budget):
                self.budgets[f"{budget.namespace}/{budget.name}"] = budget
            case BudgetGone(key):
                self.budgets.pop(key, None)
            case ScaledListed(kind, served):
                self.listed.add(kind)
                if not served:
                    self.refused.add(kind)
            case _:
                return False
        return True

    def _add(self, pod: PodFact) -> None:
        self.pods[pod.uid] = pod
        self._in_namespace.setdefault(pod.namespace, {})[pod.uid] = pod
        if pod.owner:
            self._owned.setdefault(pod.owner, {})[pod.uid] = pod
        self._count(pod, 1)

    def _drop(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        for index, name in ((self._in_namespace, pod.namespace), (self._owned, pod.owner)):
            if name in index:
                index[name].pop(uid, None)
                if not index[name]:
                    del index[name]
        self._count(pod, -1)

    def _count(self, pod: PodFact, sign: int) -> None:
        if pod.node and not pod.ended:
            used = self._used.setdefault(pod.node, [0.0, 0.0, 0.0])
            used[0] += sign * pod.takes.get(CPU, 0.0)
            used[1] += sign * pod.takes.get(MEMORY, 0.0)
            used[2] += sign
            if not used[2]:
                del self._used[pod.node]

    def _drop_set(self, uid: str) -> None:
        owner = self._sets.pop(uid, None)
        if owner is not None:
            self._sets_of[owner].discard(uid)
            if not self._sets_of[owner]:
                del self._sets_of[owner]

    # --- what decisions ask ------------------------------------------------------------------------------------------

    def pods_of(self, namespace: str, ref: TargetRef, target: TargetFact) -> list[PodFact]:
        """The pods of a workload, by name, those that have ended or go too: the HPA's rule knows what they mean."""
        found: Iterable[PodFact]
        if ref.kind == "Deployment" and ref.api_version.startswith("apps/"):
            found = [pod for owner in self._sets_of.get(target.uid, ()) for pod in self._owned.get(owner, {}).values()]
        elif ref.kind in OWNING and ref.api_version.startswith("apps/"):
            found = self._owned.get(target.uid, {}).values()
        else:
            found = filter(_selected_by(target.selector), self._in_namespace.get(namespace, {}).values())
        return sorted(found, key=lambda pod: pod.name)

    def owns(self, ref: TargetRef) -> bool:
        """Whether the pods of such a workload are found by their owners, and by labels nobody's."""
        return ref.api_version.startswith("apps/") and ref.kind in ("Deployment", *OWNING)

    def names_in(self, namespace: str) -> set[str]:
        """The pods there."""
        return {pod.name for pod in self._in_namespace.get(namespace, {}).values()}

    def free_nodes(self) -> tuple[FreeNode, ...]:
        """What the nodes that take pods have left, by name."""
        found = []
        for name in sorted(self.nodes):
            node = self.nodes[name]
            if node.takes:
                cpu, memory, pods = self._used.get(name, (0.0, 0.0, 0.0))
                found.append(FreeNode(max(node.cpu - cpu, 0.0), max(node.memory - memory, 0.0), node.pods - int(pods)))
        return tuple(found)

    def draining(self, pods: Iterable[PodFact]) -> str:
        """A pod on a node that somebody empties, in words; "" for none."""
        for pod in pods:
            node = self.nodes.get(pod.node)
            if node is not None and node.cordoned:
                return f"a drain: {pod.name} is on {node.name}, which is cordoned"
        return ""

    def disruptions(self, namespace: str, pods: Iterable[PodFact]) -> int | None:
        """How many of the pods their budgets let go now, the strictest; None without a budget."""
        pods = list(pods)
        found = [
            budget.allowed
            for budget in self.budgets.values()
            if budget.namespace == namespace and any(selects(budget.selector, pod.labels) for pod in pods)
        ]
        return min(found, default=None)

    def hpas_of(self, namespace: str, ref: TargetRef) -> list[HpaFact]:
        """The HPAs that scale a workload, by name. Versions of a group are one kind."""
        group = ref.api_version.partition("/")[0]
        return sorted(
            (
                hpa
                for hpa in self.hpas.values()
                if hpa.namespace == namespace
                and (hpa.ref.kind, hpa.ref.name) == (ref.kind, ref.name)
                and hpa.ref.api_version.partition("/")[0] == group
            ),
            key=lambda hpa: hpa.name,
        )

    def validate(self) -> list[str]:
        """What is wrong with the indexes, a line each."""
        found = []
        used: dict[str, float] = {}
        for pod in self.pods.values():
            if pod.node and not pod.ended:
                used[pod.node] = used.get(pod.node, 0.0) + 1
            if pod.owner and pod.uid not in self._owned.get(pod.owner, {}):
                found.append(f"cluster: pod {pod.name} is not under its owner")
        if used != {node: amounts[2] for node, amounts in self._used.items()}:
            found.append("cluster: the pods counted on nodes are not those that are there")
        if sum(map(len, self._in_namespace.values())) != len(self.pods):
            found.append("cluster: the pods by namespace are not all pods")
        return found


def _selected_by(text: str) -> Callable[[PodFact], bool]:
    """Which pods a Scale's selector picks; none where there is no usable one."""
    try:
        selector = parse_label_selector(text) if text else None
    except SelectorError:
        selector = None
    return lambda pod: selector is not None and selector.matches(pod.labels)
