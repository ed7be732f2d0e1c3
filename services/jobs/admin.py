"""What the jobs service shows of itself: who leads, jobs by phase, counters. Read-only."""

from __future__ import annotations

import dataclasses
from functools import partial
from math import nan
from typing import Any

import msgspec
from msgspec import to_builtins

from services.jobs.core.assess import ACTIVE, CHECKPOINTING, REPORTING
from services.jobs.core.showing import board
from services.jobs.core.state import JobState
from services.jobs.core.stats import JobsStats
from services.jobs.shell import JobsShell
from shared.decide.rollout import Rollout
from shared.jobs.board import Board
from shared.model.controllers.training_job import JobPhase
from shared.runtime.http.callers import Caller
from shared.runtime.http.peers import FiguresRoute, PeerRoute
from shared.runtime.leading import Face
from shared.runtime.lease.leadership import leadership_figures
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.service import boottime

COORDINATOR = frozenset({"coordinator"})


class JobsAdmin(Face[JobsShell]):
    """Routes and figures of this process; its term's parts are the shell."""

    def routes(self) -> tuple[FiguresRoute | PeerRoute, ...]:
        """``GET /v1/status``, and for the coordinator ``POST /v1/board``."""
        board = PeerRoute("/v1/board", self.board, roles=COORDINATOR, max_body_bytes=64, max_in_flight=4)
        return (FiguresRoute("/v1/status", self.status), board)

    async def board(self, body: bytes, caller: Caller) -> bytes:  # noqa: ARG002  it asks for all there is
        """What people are shown, in msgpack; of who does not lead that it does not."""
        shell = self.parts
        shown = board(shell.core.state, shell.core.deciding, boottime()) if shell is not None else Board()
        return msgspec.msgpack.encode(shown)

    def register(self, metrics: Metrics) -> None:
        """Show the figures at ``/v1/stats`` and the gauges at ``/metrics``."""
        metrics.figure("jobs", self.stats)
        metrics.leader("jobs", lambda: self.term > 0)
        phases = metrics.gauge("training_jobs", "TrainingJobs by phase", ["phase"])
        for phase in JobPhase:
            phases.labels(phase.value).set_function(partial(self._in_phase, phase))
        metrics.gauge_of(
            "training_jobs_below_minimum", "TrainingJobs that were given workers and run with fewer than their minimum",
            lambda: float(sum(map(_below, self._jobs()))),
        )  # fmt: skip
        metrics.gauge_of(
            "training_job_workers", "Workers that run", lambda: float(sum(s.job.status.running for s in self._jobs()))
        )
        metrics.gauge_of(
            "training_jobs_unplaced", "TrainingJobs whose GPUs were given back because no node took their pods",
            lambda: float(sum(bool(s.job.status.unplaced) for s in self._jobs())),
        )  # fmt: skip
        untold = metrics.gauge(
            "training_jobs_untold", "TrainingJobs by what they fail to tell (Reporting, Checkpointing)", ["condition"]
        )
        for condition in (REPORTING, CHECKPOINTING):
            untold.labels(condition).set_function(partial(self._untold, condition))
        metrics.gauge_of(
            "jobs_policy_resting", "1 while the policy rests and elastic decides", lambda: float(self._resting())
        )
        metrics.gauge_of(
            "jobs_rollout_ratio", "Worth of the candidate policy by its teacher's over the last window; NaN: no window",
            self._ratio,
        )  # fmt: skip
        for field in dataclasses.fields(JobsStats):
            metrics.counter_of(
                f"jobs_{field.name}_total",
                f"{field.name.replace('_', ' ').capitalize()} in this term",
                lambda name=field.name: float(self._count(name)),  # type: ignore[misc]  # bound per counter
            )

    def status(self) -> dict[str, Any]:
        """Who leads, what is still being listed, and what the policy failed with."""
        answer = leadership_figures(self.service_id, self.leadership)
        if self.parts is not None:
            core = self.parts.core
            deciding = core.deciding
            answer |= {
                "missing": sorted(core.missing),
                "policy": deciding.pair.teacher.name,
                "problem": deciding.problem,
            }
            answer |= {"rollout": to_builtins(deciding.pair.rollout)}
            answer |= {"group_api": core.state.group.api_version, "jobs": len(core.state.jobs)}
        return answer

    def stats(self) -> dict[str, Any]:
        """Counters of the term."""
        figures = self.figures()
        if self.parts is not None:
            core = self.parts.core
            figures |= dataclasses.asdict(core.stats)
            figures["jobs"] = {phase.value: int(self._in_phase(phase)) for phase in JobPhase}
            figures |= {"group_api": core.state.group.api_version, "policy": core.deciding.pair.teacher.name}
        return figures

    def _jobs(self) -> list[JobState]:
        return list(self.parts.core.state.jobs.values()) if self.parts is not None else []

    def _untold(self, condition: str) -> float:
        return float(
            sum(
                one.type == condition and one.status == "False"
                for seen in self._jobs()
                if seen.job.status.phase in ACTIVE
                for one in seen.job.status.conditions
            )
        )

    def _resting(self) -> bool:
        return self.parts is not None and self.parts.core.deciding.pair.teacher.resting

    def _ratio(self) -> float:
        rollout = self.parts.core.deciding.pair.rollout if self.parts is not None else Rollout()
        return rollout.ratio if rollout.on and rollout.ratio else nan

    def _in_phase(self, phase: JobPhase) -> float:
        return float(sum(1 for seen in self._jobs() if seen.job.status.phase is phase))

    def _count(self, name: str) -> int:
        return int(getattr(self.parts.core.stats, name)) if self.parts is not None else 0


def _below(seen: JobState) -> bool:
    status = seen.job.status
    return status.phase in ACTIVE and status.target > 0 and status.running < seen.job.least
