"""The rebalancer's HTTP face: who leads, the present plan, what rounds won, and figures. Read-only."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from msgspec import to_builtins

from services.rebalancer.core.stats import RebalancerStats
from services.rebalancer.standing import StandingRebalancer
from shared.decide.stages import Stage
from shared.rebalance.carrying import MoveState
from shared.runtime.http.peers import FiguresRoute
from shared.runtime.leading import Face
from shared.runtime.lease.leadership import leadership_figures
from shared.runtime.observe.metrics import Metrics

STAGES = (Stage.NONE, Stage.SHADOW, Stage.CANARY, Stage.ACTIVE)
TOLD = {
    "rounds": "Looks at the cluster", "moves_planned": "Moves of plans, carried out or not",
    "moves_made": "Pods that were moved", "moves_failed": "Moves that were begun, or were to be, and not made",
    "swept": "Reservations of dead leaders that were given back",
    "rollouts_back": "Goals that were given up by themselves", "unread": "Rounds whose cluster could not be read",
}  # fmt: skip


class RebalancerAdmin(Face[StandingRebalancer]):
    """Routes and figures of this process; its term's parts are the standing rebalancer."""

    def routes(self) -> tuple[FiguresRoute, ...]:
        """``GET /v1/status``, ``GET /v1/rebalance``."""
        return (FiguresRoute("/v1/status", self.status), FiguresRoute("/v1/rebalance", self.board))

    def register(self, metrics: Metrics) -> None:
        """Show the figures at ``/v1/stats`` and the gauges at ``/metrics``."""
        metrics.figure("rebalancer", self.stats)
        metrics.leader("rebalancer", lambda: self.term > 0)
        stages = metrics.gauge("rebalance_stage", "1 for the stage that the goal is in", ["stage"])
        for stage in STAGES:
            stages.labels(stage.value).set_function(partial(self._in_stage, stage))
        metrics.gauge_of(
            "rebalance_goal_value", "The goal's measure at the last look, in its own unit: less is nearer",
            lambda: self.parts.board.plan.before if self.parts is not None and self.parts.board.plan else float("nan"),
        )  # fmt: skip
        underway = metrics.gauge("rebalance_moves", "Moves of the round that is carried out, by state", ["state"])
        for state in MoveState:
            underway.labels(state.value).set_function(partial(self._in_state, state))
        for field in dataclasses.fields(RebalancerStats):
            metrics.counter_of(
                f"rebalance_{field.name}_total", f"{TOLD[field.name]}, in this term", partial(self._count, field.name)
            )

    def status(self) -> dict[str, Any]:
        """Who leads, and which goal is tried."""
        answer = leadership_figures(self.service_id, self.leadership)
        if self.parts is not None:
            rollout, guard = self.parts.pair.rollout, self.parts.pair.candidate
            answer |= {"rollout": to_builtins(rollout), "problem": guard.problem if guard is not None else ""}
            answer |= {"moving": self.parts.board.moving, "why": self.parts.board.why}
        return answer

    def board(self) -> dict[str, Any]:
        """The plan, where its moves are, and the rounds before."""
        if self.parts is None:
            return {"leading": False}
        found: dict[str, Any] = to_builtins(self.parts.shown)
        return {"leading": True} | found

    def stats(self) -> dict[str, Any]:
        """Counters of the term."""
        figures = self.figures()
        return figures | dataclasses.asdict(self.parts.stats) if self.parts is not None else figures

    def _count(self, name: str) -> float:
        return float(getattr(self.parts.stats, name)) if self.parts is not None else 0.0

    def _in_stage(self, stage: Stage) -> float:
        return float(self.parts is not None and self.parts.pair.rollout.stage is stage)

    def _in_state(self, state: MoveState) -> float:
        if self.parts is None or self.parts.carrying is None or not self.parts.board.moving:
            return 0.0
        return float(sum(one.state is state for one in self.parts.carrying.underway))
