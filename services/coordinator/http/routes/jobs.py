"""Training jobs, for people: which there are, where they ran and when they may end, as the leading jobs service says;
and which policy for them is rolled out.

Nothing of it is kept here: while nobody leads the jobs service, ``leading`` is false and the lists are empty.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec

from services.coordinator.http.desk import Desk
from shared.election.record import decode_record as decode_leader
from shared.errors import PeerRejected, PeerUnknown
from shared.jobs.board import Board, JobChange, JobRow, JobSpan
from shared.jobs.online.stages import Rollout
from shared.runtime.http.callers import Role
from shared.runtime.http.routes import PRINTED, SLOW_FRESH_S, Answer, Ask, Because, Reason, Schema, row
from shared.runtime.records.jobs import (
    MOST_PERCENT,
    change_rollout,
    promoted,
    read_rollout,
    set_candidate,
    taken_back,
)

BOARD_S = 2.0
PolicyName = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=PRINTED)]


class JobsAnswer(Answer, frozen=True, kw_only=True):
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


class RolloutAnswer(Answer, frozen=True, kw_only=True):
    """``policy``: of the settings, "" while no jobs service leads. ``stage`` ``none``: nothing is rolled out; the rest
    is then about the last that was. ``ratio``, ``sd``: the candidate's worth by its teacher's over the last window.
    ``forced``: it came to this stage without a good window in the one before."""

    policy: str
    stage: str
    candidate: str
    percent: int
    good: int
    ratio: float
    sd: float
    by: str
    reason: str
    since: str
    forced: bool = False


class SetBody(Schema, frozen=True, kw_only=True):
    """``name``: of ``shared/jobs/registry.py``."""

    name: PolicyName
    reason: Reason = ""


class PromoteBody(Schema, frozen=True, kw_only=True):
    """``percent``: of the jobs, in the canary. ``force``: without a good window."""

    percent: Annotated[int, msgspec.Meta(ge=1, le=MOST_PERCENT)] = 10
    force: bool = False
    reason: Reason = ""


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


async def show_rollout(desk: Desk, _: Ask[Any, Any]) -> RolloutAnswer:
    """The candidate, and how it does."""
    return await _rollout(desk, await read_rollout(desk.store, desk.keys))


async def set_policy(desk: Desk, ask: Ask[Any, SetBody]) -> RolloutAnswer:
    """Begin in shadow. Refused: 422 ``invalid_value``, no such policy; 409 ``conflict``, another is rolled out."""
    body = ask.body
    by, reason = ask.caller.title, body.reason
    held = await change_rollout(
        desk.store, desk.keys, lambda held, now: set_candidate(held, body.name, now=now, by=by, reason=reason),
        term=desk.term, now=desk.wall(),
    )  # fmt: skip
    return await _rollout(desk, held)


async def promote_policy(desk: Desk, ask: Ask[Any, PromoteBody]) -> RolloutAnswer:
    """From shadow to the canary, from there to all jobs. Refused: 409 ``too_few_windows``, no window was good yet;
    409 ``conflict``, there is no further stage."""
    body = ask.body
    by, reason = ask.caller.title, body.reason
    held = await change_rollout(
        desk.store, desk.keys,
        lambda held, now: promoted(held, percent=body.percent, force=body.force, now=now, by=by, reason=reason),
        term=desk.term, now=desk.wall(),
    )  # fmt: skip
    return await _rollout(desk, held)


async def take_back(desk: Desk, ask: Ask[Any, Because]) -> RolloutAnswer:
    """Only the policy of the settings decides again."""
    change = partial(_back, by=ask.caller.title, reason=ask.body.reason.strip() or "taken back by hand")
    held = await change_rollout(desk.store, desk.keys, change, term=desk.term, now=desk.wall())
    return await _rollout(desk, held)


def _back(held: Rollout, now: str, *, by: str, reason: str) -> Rollout:
    return taken_back(held, now=now, by=by, reason=reason)


async def _rollout(desk: Desk, held: Rollout) -> RolloutAnswer:
    return RolloutAnswer(
        policy=(await _board(desk))[0].policy,
        stage=held.stage.value,
        candidate=held.candidate,
        percent=held.percent,
        good=held.good,
        ratio=held.ratio,
        sd=held.sd,
        by=held.by,
        reason=held.reason,
        since=held.since,
        forced=held.forced,
    )


async def _board(desk: Desk) -> tuple[Board, str]:
    """(what the leading jobs service says, why it says nothing)."""
    kv = await desk.store.get(desk.keys.jobs_leader)
    leader = decode_leader(kv.value) if kv is not None else None
    if leader is None or desk.call is None:
        return Board(), "no jobs service leads: 'conclave run jobs', or component jobs (docs/jobs.md)"
    try:
        answer = await desk.call(leader.url, "/v1/board", b"", timeout_s=BOARD_S, service="jobs")
        return msgspec.msgpack.decode(answer, type=Board), ""
    except (PeerRejected, PeerUnknown, msgspec.MsgspecError) as error:
        return Board(), f"the jobs service at {leader.url} gave no answer: {error}"[:256]


ROUTES = (
    row(
        "GET", "/v1/jobs", Role.VIEWER, "Training jobs: where they ran, how they changed, when they may end", show,
        fresh_s=SLOW_FRESH_S, cost=5,
    ),
    row(
        "GET", "/v1/jobs/policy", Role.VIEWER, "Which policy for training jobs is rolled out, and how it does",
        show_rollout, fresh_s=SLOW_FRESH_S,
    ),
    row(
        "PUT", "/v1/jobs/policy", Role.OPERATOR, "Roll a policy for training jobs out, beginning in shadow", set_policy,
        errors=("conflict", "invalid_value"), audit_target=lambda body: body.name,
    ),
    row(
        "POST", "/v1/jobs/policy/promote", Role.OPERATOR, "Take the rolled-out policy a stage further", promote_policy,
        errors=("too_few_windows", "conflict", "invalid_value"), audit_target=lambda _: "jobs/policy",
    ),
    row(
        "POST", "/v1/jobs/policy/back", Role.OPERATOR, "Let the settings' policy alone decide again", take_back,
        errors=("conflict",), audit_target=lambda _: "jobs/policy",
    ),
)  # fmt: skip
