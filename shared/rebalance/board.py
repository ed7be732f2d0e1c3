"""What a standing rebalancer tells, and its successor goes on with: the present round's plan, and what rounds won."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from shared.rebalance.carrying import Carrying
from shared.rebalance.plan import MovePlan

MOST_ROUNDS = 48
MOST_MOVES, MOST_NOTES = 200, 50
"""Of a plan that is kept: a value of etcd stays below its limit."""


class RoundTold(Struct, frozen=True, kw_only=True):
    """One look at the cluster. ``at``: seconds since 1970; ``since``: the step of the rollout that it belongs to;
    ``before``: the goal's measure then, ``hoped``: what the plan would have made of it; ``planned``, ``made``,
    ``failed``: moves, those by themselves; ``why``: why nothing (more) was moved."""

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
    """With one more round, or the last one as it is by now. Of too many the oldest goes that tried nothing: whether a
    goal comes nearer is told by those that moved, however many looks found no window open between them."""
    rounds = [*(board.rounds if new else board.rounds[:-1]), told]
    while len(rounds) > MOST_ROUNDS:
        idle = (number for number, one in enumerate(rounds[:-1]) if not one.made and not one.failed)
        del rounds[next(idle, 0)]
    return replace(board, rounds=tuple(rounds))


def with_moves(board: RebalanceBoard, carrying: Carrying) -> RebalanceBoard:
    """With where each move of the last round is by now: who comes after a leader that died counts what it made."""
    steps, (made, failed) = carrying.underway[:MOST_MOVES], carrying.ends
    board = with_round(board, replace(board.rounds[-1], made=made, failed=failed), new=False)
    return replace(board, moves={one.move.step: MoveTold(one.state.value, one.why) for one in steps})


def shortened(plan: MovePlan) -> MovePlan:
    """As it is kept and shown: of many moves the first."""
    more, notes = len(plan.moves) - MOST_MOVES, plan.notes[:MOST_NOTES]
    return replace(
        plan, moves=plan.moves[:MOST_MOVES], left_out=plan.left_out[:MOST_MOVES], freed=plan.freed[:MOST_MOVES],
        notes=(*notes, f"{more} more moves are not shown") if more > 0 else notes,
    )  # fmt: skip
