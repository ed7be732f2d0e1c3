"""Which policy decides, how a candidate does against it, and changing that by hand.

A change is one compare-and-swap of the pointer in etcd, by the same rules as ``conclave policy``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from services.coordinator.api.access import Role
from services.coordinator.api.answers import invalid, unknown
from services.coordinator.api.desk import Desk
from services.coordinator.api.pages import NumberedPageQuery, page
from services.coordinator.api.routing import PRINTED, SLOW_FRESH_S, Answer, Ask, Because, Page, Reason, Route, Schema
from shared.policy.rollout import Stage
from shared.runtime import policy_listing
from shared.runtime.policy_changes import PolicyUnknown, activate, withdraw
from shared.runtime.policy_store import HistoryRecord, read_history, read_pointer
from shared.wire.records import PolicyPointer

PolicyName = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=128, pattern=PRINTED, description="NAME, NAME@VERSION or a digest's start."),
]


class LastWindow(Answer, frozen=True, kw_only=True):
    """The last window in which candidate and active policy were asked about the same decisions."""

    value: float
    active_value: float
    samples: int
    agreed: int
    p99_ms: float
    active_p99_ms: float
    fallbacks: int
    rejected: int
    active_fallbacks: int
    active_rejected: int


class Comparison(Answer, frozen=True, kw_only=True):
    """``good``, ``bad``: windows of the present stage; ``samples`` of the window that is open."""

    windows: int = 0
    good: int = 0
    bad: int = 0
    samples: int = 0
    failures: dict[str, int] = msgspec.field(default_factory=dict)
    last_window: LastWindow | None = None


class PoliciesAnswer(Answer, frozen=True, kw_only=True):
    """``pointer`` null: none has been activated, every agent decides by its own ``--policy``."""

    pointer: PolicyPointer | None
    items: list[policy_listing.PolicyRow]
    comparison: Comparison


class PolicyHistoryAnswer(Page, frozen=True, kw_only=True):
    """Newest first."""

    items: list[HistoryRecord]


class Activate(Schema, frozen=True, kw_only=True):
    """``percent``: share of pods in the canary, all of them by default; it belongs to the stage canary alone."""

    name: PolicyName
    stage: Literal["shadow", "canary", "active"] = "canary"
    percent: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    reason: Reason = ""


class PointerAnswer(Answer, frozen=True, kw_only=True):
    """The pointer after a change."""

    pointer: PolicyPointer


async def show(desk: Desk, _: Ask[Any, Any]) -> PoliciesAnswer:
    """The pointer, every policy there is, and the comparison."""
    stored, history = await read_pointer(desk.store, desk.keys), await read_history(desk.store, desk.keys)
    figures = desk.core.rolling.figures()
    comparison = {name: figures[name] for name in Comparison.__struct_fields__ if name in figures}
    return PoliciesAnswer(
        pointer=stored.pointer,
        items=policy_listing.rows(stored.pointer, history),
        comparison=msgspec.convert(comparison, Comparison),
    )


async def history(desk: Desk, ask: Ask[NumberedPageQuery, Any]) -> PolicyHistoryAnswer:
    """What became of policies."""
    records = {-record.pointer.number: record for record in await read_history(desk.store, desk.keys)}
    keys, more = page(records, ask.query, int)
    return PolicyHistoryAnswer(items=[records[key] for key in keys], continue_=more)


async def activated(desk: Desk, ask: Ask[Any, Activate]) -> PointerAnswer:
    """Let a policy decide. Refused: 404 ``policy_unknown``, 422 ``invalid_value``, 409 ``conflict``."""
    body = ask.body
    if body.percent is not None and body.stage != Stage.CANARY.value:
        raise invalid(f"percent: belongs to the stage canary; leave it out with {body.stage}")
    try:
        pointer = await activate(
            desk.store, desk.keys, body.name, stage=Stage(body.stage), percent=body.percent, by=ask.caller.title,
            reason=body.reason,
        )  # fmt: skip
    except PolicyUnknown as error:
        raise unknown("policy", str(error)) from error
    return PointerAnswer(pointer=pointer)


async def rolled_back(desk: Desk, ask: Ask[Any, Because]) -> PointerAnswer:
    """Withdraw the candidate, or go back to the policy before. Refused: 409 ``conflict``, there is none."""
    reason = ask.body.reason.strip() or "rolled back by hand"
    return PointerAnswer(pointer=await withdraw(desk.store, desk.keys, by=ask.caller.title, reason=reason))


ROUTES = (
    Route(
        method="GET", path="/v1/policies", role=Role.VIEWER,
        summary="Which policy decides, which others there are, and how a candidate does", answer=PoliciesAnswer,
        handler=show, fresh_s=SLOW_FRESH_S,
    ),
    Route(
        method="GET", path="/v1/policies/history", role=Role.VIEWER, summary="Changes of the policy pointer",
        answer=PolicyHistoryAnswer, query=NumberedPageQuery, handler=history, fresh_s=SLOW_FRESH_S,
    ),
    Route(
        method="POST", path="/v1/policies/activate", role=Role.OPERATOR, summary="Let a policy decide, in stages",
        answer=PointerAnswer, body=Activate, handler=activated,
        errors={404: "policy_unknown", 409: "conflict", 422: "invalid_value"}, audit_target=lambda body: body.name,
    ),
    Route(
        method="POST", path="/v1/policies/rollback", role=Role.OPERATOR,
        summary="Withdraw the candidate, or let the previous policy decide again", answer=PointerAnswer, body=Because,
        handler=rolled_back, errors={409: "conflict"},
    ),
)  # fmt: skip
