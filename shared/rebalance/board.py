"""What a standing rebalancer tells, and its successor goes on with: the present round's plan, and what rounds won."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from shared.rebalance.carrying import Carrying
from shared.rebalance.plan import MovePlan

MOST_ROUNDS = 48
MOST_MOVES = 200
"""Of a plan that is kept: a value of etcd stays below its limit."""


class RoundTold(Struct, frozen=True, kw_only=True):
    """One look at the cluster. ``at``: seconds since 1970; ``since``: the step of the rollout that it belongs to;
    ``before``: the goal's measure then, ``hoped``: what the plan would have made of it; ``planned``, ``made``,
    ``failed``: moves; ``why``: why nothing (more) was moved."""

    at: float
    goal: str
    stage: str
    since: str = ""
    unit: str = ""
    before: float = 0.0
    hoped: float = 0.0
    planned: int = 0
    made: int = 0
    failed: int = 0
    why: str = ""


class MoveTold(Struct, frozen=True):
    """Where a move of the plan is, by its step."""

    state: str
    why: str = ""


class RebalanceBoard(Struct, frozen=True, kw_only=True):
    """``namespaces``: whose pods may be moved, () all, where ``moving``; ``why``: why nobody is; ``rounds``: the newest
    last."""

    goal: str = ""
    stage: str = "none"
    moving: bool = False
    why: str = ""
    namespaces: tuple[str, ...] = ()
    plan: MovePlan | None = None
    moves: dict[str, MoveTold] = {}
    rounds: tuple[RoundTold, ...] = ()


def with_round(board: RebalanceBoard, told: RoundTold, *, new: bool) -> RebalanceBoard:
    """With one more round, or the last one as it is by now."""
    rounds = board.rounds if new else board.rounds[:-1]
    return replace(board, rounds=(*rounds, told)[-MOST_ROUNDS:])


def with_moves(board: RebalanceBoard, carrying: Carrying) -> RebalanceBoard:
    """With where each move is by now."""
    steps = carrying.underway[:MOST_MOVES]
    return replace(board, moves={one.move.step: MoveTold(one.state.value, one.why) for one in steps})


def shortened(plan: MovePlan) -> MovePlan:
    """As it is kept and shown: of many moves the first."""
    more = len(plan.moves) - MOST_MOVES
    if more <= 0:
        return plan
    notes = (*plan.notes, f"{more} more moves are not shown")
    return replace(plan, moves=plan.moves[:MOST_MOVES], left_out=plan.left_out[:MOST_MOVES], notes=notes)
