"""One JSON document with what a leader knows, to be sent along with a report of a problem.

Streamed part by part, bounded, without secrets: settings that hold some are masked, tokens are in files and not in
settings, and of a pod there is its name and what it waits for, never its labels or environment. A part that cannot be
had says why; the others come all the same.
"""

from __future__ import annotations

import asyncio
import inspect
import platform
from collections.abc import AsyncGenerator, Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import msgspec

from services.coordinator.http.desk import Desk
from services.coordinator.http.routes.members import read_members
from services.coordinator.http.routes.overview import glance_of
from services.coordinator.inspect.nodes import node_page
from services.coordinator.inspect.overview import decisions, queue_counts, queue_page, units
from shared.runtime.http.callers import Role
from shared.runtime.http.refusals import refusal_of
from shared.runtime.http.routes import Ask, Schema, row
from shared.runtime.observe.masking import effective
from shared.runtime.records.admin import read_audit, read_terms
from shared.runtime.records.control import read_control
from shared.runtime.records.policies import read_history, read_pointer
from shared.runtime.records.settings import read_settings, read_settings_history
from shared.version import CONCLAVE_VERSION

LIBRARIES = ("aiohttp", "etcd3", "grpcio", "kubernetes", "msgspec", "numpy", "uvloop")
MOST_NODES = 5000
MOST_PODS = 5000
MOST_DECISIONS = 500
MOST_RECORDS = 200
PAGE = 250
MOST_PART_BYTES = 6 << 20
"""Three parts can be large: nodes, queue, units. With this the whole stays below 20 MiB."""

Part = Callable[[Desk], Any]
"""What it returns may have to be waited for."""


class DumpQuery(Schema, frozen=True, kw_only=True):
    """Whether the leader looks at itself too: that costs one turn of its loop, the longer the more pods there are."""

    check: Annotated[
        bool, msgspec.Meta(description="true: the leader checks its own invariants; `check` names what is broken")
    ] = False


async def dumped(desk: Desk, ask: Ask[DumpQuery, Any]) -> AsyncGenerator[bytes, None]:
    """The document. Refused before it begins: 503 ``not_ready``."""
    _ = desk.core
    head = {"time": desk.now(), "by": ask.caller.title, "id": desk.service_id, "request_id": ask.request_id}
    yield msgspec.json.encode(head)[:-1]
    parts = {"check": lambda desk: desk.core.validate(), **PARTS} if ask.query.check else PARTS
    for name, part in parts.items():
        yield b",\n%s:%s" % (msgspec.json.encode(name), await _encoded(desk, part))
        await asyncio.sleep(0)  # there are pods to place
    yield b"}\n"


async def _encoded(desk: Desk, part: Part) -> bytes:
    try:
        found = part(desk)
        data = msgspec.json.encode(await found if inspect.isawaitable(found) else found)
    except Exception as error:  # noqa: BLE001  a part that fails must not take the others along
        return msgspec.json.encode({"error": refusal_of(error).code})
    if len(data) > MOST_PART_BYTES:
        return msgspec.json.encode({"error": "too_large", "bytes": len(data)})
    return data


def _versions(_: Desk) -> dict[str, str]:
    found = {"conclave": CONCLAVE_VERSION, "python": platform.python_version(), "platform": platform.platform()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


async def _settings(desk: Desk) -> dict[str, Any]:
    changed = await read_settings(desk.store, desk.keys)
    history = await read_settings_history(desk.store, desk.keys)
    return {"start": effective(desk.settings), "runtime": changed, "history": history[:MOST_RECORDS]}


async def _paged(read: Callable[[Any], tuple[list[Any], Any]], first: int | str, most: int) -> list[Any]:
    """A long list, page by page: there are pods to place in between."""
    found, after = read(first)
    while after is not None and len(found) < most:
        await asyncio.sleep(0)
        items, after = read(after)
        found += items
    return found


async def _nodes(desk: Desk) -> list[Any]:
    loans = desk.admin.loans
    return await _paged(
        lambda after: node_page(desk.core, desk.clock(), after=after, limit=PAGE, loans=loans), "", MOST_NODES
    )


async def _queue(desk: Desk) -> dict[str, Any]:
    items = await _paged(lambda after: queue_page(desk.core, desk.clock(), after=after, limit=PAGE), 0, MOST_PODS)
    return {"counts": queue_counts(desk.core), "items": items}


def _plans(desk: Desk) -> list[dict[str, Any]]:
    return [
        {
            "plan_id": number,
            "follows": plan.plan.follows,
            "placements": len(plan.plan.placements),
            "sends": plan.sends,
            "tries": plan.tries,
            "in_flight": plan.in_flight,
        }
        for number, plan in desk.core.ledger.plans.items()
    ]


async def _intents(desk: Desk) -> dict[str, Any]:
    listing = await desk.store.list_prefix(desk.keys.intents_prefix)
    keys = [desk.keys.last_part(kv.key) for kv in listing.items]
    return {"count": len(keys), "keys": keys[:MOST_PODS]}


async def _policies(desk: Desk) -> dict[str, Any]:
    stored, history = await read_pointer(desk.store, desk.keys), await read_history(desk.store, desk.keys)
    return {"pointer": stored.pointer, "history": history[-MOST_RECORDS:], "figures": desk.core.evaluation.figures()}


async def _control(desk: Desk) -> dict[str, Any]:
    control = await read_control(desk.store, desk.keys)
    return {"paused": control.paused, "drained": list(control.drained.values())}


async def _members(desk: Desk) -> Any:
    return list((await read_members(desk)).values())


async def _audit(desk: Desk) -> Any:
    return (await read_audit(desk.store, desk.keys))[:MOST_RECORDS]


PARTS: dict[str, Part] = {
    "versions": _versions,
    "overview": lambda desk: glance_of(desk).at(desk),
    "status": lambda desk: desk.admin.status(),
    "settings": _settings,
    "members": _members,
    "terms": lambda desk: read_terms(desk.store, desk.keys),
    "control": _control,
    "policies": _policies,
    "audit": _audit,
    "queue": _queue,
    "units": lambda desk: list(units(desk.core, desk.wall_of))[:MOST_PODS],
    "plans": _plans,
    "intents": _intents,
    "nodes": _nodes,
    "decisions": lambda desk: decisions(desk.core, desk.wall_of, MOST_DECISIONS),
    "stats": lambda desk: desk.metrics.stats(),
    "log": lambda desk: desk.lines.lines(),
}

ROUTES = (
    row(
        "GET", "/v1/dump", Role.ADMIN, "What the leader knows, for a report of a problem", dumped, cost=200,
        answer=dict[str, Any],
    ),
)  # fmt: skip
