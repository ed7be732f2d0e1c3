"""The last placements with what was considered for each, and all new ones as a stream of server-sent events.

    event: leader     once, first: who answers; after a failover the stream ends, and the next one begins with the next
    event: decision   one placement; its ``id`` is TERM-NUMBER
    event: overview   each second
    event: dropped    {"count": n}: so many decisions were left out here, since this reader was too slow
    : heartbeat       a comment, when nothing was said for 15 s

A reader that comes back with the last id it saw (``Last-Event-ID``) gets what came since first, as far as that is
remembered; what is not, and what another leader decided, is told by ``dropped`` and ``leader``.

Decisions come in bundles of up to ``BUNDLE_S``: at hundreds of pods a second one write each would cost the leader more
than placing them. Data are single lines of JSON, so no text of the cluster can look like an event of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec

from services.coordinator.core.core import Core
from services.coordinator.core.decisions import PastDecision
from services.coordinator.http.desk import Desk
from services.coordinator.http.routes.members import leader
from services.coordinator.http.routes.overview import glance_of
from services.coordinator.inspect.overview import DecisionShown, decision_shown, decisions
from shared.errors import ConclaveError
from shared.runtime.http.callers import Role
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.http.routes import EVENTS as EVENT_STREAM
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, RouteAnswer, Schema, row

EVENTS = ("decision", "leader", "overview")
BUNDLE_S = 0.1
OVERVIEW_S = 1.0
HEARTBEAT_S = 15.0
HEARTBEAT = b": heartbeat\n\n"

_encoder = msgspec.json.Encoder()


class DecisionsQuery(Schema, frozen=True, kw_only=True):
    """How many, newest first."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100


class StreamQuery(Schema, frozen=True, kw_only=True):
    """``events``: which kinds, comma-separated; all by default."""

    events: Annotated[
        str,
        msgspec.Meta(
            max_length=64,
            description="decision, leader, overview; comma-separated",
            extra_json_schema={"pattern": r"^((decision|leader|overview)(,(decision|leader|overview))*)?$"},
        ),
    ] = ""
    last_event_id: Annotated[str, msgspec.Meta(max_length=64)] = msgspec.field(default="", name="lastEventId")


class DecisionsAnswer(RouteAnswer, frozen=True, kw_only=True):
    """Newest first. Of this leader's term: a new one remembers none."""

    items: list[DecisionShown]


async def listed(desk: Desk, ask: Ask[DecisionsQuery, Any]) -> DecisionsAnswer:
    """The last placements."""
    return DecisionsAnswer(items=decisions(desk.core, desk.wall_of, ask.query.limit))


async def streamed(desk: Desk, ask: Ask[StreamQuery, Any]) -> AsyncGenerator[bytes, None]:
    """Events until the reader goes or this process stops leading. Refused before the first: 400, 503."""
    wanted = _wanted(ask.query.events)
    core = desk.core
    loop = asyncio.get_running_loop()
    fresh = asyncio.Event()
    recent = core.state.recent
    missed: list[bytes] = []
    if "decision" in wanted:
        missed = _missed(desk, core, ask.last_event_id or ask.query.last_event_id)
    feed = recent.subscribe(fresh.set) if "decision" in wanted else None
    try:
        yield event("leader", await leader(desk, ask)) if "leader" in wanted else HEARTBEAT
        if missed:
            yield b"".join(missed)
        overview_at = loop.time()
        said_at = loop.time()
        while desk.leads and desk.admin.core is core:
            parts = []
            if "overview" in wanted and loop.time() >= overview_at:
                overview_at = loop.time() + OVERVIEW_S
                parts.append(await _overview(desk))
            if feed is not None:
                fresh.clear()
                taken, dropped = feed.take()
                if dropped:
                    parts.append(event("dropped", {"count": dropped}))
                parts += [_decided(desk, core, decision) for decision in taken]
            if not parts and loop.time() >= said_at + HEARTBEAT_S:
                parts.append(HEARTBEAT)
            if parts:
                said_at = loop.time()
                yield b"".join(parts)
            due = overview_at if "overview" in wanted else said_at + HEARTBEAT_S
            try:
                async with asyncio.timeout_at(min(due, loop.time() + OVERVIEW_S)):
                    await fresh.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(BUNDLE_S)
    finally:
        if feed is not None:
            core.state.recent.unsubscribe(feed)


def event(kind: str, data: Any, *, id: str = "") -> bytes:  # noqa: A002
    """One server-sent event."""
    named = b"id: %s\n" % id.encode() if id else b""
    return b"%sevent: %s\ndata: %s\n\n" % (named, kind.encode(), _encoder.encode(data))


def _decided(desk: Desk, core: Core, decision: PastDecision) -> bytes:
    shown = decision_shown(core, decision, desk.wall_of)
    return event("decision", shown, id=shown.id)


def _missed(desk: Desk, core: Core, last_seen: str) -> list[bytes]:
    """What a reader has missed who saw this id last; nothing of another term: its numbers are another leader's."""
    term, _, number = last_seen.partition("-")
    if term != str(core.state.term) or not (number.isascii() and number.isdigit()):
        return []
    found, dropped = core.state.recent.after(int(number))
    told = [event("dropped", {"count": dropped})] if dropped else []
    return told + [_decided(desk, core, decision) for decision in found]


async def _overview(desk: Desk) -> bytes:
    try:
        return event("overview", await glance_of(desk).at(desk))
    except ConclaveError:
        return b""  # etcd is silent, or the term ends: the next one tells


def _wanted(text: str) -> frozenset[str]:
    named = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in named if name not in EVENTS]
    if unknown:
        raise RequestRefused(
            f"events: {unknown[0][:32]} is none; there are {', '.join(EVENTS)}", code="invalid_request"
        )
    return frozenset(named or EVENTS)


ROUTES = (
    row(
        "GET", "/v1/decisions", Role.VIEWER, "The last placements and what was considered", listed,
        fresh_s=SLOW_FRESH_S,
    ),
    row(
        "GET", "/v1/decisions/stream", Role.VIEWER,
        "Placements as they are made, and an overview each second, as server-sent events", streamed,
        media_type=EVENT_STREAM,
    ),
)  # fmt: skip
