"""An autoscaling policy behind the guard of ``shared/decide``: what runs and the HPA's rule stand in for it
(``safety/answer.py``), which also asks service by service whether an answer is a number of replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shared.autoscaling.observation import Policy, ScalingObservation
from shared.decide.guard import Guard, GuardLimits, no_clock

AutoscalingGuard = Guard[[ScalingObservation], Mapping[str, object]]


def guarded(policy: Policy, limits: GuardLimits, *, clock: Callable[[], float] = no_clock) -> AutoscalingGuard:
    """The policy behind its guard."""
    return Guard(lambda seen: dict(policy.decide(seen)), limits, clock=clock)
