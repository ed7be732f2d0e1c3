"""Placement as a domain that is decided about (``shared/decide``)."""

from __future__ import annotations

from shared.decide.domain import Domain
from shared.decide.guard import GuardLimits

PLACEMENT = Domain(
    name="pods",
    subjects="pods",
    service="the coordinator",
    limits=GuardLimits(deadline_s=0.05, patience=3, rest=100),  # 1,000 nodes are to take 20 ms at most (p99)
    shares=(1, 10, 50, 100),
    good_windows=3,
)
