"""Whether what was measured can be relied on; what cannot is taken out, and its service holds or rises. Pure.

A reading that is gone, stale, NaN, negative, from the future or of another unit says nothing about load, least of all
that there is none. Source of the rule: kubernetes#99394, #105187 (a scale-down on a broken metric), KEDA#1850.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from shared.autoscaling.safety.answer import larger
from shared.autoscaling.safety.scene import Draft, SafetyScene
from shared.model.controllers.autoscaler import ScalingSignal

FUTURE_S = 5.0
"""A sample may be so much ahead of our clock: clocks differ."""

CEILINGS = {
    ScalingSignal.CPU: (4096.0, "cores of one pod; is it in millicores?"),
    ScalingSignal.MEMORY: (float(1 << 50), "bytes of one pod"),
    ScalingSignal.LATENCY: (600.0, "seconds; is it in milliseconds?"),
    ScalingSignal.ARRIVALS: (1e9, "requests per second"),
    ScalingSignal.SERVED: (1e9, "requests per second"),
    ScalingSignal.FAILED: (1e9, "requests per second"),
    ScalingSignal.QUEUE: (1e12, "waiting requests"),
}
"""More than any service has: the reading is of another unit, or a mistake."""


class SignalReading(Struct, frozen=True):
    """One signal as it was read. ``at_s``: when it was measured, seconds since 1970; ``problem``: why there is none;
    ``pods``: of how many pods it is put together, None where it is not of pods."""

    value: float | None
    at_s: float | None = None
    problem: str = ""
    pods: int | None = None


def checked(
    readings: Mapping[ScalingSignal, SignalReading], *, wall_s: float, stale_after_s: float
) -> tuple[dict[ScalingSignal, float], dict[ScalingSignal, str], float]:
    """(values that can be relied on, what is wrong with the others, age of the oldest value in seconds)."""
    good: dict[ScalingSignal, float] = {}
    bad: dict[ScalingSignal, str] = {}
    oldest = 0.0
    for signal, reading in readings.items():
        why = problem_of(signal, reading, wall_s=wall_s, stale_after_s=stale_after_s)
        if why or reading.value is None:
            bad[signal] = why or "no value"
            continue
        good[signal] = reading.value
        if reading.at_s is not None:
            oldest = max(oldest, wall_s - reading.at_s)
    return good, bad, oldest


def problem_of(signal: ScalingSignal, reading: SignalReading, *, wall_s: float, stale_after_s: float) -> str:
    """Why a reading cannot be relied on; "" where it can."""
    if reading.problem:
        return reading.problem
    value = reading.value
    if value is None:
        return "no value"
    if not math.isfinite(value):
        return f"{value} is no number"
    if value < 0:
        return f"{value:g} is negative"
    ceiling, unit = CEILINGS[signal]
    if value > ceiling:
        return f"{value:g} is more than {ceiling:g} {unit}"
    if reading.at_s is None:
        return ""
    if reading.at_s > wall_s + FUTURE_S:
        return f"it is from {reading.at_s - wall_s:.0f} s in the future"
    if wall_s - reading.at_s > stale_after_s:
        return f"it is {wall_s - reading.at_s:.0f} s old"
    return ""


def hold_or_rise(scene: SafetyScene, draft: Draft) -> None:
    """Never fewer than now, and at least HPA's rule, where a reading is bad."""
    for name, case in scene.services.items():
        if case.bad and case.seen.replicas > 0:
            draft.at_least(name, larger(case), "readings", case.bad[0])
