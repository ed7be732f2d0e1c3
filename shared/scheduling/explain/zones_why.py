"""Why kubelets would not let a pod on: of some nodes what is free in each zone, and what the managers would say."""

from __future__ import annotations

from typing import Any

from shared.model.node_topology import NodeTopology
from shared.model.pod import Pod
from shared.model.resources import CPU, amount_text
from shared.scheduling.numa.books import Books
from shared.scheduling.numa.rule import prepare
from shared.scheduling.state.cluster_state import ClusterState

NAMED = 5
"""Nodes that are named."""


def zones_why(state: ClusterState, pod: Pod, named: int = NAMED) -> list[dict[str, Any]]:
    """The first nodes, by name, whose managers refuse the pod."""
    rule = prepare(state, pod)
    if rule is None:
        return []
    found: list[dict[str, Any]] = []
    mask = rule.mask()
    names, rows = state.table.by_name()
    for name, row in zip(names, rows.tolist(), strict=True):
        if mask[row] or len(found) >= named:
            continue
        reason, message = rule.why(row)
        inside = rule.inside(name)
        answer: dict[str, Any] = {"node": name, "reason": reason, "message": message, "zones": []}
        if inside is not None:
            topology, books = inside
            answer |= {"policy": topology.policy.value, "scope": topology.scope.value}
            answer["zones"] = zones_shown(topology, books)
        found.append(answer)
    return found


def zones_shown(topology: NodeTopology, books: Books) -> list[dict[str, Any]]:
    """Of each zone what is free, of what may be given there, as people read amounts."""
    shown = []
    for index, zone in enumerate(topology.zones):
        free = {CPU: books.cpus_free[index]} if CPU in zone.allocatable else {}
        free |= {name: amounts[index] for name, amounts in books.memory_free.items() if name in zone.allocatable}
        free |= {name: amounts[index] for name, amounts in books.devices_free.items() if name in zone.allocatable}
        shown.append(
            {
                "zone": zone.id,
                "free": {name: _text(name, amount) for name, amount in free.items()},
                "allocatable": {name: _text(name, zone.allocatable[name]) for name in free},
            }
        )
    return shown


def _text(name: str, amount: int) -> str:
    return str(amount) if name == CPU else amount_text(name, amount)
