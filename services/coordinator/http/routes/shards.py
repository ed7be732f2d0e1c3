"""What the nodes are divided into, a binder for each shard, and dividing them anew.

A change ends the terms of this leader and of all binders: they begin anew under the new shards within seconds, and what
was under way goes on.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import msgspec

from services.coordinator.http.desk import Desk
from shared.runtime.http.callers import Role
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, Reason, RouteAnswer, Schema, row
from shared.runtime.records.shards import MAX_SHARDS, change_shards, shards_in
from shared.scheduling.shards import Shards
from shared.wire.records import ShardsRecord, decode_record


class Shard(RouteAnswer, frozen=True, kw_only=True):
    """One of them. ``binder``, ``term``: who leads it, "" and 0 where nobody does; then its nodes get no pods.
    ``nodes``: how many it has."""

    name: str
    binder: str
    term: int
    nodes: int


class ShardsAnswer(RouteAnswer, frozen=True, kw_only=True):
    """``generation`` counts the changes, 0: nobody has ever divided the nodes. The rest says who did it last."""

    generation: int
    by: str = ""
    reason: str = ""
    since: str = ""
    items: list[Shard]


class ShardsBody(Schema, frozen=True, kw_only=True):
    """``names``: all shards there are to be. ``unmanned``: also those that no binder leads yet."""

    names: Annotated[list[Annotated[str, msgspec.Meta(max_length=63)]], msgspec.Meta(max_length=MAX_SHARDS)]
    unmanned: bool = False
    reason: Reason = ""


async def show(desk: Desk, _: Ask[Any, Any]) -> ShardsAnswer:
    """The shards, who leads them, and how many nodes each has."""
    kv = await desk.store.get(desk.keys.binder_shards)
    return _answer(desk, shards_in(kv), decode_record(kv.value, ShardsRecord) if kv is not None else None)


async def change(desk: Desk, ask: Ask[Any, ShardsBody]) -> ShardsAnswer:
    """Divide the nodes anew."""
    body = ask.body
    await change_shards(
        desk.store, desk.keys, body.names, term=desk.term, by=ask.caller.title, reason=body.reason, now=desk.wall(),
        unmanned=body.unmanned,
    )  # fmt: skip
    return await show(desk, ask)


def _answer(desk: Desk, shards: Shards, record: ShardsRecord | None) -> ShardsAnswer:
    core = desk.core
    nodes = Counter(map(shards.of, core.state.cache.table.row_of))
    items = []
    for name in shards.names:
        binder = core.ledger.binders.get(name)
        url, term = (binder.url, binder.term) if binder is not None else ("", 0)
        items.append(Shard(name=name, binder=url, term=term, nodes=nodes[name]))
    told = (record.generation, record.by, record.reason, record.since) if record is not None else (0, "", "", "")
    return ShardsAnswer(generation=told[0], by=told[1], reason=told[2], since=told[3], items=items)


ROUTES = (
    row("GET", "/v1/shards", Role.VIEWER, "What the nodes are divided into, a binder each", show, fresh_s=SLOW_FRESH_S),
    row(
        "PUT", "/v1/shards", Role.ADMIN, "Change the shards; every leader starts again under them", change,
        errors=("conflict", "invalid_value"), audit_target=lambda body: ",".join(body.names),
    ),
)  # fmt: skip
