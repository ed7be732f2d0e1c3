"""How a cycle's placements become plans, one binder's each; and what is borrowed where a gang spans shards.

    placements --by whose binder commits them--> plans
    a gang, or a member alone, with nodes of other shards --> a plan of its own, which is not sent before each of those
        has answered a plan to *lend*; what they lent goes along in it, word for word (ADR 0044)

Nothing rests on what is kept here: a loan is compared in etcd when it is used, and ends by itself when it is not. So a
plan that waits for lenders can be given up at any time, and a coordinator that dies leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from services.coordinator.binding.shards import home_of
from services.coordinator.core.state import CoordinatorState
from shared.model.pod import Pod
from shared.scheduling.shards import Shards
from shared.wire.messages import Gang, Placement

Placing = tuple[Placement, Pod]


@dataclass(slots=True)
class PlanPart:
    """What becomes one plan: placements that the binder of ``shard`` commits, and their gangs."""

    shard: str
    each: list[Placing] = field(default_factory=list)
    gangs: list[Gang] = field(default_factory=list)


class KeptUnits(NamedTuple):
    """Of a plan that has waited for lenders: units that stand, their gangs, and units whose gang does not stand."""

    units: set[int]
    gangs: list[Gang]
    lost: set[int]


def parts_of(state: CoordinatorState, placements: Sequence[Placing], gangs: Iterable[Gang]) -> list[PlanPart]:
    """The parts of a cycle's placements. What borrows is a part of its own, so that it holds up nobody."""
    shards = state.shards
    plain: dict[str, PlanPart] = {}
    parts: list[PlanPart] = []
    members: dict[int, list[Placing]] = {}
    gang_of = {unit: gang for gang in gangs for unit in gang.members}
    for one in placements:
        gang = gang_of.get(one[0].unit)
        if gang is not None:
            members.setdefault(gang.unit, []).append(one)
        else:
            _add(parts, plain, shards, PlanPart(_committer(state, one), [one]))
    for gang in {gang.unit: gang for gang in gang_of.values()}.values():
        each = members[gang.unit]
        _add(parts, plain, shards, PlanPart(_committer(state, each[0]), each, [gang]))
    return parts


def _committer(state: CoordinatorState, one: Placing) -> str:
    placement, pod = one
    return home_of(state, pod.group) if pod.group else state.shards.of(placement.node)


def _add(parts: list[PlanPart], plain: dict[str, PlanPart], shards: Shards, part: PlanPart) -> None:
    if any(shards.of(placement.node) != part.shard for placement, _ in part.each):
        part.each = [(_exact(shards, part.shard, placement), pod) for placement, pod in part.each]
        parts.append(part)
        return
    found = plain.get(part.shard)
    if found is None:
        plain[part.shard] = part
        parts.append(part)
        return
    found.each += part.each
    found.gangs += part.gangs


def _exact(shards: Shards, shard: str, placement: Placement) -> Placement:
    """What is borrowed is borrowed on this very node."""
    return placement if shards.of(placement.node) == shard else replace(placement, alternatives=[])


def to_borrow(shards: Shards, shard: str, placements: Iterable[Placement]) -> dict[str, list[Placement]]:
    """What the binder of ``shard`` needs of the others, by lender."""
    wanted: dict[str, list[Placement]] = {}
    for placement in placements:
        if (owner := shards.of(placement.node)) != shard:
            wanted.setdefault(owner, []).append(placement)
    return wanted


def kept(gangs: Sequence[Gang], stand: Mapping[int, bool]) -> KeptUnits:
    """What is left of a plan. ``stand``: by unit, whether it has its room still; a gang stands with its minimum."""
    units = {unit for unit, stands in stand.items() if stands}
    left, lost = [], set[int]()
    for gang in gangs:
        members = [unit for unit in gang.members if unit in units]
        if members and len(members) >= gang.min_count:
            left.append(replace(gang, members=members))
        else:
            lost.update(members)
    return KeptUnits(units - lost, left, lost)
