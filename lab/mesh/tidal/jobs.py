"""Offline jobs over a day: workers that come and go, what they have done, and what is lost where they have to leave.

A job is a gang: with GPUs all its workers run or none, without any at least half. It advances with every worker that
runs, while enough do, and saves every ``checkpoint_s``. A worker that leaves loses what it did since then and what it
costs to begin again; a gang that is broken loses that of every worker. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.mesh.tidal.levels import TidalLevels
from lab.traces.tidal import TracedJob


@dataclass(slots=True)
class Worker:
    """A pod of a job. ``node`` -1: on none; ``runs_at_s``: from then on it advances; ``unsaved``: seconds of work
    since the checkpoint."""

    uid: str
    job: OfflineJob
    node: int = -1
    runs_at_s: float = 0.0
    unsaved: float = 0.0
    works: bool = False
    """Whether it has advanced since it began, or its gang broke."""
    leaving: bool = False

    @property
    def cores(self) -> float:
        """What it would use."""
        return self.job.asked.cpu_millis / 1000 * self.job.use


@dataclass(slots=True)
class OfflineJob:
    """One job and its workers. ``left``: seconds of one worker's work, not done or lost again."""

    name: str
    asked: TracedJob
    use: float
    least: int
    left: float
    workers: dict[str, Worker] = field(default_factory=dict)
    saved_at_s: float = 0.0
    begun: bool = False
    made: int = 0
    """Workers made so far."""
    started: bool = False
    """Whether enough ran when it advanced last."""
    saved_now: bool = False
    """Whether it saved in the last step."""
    broken: int = 0
    """How often fewer than ``least`` of several workers were left, and all lost their work."""

    def new_worker(self) -> Worker:
        """One more pod."""
        worker = Worker(f"{self.name}-{self.made}", self)
        self.made += 1
        self.workers[worker.uid] = worker
        return worker

    def placed(self, worker: Worker, node: int, now_s: float, levels: TidalLevels) -> None:
        """It has a node. Who begins again first reads the checkpoint."""
        worker.node = node
        worker.runs_at_s = now_s + levels.start_s + (levels.restore_s if self.begun else 0.0)

    def left_by(self, worker: Worker, levels: TidalLevels) -> float:
        """It was asked to leave: the seconds of work that are lost by it, of all workers where the gang breaks."""
        worker.leaving = True
        lost = self._lose(worker, levels)
        if self.started and self._running() < self.least:
            self.started = False
            self.broken += self.asked.workers > 1
            lost += sum(self._lose(other, levels) for other in self.workers.values() if not other.leaving)
        return lost

    def advance(self, now_s: float, for_s: float, speed: list[float], levels: TidalLevels) -> float:
        """Seconds of work done until ``now_s + for_s``; ``speed`` by node."""
        self.saved_now = False
        running = [one for one in self.workers.values() if one.node >= 0 and not one.leaving and one.runs_at_s <= now_s]
        if len(running) < self.least:
            return 0.0
        if not self.started:
            self.started, self.begun, self.saved_at_s = True, True, now_s
        done = 0.0
        for worker in running:
            did = for_s * speed[worker.node]
            worker.unsaved += did
            worker.works = True
            done += did
        self.left -= done
        if now_s + for_s - self.saved_at_s >= levels.checkpoint_s:
            self.saved_at_s, self.saved_now = now_s + for_s, True
            for worker in running:
                worker.unsaved = 0.0
        return done

    def at_work(self, now_s: float, levels: TidalLevels) -> list[Worker]:
        """Who advances or reads the checkpoint to go on: nobody while too few have started."""
        there = [one for one in self.workers.values() if one.node >= 0 and not one.leaving]
        restore_s = levels.restore_s if self.begun else 0.0
        begun = [one for one in there if one.runs_at_s - restore_s <= now_s]
        return begun if len(begun) >= self.least else []

    def _running(self) -> int:
        return sum(one.node >= 0 and not one.leaving for one in self.workers.values())

    def _lose(self, worker: Worker, levels: TidalLevels) -> float:
        """What it has done since the checkpoint is to be done again, and before that it has to begin anew."""
        lost = worker.unsaved + (levels.restore_s if worker.works else 0.0)
        self.left += worker.unsaved
        worker.unsaved, worker.works = 0.0, False
        return lost
