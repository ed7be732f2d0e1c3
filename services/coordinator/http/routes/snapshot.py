"""What the leader alone knows of its cluster, for a snapshot: the objects themselves its reader takes from the API
server.

Streamed in pieces, each of which takes a few milliseconds of the leader's loop: there are pods to place in between.
Only settings that decide are in it, none that names a file, an address or a secret.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from typing import Any

import msgspec

from services.coordinator.core.core import Core
from services.coordinator.http.desk import Desk
from services.coordinator.inspect.overview import WallOf
from shared.errors import ConclaveError
from shared.runtime.http.callers import Role
from shared.runtime.http.routes import Ask, row
from shared.runtime.observe.masking import effective
from shared.runtime.records.policies import read_pointer
from shared.runtime.records.policy_changes import card_of
from shared.runtime.records.settings import read_settings
from shared.wire.snapshot import DECIDING, AgentSeen, ConsideredNode, DecisionSeen, MeshFacts, NodeMeasured

PIECE = 200
"""Nodes, decisions or pods in one piece."""


async def told(desk: Desk, _: Ask[Any, Any]) -> AsyncGenerator[bytes, None]:
    """The facts, as one document. Refused before it begins: 503 ``not_ready``."""
    core, missing = desk.core, list[str]()
    head = await _head(desk, missing)
    yield msgspec.json.encode(head)[:-1]
    parts: dict[str, Iterator[Any]] = {
        "queue": queued(core), "measured": measured(core, desk.clock()), "decisions": decided(core, desk.wall_of),
    }  # fmt: skip
    for name, items in parts.items():
        yield b',"%s":[' % name.encode()
        for piece in pieces(items):
            yield piece
            await asyncio.sleep(0)
        yield b"]"
    yield b',"missing":' + msgspec.json.encode(missing) + b"}\n"


async def _head(desk: Desk, missing: list[str]) -> dict[str, Any]:
    core = desk.core
    record = await read_settings(desk.store, desk.keys)
    values = effective(desk.settings) | (record.values if record is not None else {})
    pointer = (await read_pointer(desk.store, desk.keys)).pointer
    cards: dict[str, Any] = {}
    for ref in (pointer.active, pointer.candidate) if pointer is not None else ():
        if ref is not None and ref.sha256:
            try:
                cards[ref.sha256] = await card_of(desk.store, desk.keys, ref)
            except ConclaveError as error:
                missing.append(f"the card of {ref.title} ({error})")
    if desk.settings.power_curves is not None:
        missing.append("power_curves: a file of the leader's machine; give it to the replay")
    return {
        "scheduler_name": core.state.scheduler_name,
        "settings": {name: values[name] for name in DECIDING},
        "policy": core.state.policy,
        "pointer": pointer,
        "cards": cards,
        "agents": [AgentSeen(view.record.node) for view in core.registry.views.values()],
        "paused": core.state.paused is not None,
        "drained": sorted(core.state.drained),
    }


def pieces(items: Iterator[Any]) -> Iterator[bytes]:
    """The inside of a list, each piece with the comma before it."""
    before = b""
    while piece := list(islice(items, PIECE)):
        yield before + msgspec.json.encode(piece)[1:-1]
        before = b","


def queued(core: Core) -> Iterator[str]:
    return iter(list(core.state.queue.entries))


def measured(core: Core, now: float) -> Iterator[NodeMeasured]:
    used = core.variants.used
    for name in list(used):
        found = used.get(name)  # nodes come and go between two pieces
        if found is None:
            continue
        cpu, memory, disk, network = (part.amount if part is not None else None for part in found.fresh())
        yield NodeMeasured(
            name, round(max(0.0, now - max(found.newest_s, found.told_s)), 3),
            None if cpu is None else round(cpu), None if memory is None else round(memory), disk, network,
            delay_us=found.delay_us, latencies=dict(found.latencies) or None,
        )  # fmt: skip


def decided(core: Core, wall_of: WallOf) -> Iterator[DecisionSeen]:
    """Oldest first."""
    recent = core.state.recent
    for one in reversed(recent.newest(len(recent))):
        yield DecisionSeen(
            wall_of(one.at), one.namespace, one.name, one.uid, one.node, f"{one.policy}@{one.policy_version}",
            [ConsideredNode(seen.node, seen.score, seen.accepted) for seen in one.considered],
        )  # fmt: skip


ROUTES = (
    row(
        "GET", "/v1/snapshot", Role.VIEWER, "What the leader alone knows of its cluster, for a snapshot", told,
        cost=100, fresh_s=0, answer=MeshFacts,
    ),
)  # fmt: skip
