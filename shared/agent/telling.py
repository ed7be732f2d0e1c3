"""A node's reading and its place among the others as messages carry them. Pure."""

from __future__ import annotations

from shared.agent.readings import HostReading
from shared.agent.vivaldi import Coordinate
from shared.wire.readings import NodeReading, Standing


def told(node: str, reading: HostReading, age_s: float) -> NodeReading:
    """As the wire has it; -1 for what could not be told."""
    pressure = dict(reading.pressure)
    return NodeReading(
        node,
        round(age_s * 1000),
        _count(reading.cpu_millis),
        _count(reading.memory_bytes),
        _share(reading.disk),
        _share(reading.network),
        _count(reading.disk_bytes_per_s),
        _count(reading.network_bytes_per_s),
        [_share(pressure.get(name)) for name in ("cpu", "memory", "io")],
        _count(reading.oom_kills),
        list(reading.missing),
    )


def standing(coordinate: Coordinate | None) -> Standing | None:
    """As the wire has it; None before anybody answered."""
    if coordinate is None:
        return None
    return Standing([round(x, 4) for x in coordinate.at], round(coordinate.height, 4), round(coordinate.error, 4))


def _count(amount: float | None) -> int:
    return -1 if amount is None else round(amount)


def _share(share: float | None) -> float:
    return -1.0 if share is None else min(round(share, 6), 1e6)
