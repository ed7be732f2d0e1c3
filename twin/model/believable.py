"""What of a capture's series can be: what cannot is taken for not measured, and told with the other holes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from twin.model.capture import PARTS, Capture, Series
from twin.model.usage import UsageLimits

MOST_TOLD = 3
"""Nodes that are told by name, of each kind of line."""
BEYOND = 10.0
"""So many times what a node can allocate no cpu or memory of it is used: such a value jumped, or is of another unit."""
FEWEST_STILL = 10
"""Equal values of cpu and memory, all that a node has, by which nobody measured it."""
HELD = PARTS[:2]
"""What every node has a limit of."""


def believable(capture: Capture, limits: Mapping[str, UsageLimits]) -> tuple[Capture, list[str]]:
    """(the capture without cpu and memory that its nodes, of these ``limits``, cannot have used; a line for each node
    where something cannot be, stands still or is missing, the worst first)."""
    if not capture.has_metrics:
        return capture, ["no metrics: pods are taken to use what they request"]
    series, wrong, still = dict(capture.series), dict[str, int](), list[str]()
    for name, limit in limits.items():
        series[name], wrong[name] = _possible(capture.series.get(name, {}), limit)
        if _stands_still(series[name]):
            still.append(f"node {name}: its cpu and memory never change; it reads a copy, or nothing measures it")
    capture = msgspec.structs.replace(capture, series=series)
    lacking = {name: _lacking(series[name]) for name in limits}
    lines = [
        _hole(name, lacking[name], wrong[name])
        for name in sorted(limits, key=lambda name: (-lacking[name], name))
        if lacking[name]
    ]
    return capture, [*_first(lines, "nodes with holes"), *_first(still, "nodes that never change")]


def _possible(series: Series, limit: UsageLimits) -> tuple[Series, int]:
    """(the series, how many values of it cannot be and are left out)."""
    found, wrong = dict(series), 0
    for part, whole in zip(HELD, (limit.cpu_millis, limit.memory_bytes), strict=True):
        values = series.get(part)
        if values is not None and whole > 0:
            found[part] = [None if value is not None and value > BEYOND * whole else value for value in values]
            wrong += sum(one is not two for one, two in zip(values, found[part], strict=True))
    return found, wrong


def _stands_still(series: Series) -> bool:
    told = [[value for value in series.get(part) or () if value is not None] for part in HELD]
    return all(len(values) >= FEWEST_STILL and len(set(values)) == 1 for values in told)


def _lacking(series: Series) -> float:
    """The share of cpu or memory, whichever is more, that was not measured."""
    return max(
        1.0 if values is None else sum(value is None for value in values) / max(len(values), 1)
        for values in (series.get(part) for part in HELD)
    )


def _hole(name: str, share: float, wrong: int) -> str:
    beyond = f"; {wrong} values beyond {BEYOND:g} times what it can allocate are left out" if wrong else ""
    rest = "it is taken to use none beside its pods" if share == 1.0 else "the rest of the series stands for it"
    return f"node {name}: {max(share, 0.01):.0%} of its cpu or memory was not measured; {rest}{beyond}"


def _first(lines: Sequence[str], what: str) -> list[str]:
    more = len(lines) - MOST_TOLD
    return [*lines[:MOST_TOLD], *([f"and {more} more {what}"] if more > 0 else [])]
