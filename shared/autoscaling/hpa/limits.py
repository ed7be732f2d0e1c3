"""From what the metrics ask for to what is done: stabilisation, scaling policies, bounds.

Source: ``pkg/controller/podautoscaler/horizontal.go`` of Kubernetes 1.36. There are two ways: without ``behavior`` the
older one (a window downwards, a doubling upwards), with it the one of KEP-853. They differ in more than their limits:
the older window includes its end, the newer ones do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from shared.autoscaling.hpa.model import (
    Behavior,
    HpaController,
    HpaObjectSpec,
    Memory,
    Recommendation,
    ScaleEvent,
    ScalingCondition,
    ScalingRules,
)
from shared.autoscaling.hpa.pods import MAX_INT32

WITHIN = "DesiredWithinRange"
DOUBLING, AT_LEAST = 2.0, 4.0
"""Without ``behavior``: up to twice as many, or 4, at once."""


class Settled(NamedTuple):
    """What is to be done, and what the two conditions about it say."""

    replicas: int
    able: ScalingCondition
    limited: ScalingCondition
    recommendations: tuple[Recommendation, ...]


def settle(
    spec: HpaObjectSpec, memory: Memory, *, current: int, wanted: int, now: float, flags: HpaController
) -> Settled:
    """``wanted`` as stabilisation, policies and bounds leave it; it is remembered as it came."""
    seen = memory.recommendations or ()
    if spec.behavior is None:
        return _settle_plain(spec, seen, current, wanted, now, flags)
    window_s = spec.behavior.down.window_s
    down_window_s = int(flags.down_window_s) if window_s is None else window_s
    stabilized, kept = _stabilized(seen, spec.behavior.up.window_s or 0, down_window_s, current, wanted, now)
    word = "ScaleUpStabilized" if wanted >= current else "ScaleDownStabilized"
    replicas, reason = _by_policies(spec, spec.behavior, memory, current, stabilized, now)
    return _settled(replicas, reason, stabilized, wanted, word, kept)


def _settle_plain(
    spec: HpaObjectSpec, seen: tuple[Recommendation, ...], current: int, wanted: int, now: float, flags: HpaController
) -> Settled:
    cutoff = now - flags.down_window_s
    stabilized = max([wanted, *(one.replicas for one in seen if one.at_s >= cutoff)])
    expired = [index for index, one in enumerate(seen) if one.at_s < cutoff]
    limit = int(max(DOUBLING * current, AT_LEAST))
    at_most, word = (limit, "ScaleUpLimit") if spec.maximum > limit else (spec.maximum, "TooManyReplicas")
    if stabilized < spec.minimum:
        replicas, reason = spec.minimum, "TooFewReplicas"
    elif stabilized > at_most:
        replicas, reason = at_most, word
    else:
        replicas, reason = stabilized, WITHIN
    kept = _remembered(seen, expired, Recommendation(wanted, now))
    return _settled(replicas, reason, stabilized, wanted, "ScaleDownStabilized", kept)


def _settled(
    replicas: int, reason: str, stabilized: int, wanted: int, word: str, kept: tuple[Recommendation, ...]
) -> Settled:
    able = ScalingCondition("True", word if stabilized != wanted else "ReadyForNewScale")
    return Settled(replicas, able, ScalingCondition("False" if replicas == stabilized else "True", reason), kept)


def _stabilized(
    seen: tuple[Recommendation, ...], up_window_s: int, down_window_s: int, current: int, wanted: int, now: float
) -> tuple[int, tuple[Recommendation, ...]]:
    """``current``, raised to the lowest recommendation of the up window, lowered to the highest of the down window."""
    up_cutoff, down_cutoff = now - up_window_s, now - down_window_s
    lowest = min([wanted, *(one.replicas for one in seen if one.at_s > up_cutoff)])
    highest = max([wanted, *(one.replicas for one in seen if one.at_s > down_cutoff)])
    expired = [index for index, one in enumerate(seen) if one.at_s < min(up_cutoff, down_cutoff)]
    return min(max(current, lowest), highest), _remembered(seen, expired, Recommendation(wanted, now))


def _remembered(
    seen: tuple[Recommendation, ...], expired: list[int], new: Recommendation
) -> tuple[Recommendation, ...]:
    """The new one takes the place of the last expired one; others that expired stay, and count no more."""
    if not expired:
        return (*seen, new)
    return (*seen[: expired[-1]], new, *seen[expired[-1] + 1 :])


def _by_policies(
    spec: HpaObjectSpec, behavior: Behavior, memory: Memory, current: int, wanted: int, now: float
) -> tuple[int, str]:
    """(replicas, reason). A limit never turns the move round: events of the past at most hold it where it is."""
    if wanted > current:
        limit = max(_up_limit(behavior.up, memory, current, now), current)
        at_most, word = (limit, "ScaleUpLimit") if spec.maximum > limit else (spec.maximum, "TooManyReplicas")
        if wanted > at_most:
            return at_most, word
    elif wanted < current:
        limit = min(_down_limit(behavior.down, memory, current, now), current)
        at_least, word = (limit, "ScaleDownLimit") if spec.minimum < limit else (spec.minimum, "TooFewReplicas")
        if wanted < at_least:
            return at_least, word
    return wanted, WITHIN


def _up_limit(rules: ScalingRules, memory: Memory, current: int, now: float) -> int:
    if rules.select == "Disabled" or not rules.policies:
        return current
    proposed = []
    for policy in rules.policies:
        start = _at_start(memory, policy.period_s, current, now)
        if policy.kind == "Pods":
            proposed.append(start + policy.value)
        else:
            proposed.append(math.ceil(float(start) * (1 + float(policy.value) / 100)))
    chosen = min(proposed) if rules.select == "Min" else max(proposed)
    return min(chosen, MAX_INT32)


def _down_limit(rules: ScalingRules, memory: Memory, current: int, now: float) -> int:
    if rules.select == "Disabled" or not rules.policies:
        return current
    proposed = []
    for policy in rules.policies:
        start = _at_start(memory, policy.period_s, current, now)
        if policy.kind == "Pods":
            proposed.append(start - policy.value)
        else:
            proposed.append(int(float(start) * (1 - float(policy.value) / 100)))
    return max(proposed) if rules.select == "Min" else min(proposed)


def _at_start(memory: Memory, period_s: int, current: int, now: float) -> int:
    """How many replicas there were when the period began; changes of both directions count."""
    cutoff = now - period_s
    return current - _changed(memory.ups, cutoff) + _changed(memory.downs, cutoff)


def _changed(events: Iterable[ScaleEvent], cutoff: float) -> int:
    return sum(event.change for event in events if event.at_s > cutoff)


def with_scale_event(
    spec: HpaObjectSpec, memory: Memory, *, before: int, after: int, now: float
) -> tuple[tuple[ScaleEvent, ...], tuple[ScaleEvent, ...]]:
    """(ups, downs) after the scale was changed. Without ``behavior`` nothing is kept."""
    if spec.behavior is None or before == after:
        return memory.ups, memory.downs
    if after > before:
        return _kept(memory.ups, spec.behavior.up, ScaleEvent(after - before, now)), memory.downs
    return memory.ups, _kept(memory.downs, spec.behavior.down, ScaleEvent(before - after, now))


def _kept(events: tuple[ScaleEvent, ...], rules: ScalingRules, new: ScaleEvent) -> tuple[ScaleEvent, ...]:
    """The new event takes the place of the last one that is older than every policy's period."""
    cutoff = new.at_s - rules.longest_s
    expired = [index for index, event in enumerate(events) if event.at_s < cutoff]
    if not expired:
        return (*events, new)
    return (*events[: expired[-1]], new, *events[expired[-1] + 1 :])
