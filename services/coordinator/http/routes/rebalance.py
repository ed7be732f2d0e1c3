"""Rebalancing, for people: the present plan, where its moves are, what rounds won, and for which goal it is done.

The leading rebalancer writes it down in etcd, so it is shown also while none leads.
"""

from __future__ import annotations

from typing import Any

from services.coordinator.http.desk import Desk
from services.coordinator.http.routes.rollouts import rows_of
from shared.election.record import decode_record as decode_leader
from shared.rebalance.board import MoveTold, RebalanceBoard, RoundTold
from shared.rebalance.domain import POLICIES, REBALANCE, STAY
from shared.rebalance.plan import MovePlan
from shared.runtime.http.callers import Role
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, RouteAnswer, row
from shared.wire.records import decode_record


class RebalanceAnswer(RouteAnswer, frozen=True, kw_only=True):
    """``leading``: whether a rebalancer leads; the rest is as the last one left it. ``moving``: whether the plan is
    carried out, of ``namespaces`` (none: of all); ``why``: why not. ``moves``: where each move is, by uid/batch.
    ``rounds``: the newest last; times are seconds since 1970."""

    leading: bool
    goal: str
    stage: str
    moving: bool
    why: str
    namespaces: list[str]
    plan: MovePlan | None
    moves: dict[str, MoveTold]
    rounds: list[RoundTold]


async def show(desk: Desk, _: Ask[Any, Any]) -> RebalanceAnswer:
    """All of it."""
    leading = await _leads(desk)
    kv = await desk.store.get(desk.keys.rebalance_board)
    board = (decode_record(kv.value, RebalanceBoard) if kv is not None else None) or RebalanceBoard()
    why = board.why if leading else "no rebalancer leads: 'conclave run rebalancer', or component rebalancer"
    return RebalanceAnswer(
        leading=leading, goal=board.goal, stage=board.stage, moving=board.moving and leading, why=why,
        namespaces=list(board.namespaces), plan=board.plan, moves=board.moves, rounds=list(board.rounds),
    )  # fmt: skip


async def _leads(desk: Desk) -> bool:
    kv = await desk.store.get(desk.keys.leader(REBALANCE.name))
    return kv is not None and decode_leader(kv.value) is not None


async def _settings_policy(desk: Desk) -> str:
    return STAY if await _leads(desk) else ""


ROUTES = (
    row(
        "GET", "/v1/rebalance", Role.VIEWER, "Pods that are moved by themselves: the plan, its moves, what rounds won",
        show, fresh_s=SLOW_FRESH_S, cost=5,
    ),
    *rows_of(REBALANCE, POLICIES, "rebalancing", _settings_policy),
)  # fmt: skip
