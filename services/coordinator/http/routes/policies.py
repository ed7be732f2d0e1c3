"""Which policy decides, how a candidate does against it, and changing that by hand.

A change is one compare-and-swap of the pointer in etcd, by the same rules as ``conclave policy``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from services.coordinator.http.desk import Desk
from services.coordinator.rollout.view import RolloutView
from shared.decide.stages import Stage
from shared.errors import ConfigError
from shared.policy.registry import MixtureInvalid
from shared.policy.rollout.outcome import GoalUnknown
from shared.policy.weights import MAX_BYTES, digest
from shared.runtime.http.callers import Role
from shared.runtime.http.pages import NumberedPageQuery, page
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.http.routes import PRINTED, SLOW_FRESH_S, Ask, Because, Reason, RouteAnswer, RoutePage, Schema, row
from shared.runtime.records.policies import HistoryRecord, PolicyRow, policy_rows, read_history, read_pointer
from shared.runtime.records.policy_changes import (
    LATELY_S,
    PolicyUnknown,
    activate,
    card_named,
    from_bytes,
    promote,
    withdraw,
)
from shared.wire.records import PolicyPointer, PolicyRef, PolicyWindow

WEIGHTS_BYTES = 4 * MAX_BYTES // 3 + (64 << 10)
"""A body with the largest weights in it, as base64."""

PolicyName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=128,
        pattern=PRINTED,
        description="NAME, NAME@VERSION, a digest's start, or NAME=WEIGHT,NAME=WEIGHT.",
    ),
]


class PoliciesAnswer(RouteAnswer, frozen=True, kw_only=True):
    """``pointer`` null: none has been activated, every agent decides by its own ``--policy``. ``comparison``: who
    promotes the candidate by which rule, and how far it is."""

    pointer: PolicyPointer | None
    items: list[PolicyRow]
    comparison: RolloutView


class PolicyHistoryAnswer(RoutePage, frozen=True, kw_only=True):
    """Newest first."""

    items: list[HistoryRecord]


class PolicyWindowsAnswer(RoutePage, frozen=True, kw_only=True):
    """What the choices of policies were worth over time, newest first; the last 720 windows are kept."""

    items: list[PolicyWindow]


class CardAnswer(RouteAnswer, frozen=True, kw_only=True):
    """The card of a policy's weights, whose fields depend on the policy; of a heuristic, that it has none."""

    name: str
    version: int
    sha256: str
    card: dict[str, Any]


class Activate(Schema, frozen=True, kw_only=True):
    """``percent``: share of pods in the canary, all of them by default; it belongs to the stage canary alone.
    ``promotion``: who takes the candidate further; ``goal``: by which it is compared; left out: what the settings
    ``rollout_promotion`` and ``rollout_goal`` say."""

    name: PolicyName
    stage: Literal["shadow", "canary", "active"] = "canary"
    percent: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    promotion: Literal["manual", "auto"] | None = None
    goal: Literal["neutral", "balance", "gpus", "joules", "latency", "nodes", "packing", "room"] | None = None
    reason: Reason = ""


