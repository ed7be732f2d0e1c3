"""A node's zones (NUMA) as a leader accounts them, for people: what each has, what is free, what is assumed there.

Pure. Free is what a pod may still get by our accounting: for pods of dedicated cores where Katalyst tells of the node.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from services.coordinator.core.core import Core
from services.coordinator.inspect.nodes import NAMES
from shared.model.resources import CPU
from shared.scheduling.numa.books import Books


class ZoneShown(Struct, frozen=True, kw_only=True):
    """One zone: amounts by resource, devices such as GPUs among them. ``assumed``: of what is not free, what pods have
    been given that the object does not show yet. ``socket`` "": the object says none."""

    zone: int
    socket: str
    capacity: dict[str, int]
    allocatable: dict[str, int]
    free: dict[str, int]
    assumed: dict[str, int]


class NumaShown(Struct, frozen=True, kw_only=True):
    """``source``: the kind of the object that tells of the zones; ``age_s``: since this leader heard of it last, and
    one that reads the same again is not heard of; ``doubts``: in what it contradicts itself, or another one."""

    source: str
    policy: str
    scope: str
    age_s: float
    doubts: list[str]
    zones: list[ZoneShown]


def numa_shown(core: Core, name: str, now: float) -> NumaShown | None:
    """Of one node; None where no object tells of its zones."""
    kept = core.state.zones
    topology = kept.topologies.get(name)
    if topology is None:
        return None
    inside = kept.inside(name)
    free = (inside[1] if inside is not None else Books(topology)).free()
    newcomers = Books(topology)
    empty = newcomers.free()
    newcomers.charge(kept.newcomers(name))
    held = {one: [all_ - left for all_, left in zip(empty[one], newcomers.free()[one], strict=True)] for one in empty}
    return NumaShown(
        source=topology.source.value,
        policy=topology.policy.value,
        scope=topology.scope.value,
        age_s=round(max(0.0, now - kept.heard[name]), 3),
        doubts=kept.doubts(name),
        zones=[
            ZoneShown(
                zone=zone.id,
                socket=topology.sockets.get(zone.id, ""),
                capacity=_shown(zone.capacity),
                allocatable=_shown(zone.allocatable),
                free=_shown({one: free[one][index] for one in zone.allocatable if one in free}),
                assumed=_shown({one: amounts[index] for one, amounts in held.items() if amounts[index]}),
            )
            for index, zone in enumerate(topology.zones)
        ],
    )


def _shown(amounts: Mapping[str, int]) -> dict[str, int]:
    """CPUs as milli-CPUs, as nodes show them."""
    return {NAMES.get(name, name): amount * 1000 if name == CPU else amount for name, amount in sorted(amounts.items())}
