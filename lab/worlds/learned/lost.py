"""Minutes that services lost in recorded series, by what ailed them: what is worth automating first.

A service loses a moment when fewer replicas are Ready than are asked for, when over ``FAILING`` of what it finishes
fails, or when its latency is above the objective. A moment has one pattern, the first that fits:

    pending            a pod has no node
    out of memory      a pod that is not Ready was killed for its memory lately
    crash loop         a container waits to be started again after a crash
    hang               a container has run for a minute, and its pod is not Ready
    saturated          all are Ready and use nearly all of their cpu, or there are as many as there may be
    dependency failed  it is sound itself, and one that it calls is not
    starting           pods are on their way, and nothing more is known
    unexplained        none of these

Series that a policy would see (``conclave twin series``) tell pending, saturated, dependency failed and starting alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lab.worlds.learned.series import COUNTS, MEASURES, Moment, ServiceRow, rows_of

SERVED, FAILED, LATENCY, CPU = (MEASURES.index(name) for name in ("served", "failed", "latency_s", "cpu_cores"))
FAILING = 0.05
FULL_CPU = 0.85
PATTERNS = (
    "pending", "out of memory", "crash loop", "hang", "saturated", "dependency failed", "starting", "unexplained",
)  # fmt: skip
HINTS = {
    "pending": "room for pods: more nodes, or smaller requests",
    "out of memory": "a higher memory limit: replicas do not help",
    "crash loop": "roll back, or fix it: replicas do not help",
    "hang": "a liveness probe that restarts it, or an autoscaler that replaces it",
    "saturated": "an autoscaler, or higher maximums",
    "dependency failed": "the service that it calls",
    "starting": "a faster start, or replicas asked for earlier",
    "unexplained": "look at its logs",
}


@dataclass(frozen=True, slots=True)
class Loss:
    """``minutes`` that a service lost by one pattern, of ``of_minutes`` that were recorded of it."""

    service: str
    pattern: str
    minutes: float
    of_minutes: float


def lost_minutes(data: bytes, name: str) -> list[Loss]:
    """Of a file of series, the largest first. ``ConfigError`` as ``series.parse_series``."""
    found: dict[tuple[str, str], float] = {}
    recorded: dict[str, float] = {}
    groups = rows_of(data, name)
    for moments in groups.values():
        times = sorted(moments)
        steps = dict(zip(times, np.diff(times).tolist(), strict=False))
        usual = float(np.median(list(steps.values()))) if steps else 0.0
        for time_s in times:
            minutes = min(steps.get(time_s, usual), usual) / 60.0
            services = moments[time_s]
            for service in services:
                recorded[service] = recorded.get(service, 0.0) + minutes
                pattern = pattern_of(service, services)
                if pattern:
                    found[service, pattern] = found.get((service, pattern), 0.0) + minutes
    losses = [Loss(service, pattern, minutes, recorded[service]) for (service, pattern), minutes in found.items()]
    return sorted(losses, key=lambda one: (-one.minutes, one.service, one.pattern))


def pattern_of(service: str, moment: Moment) -> str:
    """What ails a service at one moment; "": nothing."""
    row = moment[service]
    if not _loses(row):
        return ""
    replicas, ready, starting, pending = row.counts
    cpu, request = row.measures[CPU], row.number("cpu_request")
    full = (request > 0 and cpu / request >= FULL_CPU) or ready >= row.number("maximum")
    tests = (
        ("pending", pending > 0),
        ("out of memory", row.number("oom_killed") > 0),
        ("crash loop", row.number("crash_loop") > 0),
        ("hang", row.number("hung") > 0),
        ("saturated", ready >= replicas and full),
        ("dependency failed", ready >= replicas and any(_loses(moment[one]) for one in row.calls if one in moment)),
        ("starting", starting > 0 or ready < replicas),
    )
    return next((name for name, fits in tests if fits), "unexplained")


def table_of(losses: Sequence[Loss]) -> list[str]:
    """Lines for a terminal."""
    if not losses:
        return ["no minute was lost"]
    width = max(len(one.service) for one in losses)
    lines = [f"{'service':<{max(width, 7)}}  {'pattern':<17}  {'minutes':>8}  {'share':>6}  what helps"]
    for one in losses:
        share = one.minutes / one.of_minutes if one.of_minutes else 0.0
        figures = f"{one.minutes:>8.1f}  {share:>6.1%}"
        lines.append(f"{one.service:<{max(width, 7)}}  {one.pattern:<17}  {figures}  {HINTS[one.pattern]}")
    return lines


def _loses(row: ServiceRow) -> bool:
    finished = row.measures[SERVED] + row.measures[FAILED]
    failing = finished > 0 and row.measures[FAILED] / finished > FAILING
    replicas, ready = row.counts[COUNTS.index("replicas")], row.counts[COUNTS.index("ready")]
    return ready < replicas or failing or row.measures[LATENCY] > row.number("objective_s")