class TryWeights(Activate, frozen=True, kw_only=True):
    """As ``Activate``, with the weights to be tried: ``data``, a weights file (.npz) of at most 1,500,000 bytes as
    base64, and its ``sha256``. ``name``: NAME or NAME@VERSION as on the file's card; weights whose title others have
    are numbered on, as the answer says."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    data: bytes
    stage: Literal["shadow", "canary", "active"] = "shadow"


class Promote(Schema, frozen=True, kw_only=True):
    """``name``: the candidate. One step further by default, to the stage ``to``, or to ``percent`` of the pods.
    ``number``: of the pointer that was looked at (compare-and-swap); left out, it is the one that the leader goes by,
    and somebody else's step in the last 5 s is a conflict. ``force``: also where too few windows speak for it; the
    history then says so."""

    name: PolicyName
    to: Literal["canary", "active"] | None = None
    percent: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    number: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    force: bool = False
    reason: Reason = ""


class PointerAnswer(RouteAnswer, frozen=True, kw_only=True):
    """The pointer after a change."""

    pointer: PolicyPointer


async def show(desk: Desk, _: Ask[Any, Any]) -> PoliciesAnswer:
    """The pointer, every policy there is, and the comparison."""
    stored, history = await read_pointer(desk.store, desk.keys), await read_history(desk.store, desk.keys)
    view = desk.core.evaluation.view() or RolloutView()
    now = desk.clock()
    rules = [msgspec.structs.replace(rule, at=desk.wall_of(now + rule.in_s)) for rule in view.rules]
    return PoliciesAnswer(
        pointer=stored.pointer,
        items=policy_rows(stored.pointer, history),
        comparison=msgspec.structs.replace(view, rules=rules),
    )


async def history(desk: Desk, ask: Ask[NumberedPageQuery, Any]) -> PolicyHistoryAnswer:
    """What became of policies."""
    records = {-record.pointer.number: record for record in await read_history(desk.store, desk.keys)}
    keys, more = page(records, ask.query, int)
    return PolicyHistoryAnswer(items=[records[key] for key in keys], continue_=more)


async def windows(desk: Desk, ask: Ask[NumberedPageQuery, Any]) -> PolicyWindowsAnswer:
    """What the windows said."""
    _, ring = desk.core, desk.parts.windows
    found = {-window.number: window for window in ring.kept}
    keys, more = page(found, ask.query, int)
    return PolicyWindowsAnswer(items=[found[key] for key in keys], continue_=more)


async def card(desk: Desk, ask: Ask[Any, Any]) -> CardAnswer:
    """The card of one policy's weights. Refused: 404 ``policy_unknown``, 409 ``conflict`` where they are damaged."""
    try:
        ref, found = await card_named(desk.store, desk.keys, ask.path["name"])
    except PolicyUnknown as error:
        raise RequestRefused(str(error), code="policy_unknown") from error
    return CardAnswer(name=ref.name, version=ref.version, sha256=ref.sha256, card=found)


async def activated(desk: Desk, ask: Ask[Any, Activate]) -> PointerAnswer:
    """Let a policy decide. Refused: 404 ``policy_unknown``, 422 ``invalid_value`` and ``mixture_invalid``, 409
    ``conflict``."""
    return await _activated(desk, ask)


async def tried(desk: Desk, ask: Ask[Any, TryWeights]) -> PointerAnswer:
    """Let weights decide that are sent; they and the pointer are one transaction, so what is refused leaves none
    behind. Refused: 413 ``too_large``; 422 ``digest_differs``, ``weights_invalid`` and as ``activated``."""
    body = ask.body
    if len(body.data) > MAX_BYTES:
        raise RequestRefused(f"data: {len(body.data)} bytes; weights have at most {MAX_BYTES}", code="too_large")
    return await _activated(desk, ask, partial(_checked, body))


def _checked(body: TryWeights) -> tuple[PolicyRef, bytes]:
    """The weights of a body. Refused: 422, they are not what was said, or their policy refuses them."""
    if (found := digest(body.data)) != body.sha256:
        raise RequestRefused(
            f"sha256: {body.sha256} was said, the data has {found}; send the file again", code="digest_differs"
        )
    try:
        return from_bytes(body.name, body.data, goal=body.goal or "")
    except (GoalUnknown, MixtureInvalid):
        raise
    except ConfigError as error:
        raise RequestRefused(str(error), code="weights_invalid") from error


async def _activated(
    desk: Desk, ask: Ask[Any, Any], checked: Callable[[], tuple[PolicyRef, bytes]] | None = None
) -> PointerAnswer:
    body: Activate = ask.body
    if body.percent is not None and body.stage != Stage.CANARY.value:
        raise RequestRefused(
            f"percent: belongs to the stage canary; leave it out with {body.stage}", code="invalid_value"
        )
    for name in ("promotion", "goal"):
        if getattr(body, name) is not None and body.stage == Stage.ACTIVE.value:
            raise RequestRefused(
                f"{name}: an active policy is compared with nothing; leave it out with {body.stage}",
                code="invalid_value",
            )
    try:
        # a leader has pods to place meanwhile
        weights = None if checked is None else await asyncio.to_thread(checked)
        pointer = await activate(
            desk.store, desk.keys, body.name, stage=Stage(body.stage), percent=body.percent, by=ask.caller.title,
            reason=body.reason, promotion=body.promotion or "", goal=body.goal or "",
            weights=weights, lacking=desk.core.evaluation.lacking(),
        )  # fmt: skip
    except PolicyUnknown as error:
        raise RequestRefused(str(error), code="policy_unknown") from error
    except GoalUnknown as error:
        raise RequestRefused(str(error), code="invalid_value") from error
    except MixtureInvalid as error:
        raise RequestRefused(str(error), code="mixture_invalid") from error
    return await _obeyed(desk, pointer)


