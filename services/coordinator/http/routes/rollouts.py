"""Which policy of a domain is tried beside that of its settings, and changing it: the same four routes per domain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec

from services.coordinator.http.desk import Desk
from shared.decide.domain import Domain
from shared.decide.registry import PolicyRegistry
from shared.decide.rollout import MOST_PERCENT, Rollout, begin, promoted, taken_back
from shared.runtime.http.callers import Role
from shared.runtime.http.routes import PRINTED, SLOW_FRESH_S, Ask, Because, Reason, Route, RouteAnswer, Schema, row
from shared.runtime.records.rollouts import change_rollout, read_rollout

PolicyName = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=PRINTED)]


class RolloutAnswer(RouteAnswer, frozen=True, kw_only=True):
    """``policy``: of the settings, "" while nobody leads the service. ``stage`` ``none``: nothing is rolled out; the
    rest is then about the last that was. ``ratio``, ``sd``: the candidate's worth by its teacher's over the last
    window. ``forced``: it came to this step without the good windows that it asks for."""

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
    """``name``: a policy of the domain."""

    name: PolicyName
    reason: Reason = ""


class PromoteBody(Schema, frozen=True, kw_only=True):
    """``name``: of the candidate that is meant; left out: whichever it is. ``percent``: a larger share of the canary;
    left out: the domain's next share, after the last one all. ``force``: also without good windows."""

    name: PolicyName | None = None
    percent: Annotated[int, msgspec.Meta(ge=1, le=MOST_PERCENT)] | None = None
    force: bool = False
    reason: Reason = ""


def rows_of(
    domain: Domain, policies: PolicyRegistry, of: str, settings_policy: Callable[[Desk], Awaitable[str]]
) -> tuple[Route, ...]:
    """The domain's routes. ``of``: what its policies are for, in words; ``settings_policy``: that of its settings."""

    async def told(desk: Desk, held: Rollout) -> RolloutAnswer:
        return RolloutAnswer(policy=await settings_policy(desk), **msgspec.to_builtins(held))

    async def changed(desk: Desk, change: Callable[[Rollout, str], Rollout]) -> RolloutAnswer:
        return await told(
            desk, await change_rollout(desk.store, desk.keys, domain, change, term=desk.term, now=desk.wall())
        )

    async def show(desk: Desk, _: Ask[Any, Any]) -> RolloutAnswer:
        """The candidate, and how it does."""
        return await told(desk, await read_rollout(desk.store, desk.keys, domain))

    async def set_policy(desk: Desk, ask: Ask[Any, SetBody]) -> RolloutAnswer:
        """Begin in shadow. Refused: 422 ``invalid_value``, no such policy; 409 ``conflict``, another is rolled out."""
        body, by = ask.body, ask.caller.title
        return await changed(
            desk, lambda held, now: begin(held, body.name, policies=policies, now=now, by=by, reason=body.reason)
        )

    async def promote(desk: Desk, ask: Ask[Any, PromoteBody]) -> RolloutAnswer:
        """One step further. Refused: 409 ``too_few_windows``, and ``conflict`` where there is no further step."""
        body, by = ask.body, ask.caller.title
        return await changed(
            desk,
            lambda held, now: promoted(
                held,
                domain=domain,
                percent=body.percent,
                force=body.force,
                now=now,
                by=by,
                reason=body.reason,
                name=body.name or "",
            ),
        )

    async def take_back(desk: Desk, ask: Ask[Any, Because]) -> RolloutAnswer:
        """Only the policy of the settings decides again."""
        by, reason = ask.caller.title, ask.body.reason.strip() or "taken back by hand"
        return await changed(desk, lambda held, now: taken_back(held, now=now, by=by, reason=reason))

    path = f"/v1/{domain.name}/policy"
    return (
        row(
            "GET", path, Role.VIEWER, f"Which policy for {of} is rolled out, and how it does", show,
            fresh_s=SLOW_FRESH_S,
        ),
        row(
            "PUT", path, Role.OPERATOR, f"Roll a policy for {of} out, beginning in shadow", set_policy,
            errors=("conflict", "invalid_value"), audit_target=lambda body: body.name,
        ),
        row(
            "POST", f"{path}/promote", Role.OPERATOR, "Take the rolled-out policy a step further", promote,
            errors=("too_few_windows", "conflict", "invalid_value"), audit_target=lambda _: f"{domain.name}/policy",
        ),
        row(
            "POST", f"{path}/back", Role.OPERATOR, "Let the settings' policy alone decide again", take_back,
            errors=("conflict",), audit_target=lambda _: f"{domain.name}/policy",
        ),
    )  # fmt: skip
