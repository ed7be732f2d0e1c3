"""Pause and resume: while paused nothing new is offered, what is under way finishes, and the queue fills.

The pause lies in etcd, so it survives a failover; saying again what holds changes nothing.
"""

from __future__ import annotations

from typing import Any

from services.coordinator.http.access import Role
from services.coordinator.http.desk import Desk
from services.coordinator.http.routing import SLOW_FRESH_S, Answer, Ask, Because, Route
from shared.runtime.records.control import control_of, set_paused
from shared.wire.records import Paused


class SchedulingAnswer(Answer, frozen=True, kw_only=True):
    """Whether pods are being placed. The other fields say who paused it; empty while it runs. ``obeyed``: the leader
    goes by it; false after a change that it has not heard of in 2 s, and will."""

    paused: bool
    obeyed: bool = True
    by: str = ""
    reason: str = ""
    since: str = ""


def answer_of(paused: Paused | None, *, obeyed: bool = True) -> SchedulingAnswer:
    """As answered."""
    if paused is None:
        return SchedulingAnswer(paused=False, obeyed=obeyed)
    return SchedulingAnswer(paused=True, obeyed=obeyed, by=paused.by, reason=paused.reason, since=paused.since)


async def show(desk: Desk, _: Ask[Any, Any]) -> SchedulingAnswer:
    """Whether scheduling is paused."""
    kv = await desk.store.get(desk.keys.control_paused)
    holds = control_of(desk.keys, [kv] if kv is not None else [])[0]
    core = desk.admin.core
    return answer_of(holds, obeyed=core is not None and (core.state.paused is not None) is (holds is not None))


async def pause(desk: Desk, ask: Ask[Any, Because]) -> SchedulingAnswer:
    """Offer nothing new."""
    return await _set(desk, ask, paused=True)


async def resume(desk: Desk, ask: Ask[Any, Because]) -> SchedulingAnswer:
    """Go on."""
    return await _set(desk, ask, paused=False)


async def _set(desk: Desk, ask: Ask[Any, Because], *, paused: bool) -> SchedulingAnswer:
    holds = await set_paused(
        desk.store, desk.keys, paused, by=ask.caller.title, reason=ask.body.reason, now=desk.wall()
    )
    return answer_of(holds, obeyed=await desk.obeyed(lambda core: (core.state.paused is not None) is paused))


ROUTES = (
    Route(
        method="GET", path="/v1/scheduling", role=Role.VIEWER, summary="Whether scheduling is paused, by whom and why",
        answer=SchedulingAnswer, handler=show, fresh_s=SLOW_FRESH_S,
    ),
    Route(
        method="POST", path="/v1/scheduling/pause", role=Role.OPERATOR,
        summary="Offer nothing new; what is under way finishes", answer=SchedulingAnswer, body=Because, handler=pause,
    ),
    Route(
        method="POST", path="/v1/scheduling/resume", role=Role.OPERATOR, summary="Go on placing pods",
        answer=SchedulingAnswer, body=Because, handler=resume,
    ),
)  # fmt: skip
