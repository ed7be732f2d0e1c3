"""What pods that are nominated to nodes would take there: kept per priority, moved by who is nominated, or no more.

A gang that is tried yields to all of them on all nodes together, and thousands may be nominated at once: so what they
come to is summed up per class and node as they come and go, and not for each gang that asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from shared.model.constraints import PodClass, gpu_milli_of
from shared.model.pod import Pod
from shared.scheduling.state.node_table import NodeTable

KEPT = 16
"""Priorities for which it is kept."""


def apart(pod_class: PodClass) -> bool:
    """Whether a pod of the class cannot be counted in a sum: it takes ports, or devices of the node's own choice."""
    return bool(pod_class.host_ports) or bool(gpu_milli_of(pod_class))


@dataclass(slots=True, eq=False)
class NominatedPods:
    """Of pods of one priority and above. ``copies``: by class and row, how many; ``apart``: by node, those that are
    to be counted one by one; ``on``: by node, its row and what it adds."""

    copies: dict[PodClass, Counter[int]] = field(default_factory=dict)
    apart: dict[str, list[Pod]] = field(default_factory=dict)
    on: dict[str, tuple[int, Counter[PodClass]]] = field(default_factory=dict)
    seen: int = -1
    clock: int = -1

    def put(self, node_name: str, row: int | None, pods: Iterable[Pod]) -> None:
        """These are nominated to the node now, whoever was before. ``row`` None: there is no such node."""
        before_row, before = self.on.pop(node_name, (0, Counter[PodClass]()))
        for pod_class, count in before.items():
            self._count(pod_class, before_row, -count)
        self.apart.pop(node_name, None)
        if row is None:
            return
        plain = Counter[PodClass]()
        for pod in pods:
            if apart(pod.pod_class):
                self.apart.setdefault(node_name, []).append(pod)
            else:
                plain[pod.pod_class] += 1
        for pod_class, count in plain.items():
            self._count(pod_class, row, count)
        if plain:
            self.on[node_name] = row, plain

    def _count(self, pod_class: PodClass, row: int, count: int) -> None:
        copies = self.copies.setdefault(pod_class, Counter())
        copies[row] += count
        if not copies[row]:
            del copies[row]
            if not copies:
                del self.copies[pod_class]


class NominatedRoom:
    """Over one table and the pods that are nominated to its nodes. ``since``: nodes where that changed, as
    ``ClusterState.renominated_since``."""

    def __init__(
        self,
        table: NodeTable,
        nominated: Mapping[str, Mapping[str, Pod]],
        since: Callable[[int], Iterable[str]],
    ) -> None:
        self._table = table
        self._nominated = nominated
        self._since = since
        self._of: dict[int, NominatedPods] = {}

    def held(self, priority: int, count: int) -> NominatedPods:
        """Of those whose priority is as high, or higher. ``count``: ``ClusterState.nominations`` now. For reading."""
        table = self._table
        known = self._of.get(priority)
        if known is None or known.clock < table.static_stamp:  # nodes came or went: rows are others' now
            if len(self._of) >= KEPT:
                self._of.clear()
            known = self._of[priority] = NominatedPods()
            names: Iterable[str] = self._nominated
        else:
            names = self._since(known.seen)
        if known.seen < count:
            for name in names:
                there = [pod for pod in self._nominated.get(name, {}).values() if pod.priority >= priority]
                known.put(name, table.row_of.get(name), there)
        known.seen, known.clock = count, table.clock
        return known