async def promoted(desk: Desk, ask: Ask[Any, Promote]) -> PointerAnswer:
    """Take the candidate a step further. Refused: 422 ``invalid_value``; 409 ``too_few_windows``; 409 ``conflict``
    where there is no such candidate or no such step, and when somebody else changed the pointer first."""
    body = ask.body
    if body.percent is not None and body.to == Stage.ACTIVE.value:
        raise RequestRefused(f"percent: belongs to the stage canary; leave it out with {body.to}", code="invalid_value")
    looked = body.number is not None
    pointer = await promote(
        desk.store, desk.keys, body.name, to=Stage(body.to) if body.to is not None else None, percent=body.percent,
        by=ask.caller.title, reason=body.reason, number=body.number if looked else desk.core.variants.number,
        lately_s=0.0 if looked else LATELY_S, lacking=desk.core.evaluation.lacking(body.number), force=body.force,
    )  # fmt: skip
    return await _obeyed(desk, pointer)


async def _obeyed(desk: Desk, pointer: PolicyPointer) -> PointerAnswer:
    """The answer, once the leader goes by the pointer: who goes on from it is not told that it has just changed."""
    await desk.obeyed(lambda core: core.variants.number >= pointer.number)
    return PointerAnswer(pointer=pointer)


async def rolled_back(desk: Desk, ask: Ask[Any, Because]) -> PointerAnswer:
    """Withdraw the candidate, or go back to the policy before. Refused: 409 ``conflict``, there is none."""
    reason = ask.body.reason.strip() or "rolled back by hand"
    return await _obeyed(desk, await withdraw(desk.store, desk.keys, by=ask.caller.title, reason=reason))


ROUTES = (
    row(
        "GET", "/v1/policies", Role.VIEWER, "Which policy decides, which others there are, and how a candidate does",
        show, fresh_s=SLOW_FRESH_S,
    ),
    row("GET", "/v1/policies/history", Role.VIEWER, "Changes of the policy pointer", history, fresh_s=SLOW_FRESH_S),
    row(
        "GET", "/v1/policies/windows", Role.VIEWER, "What policies' choices were worth, window by window", windows,
        fresh_s=SLOW_FRESH_S,
    ),
    row(
        "GET", "/v1/policies/{name}/card", Role.VIEWER, "The card of a policy's weights", card, fresh_s=SLOW_FRESH_S,
        errors=("policy_unknown", "conflict"),
    ),
    row(
        "POST", "/v1/policies/activate", Role.OPERATOR, "Let a policy decide, in stages", activated,
        errors=("policy_unknown", "mixture_invalid", "conflict", "invalid_value"), audit_target=lambda body: body.name,
    ),
    row(
        "POST", "/v1/policies/weights", Role.ADMIN, "Let weights decide that are sent, in stages", tried,
        body_bytes=WEIGHTS_BYTES,
        errors=(
            "policy_unknown", "mixture_invalid", "weights_invalid", "digest_differs", "conflict", "invalid_value",
        ),
        audit_target=lambda body: f"{body.name} {body.sha256[:12]}",
    ),
    row(
        "POST", "/v1/policies/promote", Role.OPERATOR, "Take the candidate a step further", promoted,
        errors=("too_few_windows", "conflict", "invalid_value"),
    ),
    row(
        "POST", "/v1/policies/rollback", Role.OPERATOR,
        "Withdraw the candidate, or let the previous policy decide again", rolled_back, errors=("conflict",),
    ),
)  # fmt: skip
