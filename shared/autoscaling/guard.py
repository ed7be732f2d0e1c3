"""An autoscaling policy behind the guard of ``shared/decide``: what runs and the HPA's rule stand in for it
(``safety/answer.py``). A late answer is not taken: what it would be written over has moved on, and the rule is at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shared.autoscaling.observation import Observation, Policy
from shared.decide.guard import Guard, Limits, no_clock

AUTOSCALING = Limits(deadline_s=1.0, patience=3, rest=4, late_stands=False)
"""A decision is to take 28 ms. It rests for a minute only: what it does not see, it cannot remember."""
RULE = Limits(deadline_s=1.0, rest=0, late_stands=False)
"""Nothing stands in for the HPA's rule, so it is asked each time."""

AutoscalingGuard = Guard[[Observation], Mapping[str, object]]


def guarded(policy: Policy, limits: Limits, *, clock: Callable[[], float] = no_clock) -> AutoscalingGuard:
    """The policy behind its guard; whether an answer is a number of replicas is asked service by service later."""
    return Guard(lambda seen: dict(policy.decide(seen)), limits, clock=clock)
