"""Training jobs as a domain that is decided about (``shared/decide``)."""

from __future__ import annotations

from shared.decide.domain import Domain
from shared.decide.guard import GuardLimits

JOBS = Domain(
    name="jobs",
    subjects="jobs",
    service="the jobs service",
    limits=GuardLimits(deadline_s=1.0, patience=3, rest=20),  # 2,000 jobs are to take 1 s at most
    shares=(10,),
    good_windows=1,  # half an hour
)
