"""Autoscaling as a domain that is decided about (``shared/decide``).

A policy is tried object by object: what its spec says (mode, canary) and an operator's approval are its stages.
"""

from __future__ import annotations

from shared.decide.domain import Domain
from shared.decide.guard import GuardLimits

AUTOSCALING = Domain(
    name="autoscaler",
    subjects="services",
    service="the autoscaler",
    # a decision is to take 28 ms. A late one is not taken: what it would be written over has moved on, and the rule is
    # at hand. It rests for a minute only: what it does not see, it cannot remember
    limits=GuardLimits(deadline_s=1.0, patience=3, rest=4, late_stands=False),
    shares=(),
)
RULE = GuardLimits(deadline_s=1.0, rest=0, late_stands=False)
"""Of the HPA's rule: nothing stands in for it, so it is asked each time."""
