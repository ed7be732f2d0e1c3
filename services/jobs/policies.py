"""Which policy divides the GPUs, by its name in the settings."""

from __future__ import annotations

import time
from dataclasses import replace

from shared.errors import ConfigError
from shared.jobs.domain import JOBS
from shared.jobs.guard import JobsGuard
from shared.jobs.observation import Policy
from shared.jobs.policies.covered import Covered
from shared.jobs.registry import POLICIES, SPEED, make


def policy_named(name: str, seed: int) -> Policy:
    """``ConfigError``: there is none of this name, or what it needs is not installed."""
    try:
        policy = Covered(make(name)) if SPEED in POLICIES.entry(name).needs else make(name)
    except ImportError as error:
        raise ConfigError(f"policy: {name} needs {error.name}, which is not installed here; choose another") from None
    policy.reset(seed)
    return policy


def guarded(name: str, seed: int, deadline_s: float) -> JobsGuard:
    """The policy behind its guard, timed by this thread's own CPU time. ``ConfigError`` as above."""
    limits = replace(JOBS.limits, deadline_s=deadline_s)
    return JobsGuard(policy_named(name, seed), clock=time.thread_time, limits=limits)
