"""A policy that knows no tables: each job's speed is learned from what it reports while it runs, as on a live cluster.

Each round every job that runs reports its samples per second, off by ``NOISE_SD``; the policy sees the speed that is
learned from these (``shared/jobs/online/learned.py``), and no job's efficiency. A job that has not run yet is left to
``elastic``, as the live service does (``covered.py``).
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from shared.jobs.observation import Decision, JobObservation, JobsObservation, Policy
from shared.jobs.online.learned import Reports, Way
from shared.jobs.policies.covered import Covered

NOISE_SD = 0.05
"""Of the logarithm of what is reported."""


class LearningSpeeds:
    """``inner`` with learned speeds."""

    def __init__(self, inner: Policy, seed: int = 0) -> None:
        self.name = inner.name
        self._inner = Covered(inner)
        self._reports: dict[str, Reports] = {}
        self._rng = np.random.default_rng(seed)

    def reset(self, seed: int) -> None:
        """Forget everything."""
        self._inner.reset(seed)
        self._reports.clear()
        self._rng = np.random.default_rng(seed)

    def decide(self, seen: JobsObservation) -> Decision:
        """The inner one's decision, by what was reported up to now."""
        types = {node.name: node.gpu_type for node in seen.nodes}
        there = {job.name for job in seen.jobs}
        self._reports = {name: reports for name, reports in self._reports.items() if name in there}
        return self._inner.decide(replace(seen, jobs=tuple(self._known(job, types) for job in seen.jobs)))

    def _known(self, job: JobObservation, types: dict[str, str]) -> JobObservation:
        reports = self._reports.setdefault(job.name, Reports())
        if job.workers and job.placement and job.speed is not None:
            placement, kind = tuple(job.placement.values()), types.get(next(iter(job.placement)), "")
            true = job.speed.samples_per_s(placement, job.batch_now, kind)
            reports.add(Way(job.workers, len(placement), job.batch_now), true * self._rng.lognormal(0.0, NOISE_SD))
        return replace(job, speed=reports.speed(job.batch))
