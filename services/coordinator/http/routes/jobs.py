"""Training jobs, for people: which there are, where they ran and when they may end, as the leading jobs service says;
and which policy for them is rolled out.

Nothing of it is kept here: while nobody leads the jobs service, ``leading`` is false and the lists are empty.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.coordinator.http.desk import Desk
from services.coordinator.http.routes.rollouts import rows_of
from shared.election.record import decode_record as decode_leader
from shared.errors import PeerRejected, PeerUnknown
from shared.jobs.board import Board, JobChange, JobRow, JobSpan
from shared.jobs.domain import JOBS
from shared.jobs.registry import POLICIES
from shared.runtime.http.callers import Role
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, RouteAnswer, row

BOARD_S = 2.0


class JobsAnswer(RouteAnswer, frozen=True, kw_only=True):
    """``leading`` false: no jobs service leads, or it did not answer (``problem`` says which). ``now``, ``since`` and
    all other times: seconds since 1970; ``since``: from when on spans and changes are known. ``nodes``: GPUs by
    node."""

    leading: bool
    policy: str
    problem: str
    now: float
    since: float
    jobs: list[JobRow]
    nodes: dict[str, int]
    spans: list[JobSpan]
    changes: list[JobChange]


async def show(desk: Desk, _: Ask[Any, Any]) -> JobsAnswer:
    """All of it."""
    board, problem = await _board(desk)
    return JobsAnswer(
        leading=board.leading,
        policy=board.policy,
        problem=problem or board.problem,
        now=board.now,
        since=board.since,
        jobs=list(board.jobs),
        nodes=board.nodes,
        spans=list(board.spans),
        changes=list(board.changes),
    )


async def _board(desk: Desk) -> tuple[Board, str]:
    """(what the leading jobs service says, why it says nothing)."""
    kv = await desk.store.get(desk.keys.leader(JOBS.name))
    leader = decode_leader(kv.value) if kv is not None else None
    if leader is None or desk.call is None:
        return Board(), "no jobs service leads: 'conclave run jobs', or component jobs (docs/jobs.md)"
    try:
        answer = await desk.call(leader.url, "/v1/board", b"", timeout_s=BOARD_S, service="jobs")
        return msgspec.msgpack.decode(answer, type=Board), ""
    except (PeerRejected, PeerUnknown, msgspec.MsgspecError) as error:
        return Board(), f"the jobs service at {leader.url} gave no answer: {error}"[:256]


async def _settings_policy(desk: Desk) -> str:
    return (await _board(desk))[0].policy


ROUTES = (
    row(
        "GET", "/v1/jobs", Role.VIEWER, "Training jobs: where they ran, how they changed, when they may end", show,
        fresh_s=SLOW_FRESH_S, cost=5,
    ),
    *rows_of(JOBS, POLICIES, "training jobs", _settings_policy),
)  # fmt: skip
