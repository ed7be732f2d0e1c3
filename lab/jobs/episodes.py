"""An episode of DL2's kind (TPDS 2021): in each round GPUs are given out one by one from nothing, until *void* ends it.

Action j gives the job in slot j of the window one worker more (its minimum at first), the last action is void. What
comes of the round is then carried out: who keeps its count keeps its nodes. The reward of a void is what the round
brought, the sum over jobs of the share of their whole work that was done (section 4.3 there); every other action has 0.
So the return grows with jobs per time, whatever their size. The window holds the jobs that came first; later ones wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lab.jobs.clusters import JobsCluster
from lab.worlds.training.simulation import SimulatedTrainingJob, Simulation, SimulationSettings
from shared.jobs.observation import JobObservation, JobsObservation
from shared.jobs.policies.goodput import GoodputTables
from shared.jobs.policies.placing import place_kept

Floats = NDArray[np.float32]
FEATURES = ("here", "has", "given", "progress", "left", "waited", "attained", "speed", "gain", "restart")
"""Of each slot: is a job there; workers it has, and is given in this round, as shares of all GPUs; progress; hours of
work left on one GPU and hours since it came, as x / (1 + x); GPU-hours it had, likewise; goodput with what it is given,
beside one worker, as a share of the GPUs; what one worker more would add to that; whether its count is a new one."""


class JobsEpisode:
    """One workload. ``give`` until ``over``."""

    def __init__(
        self,
        jobs: Sequence[SimulatedTrainingJob],
        cluster: JobsCluster,
        *,
        window: int,
        settings: SimulationSettings,
        seed: int,
    ) -> None:
        self.window, self._cluster = window, cluster
        self._simulation = Simulation(jobs, cluster.nodes, settings, seed)
        self._tables: GoodputTables | None = None
        self._given: list[int] = []
        self._seen = self._next_round()

    @property
    def over(self) -> bool:
        """Every job has ended, or the run was given up."""
        return self._simulation.done

    @property
    def simulation(self) -> Simulation:
        """For what became of the jobs."""
        return self._simulation

    @property
    def slots(self) -> tuple[JobObservation, ...]:
        """The jobs in the window."""
        return self._seen.jobs[: self.window]

    def mask(self) -> NDArray[np.int8]:
        """int8 [window + 1]: which actions are allowed; void always is."""
        left = self._left()
        allowed = np.zeros(self.window + 1, np.int8)
        allowed[-1] = 1
        for at, job in enumerate(self.slots):
            has = self._given[at]
            allowed[at] = has < job.maximum and (1 if has else job.minimum) <= left
        return allowed

    def features(self) -> Floats:
        """float32 [window, len(FEATURES)]: see there; all within [0, 1]."""
        found = np.zeros((self.window, len(FEATURES)), np.float32)
        for at, job in enumerate(self.slots):
            given = self._given[at]
            rates = self._rates(job)
            alone = max(float(rates[job.minimum]), 1e-9)
            left_h = (job.remaining_samples or 0.0) / alone / 3600.0
            speed = float(rates[given]) / alone / self._cluster.gpus
            more = float(rates[min(given + 1, len(rates) - 1)]) / alone / self._cluster.gpus
            waited_h, attained_h = (self._seen.now - job.submitted) / 3600.0, job.attained_s / 3600.0
            found[at] = (
                1.0,
                job.workers / self._cluster.gpus,
                given / self._cluster.gpus,
                job.progress or 0.0,
                left_h / (1.0 + left_h),
                waited_h / (1.0 + waited_h),
                attained_h / (1.0 + attained_h),
                min(speed, 1.0),
                min(max(more - speed, 0.0), 1.0),
                float(given != job.workers),
            )
        return found

    def give(self, action: int) -> float:
        """Take an action; the reward. ``ValueError``: it is not allowed."""
        if not (0 <= action <= self.window and self.mask()[action]):
            raise ValueError(f"action {action} is not allowed now")
        if action < self.window:
            self._given[action] += 1 if self._given[action] else self.slots[action].minimum
            return 0.0
        before = {job.name: job.progress or 0.0 for job in self.slots}
        workers = {job.name: count for job, count in zip(self.slots, self._given, strict=True)}
        self._simulation.apply(place_kept(self._seen.jobs, self._cluster.nodes, workers))
        self._simulation.advance(self._simulation.next_moment())
        self._seen = self._next_round()
        after = {job.name: job.progress or 0.0 for job in self._simulation.observe().jobs}
        return sum(after.get(name, 1.0) - progress for name, progress in before.items())

    def _next_round(self) -> JobsObservation:
        while not self._simulation.done and not self._simulation.observe().jobs:
            self._simulation.advance(self._simulation.next_moment())
        seen = self._simulation.observe()
        if self._tables is None:
            self._tables = GoodputTables(seen, range(self._cluster.gpus + 1))
        self._given = [0] * min(len(seen.jobs), self.window)
        return seen

    def _left(self) -> int:
        return self._cluster.gpus - sum(self._given)

    def _rates(self, job: JobObservation) -> NDArray[np.float64]:
        table = self._tables.of(job) if self._tables is not None else None
        if table is None:
            return np.arange(self._cluster.gpus + 1, dtype=np.float64)
        return table.rate
