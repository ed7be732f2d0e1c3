"""What must hold between the sums of a tree of queues, its lines, its units and its pods; a line per broken one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shared.scheduling.queues.nodes import Charge, QueueLine, WaitingUnit
from shared.scheduling.queues.structure import Structure


def broken(
    lines: Mapping[str, QueueLine],
    units: Mapping[str, WaitingUnit],
    charges: Mapping[str, Charge],
    structure: Structure,
) -> Iterator[str]:
    """Nothing while all is well. Costs as all units and pods."""
    for name, line in lines.items():
        used: dict[str, int] = {}
        for pod in line.charges.values():
            for resource, amount in pod.amounts:
                used[resource] = used.get(resource, 0) + amount
        if used != {resource: amount for resource, amount in line.used.items() if amount}:
            yield f"queue-use: queue {name or 'none'} counts {line.used}, its pods use {used}"
        for key in line.units:
            if units.get(key) is None or units[key].line is not line:
                yield f"queue-line: {key} stands in the line of {name or 'no queue'} and is not known there"
    for key, unit in units.items():
        if key not in unit.line.units:
            yield f"queue-line: {key} waits and stands in no line"
    for uid, pod in charges.items():
        if pod.line is None or pod.line.charges.get(uid) is not pod:
            yield f"queue-use: {uid} counts and no queue knows it"
    yield from _broken_sums(structure)


def _broken_sums(structure: Structure) -> Iterator[str]:
    for name, node in structure.nodes.items():
        parts = node.contenders()
        for resource in {resource for part in parts for resource in part.used}:
            total = sum(part.used.get(resource, 0) for part in parts)
            if node.used.get(resource, 0) != total:
                yield f"queue-sum: queue {name or 'root'} counts {node.used.get(resource)} {resource}, not {total}"
        if node.pending != len(node.own.units) + sum(child.pending for child in node.children.values()):
            yield f"queue-sum: queue {name or 'root'} counts {node.pending} waiting units wrongly"
