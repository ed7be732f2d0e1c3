"""What autoscalers recorded in etcd, as those read it who show it: the last record of each object, and its decisions.

Nothing here is written, and nothing is decided by it. A record that cannot be read (a newer version's) is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from shared.ports import Store
from shared.wire.keys import Keys
from shared.wire.records import AutoscaleRecord, decode_record

TOGETHER = 16
"""Reads of etcd that one list makes at the same time."""


class DecidedService(msgspec.Struct, frozen=True, kw_only=True):
    """One service in a decision. ``rule``: what HPA's rule would have had; ``wanted``: what the policy wanted; None:
    nothing. ``allowed``: what the safeguards left of it, ``acted``: whether that was written."""

    name: str
    replicas: int
    ready: int
    allowed: int
    wanted: int | None = None
    rule: int | None = None
    acted: bool = False
    role: str = ""
    why: str = ""


class SeenService(msgspec.Struct, frozen=True, kw_only=True):
    """What it went by: counts of pods, and readings (None: there was none to rely on). ``usage``: of one pod."""

    starting: int = 0
    pending: int = 0
    usage: Mapping[str, float | None] = {}
    arrivals: float | None = None
    failed: float | None = None
    latency_s: float | None = None
    queue: float | None = None


class ForeignDecision(msgspec.Struct, frozen=True, kw_only=True):
    services: Mapping[str, SeenService] = {}
    calls: Sequence[tuple[str, str]] = ()


class GivenGo(msgspec.Struct, frozen=True, kw_only=True):
    by: str = ""
    digest: str = ""


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One decision as the ring keeps it. ``at``: RFC 3339. By service: ``safeguards``, (name, why) of those that
    changed its number; ``gates``, (reason, text) of why it is not written; ``bad``, what its readings lack;
    ``lacking``, which signals the policy has none of; ``unknown``, why what a replica could answer is not known;
    ``refused``, (reason, text) of what HPA's rule cannot go by."""

    at: str
    term: int
    number: int
    mode: str = ""
    policy: str = ""
    by: str = ""
    failed: str = ""
    drifting: str = ""
    unmade: str = ""
    go: GivenGo = GivenGo()
    services: Sequence[DecidedService] = ()
    seen: ForeignDecision = ForeignDecision()
    bad: Mapping[str, Sequence[str]] = {}
    lacking: Mapping[str, str] = {}
    unknown: Mapping[str, str] = {}
    refused: Mapping[str, tuple[str, str]] = {}
    safeguards: Mapping[str, Sequence[tuple[str, str]]] = {}
    gates: Mapping[str, tuple[str, str]] = {}


async def read_scaled(store: Store, keys: Keys) -> dict[str, AutoscaleRecord]:
    """The last record of each object (``namespace/name``)."""
    listing = await store.list_prefix(keys.autoscaler_lasts_prefix)
    found = {keys.autoscaler_object_of(kv.key): decode_record(kv.value, AutoscaleRecord) for kv in listing.items}
    return {key: record for key, record in found.items() if record is not None}


async def read_newest(store: Store, keys: Keys, scaled: Mapping[str, AutoscaleRecord]) -> dict[str, DecisionRecord]:
    """The decision that each object's last record is of; none where it cannot be read."""
    limit = asyncio.Semaphore(TOGETHER)

    async def read(key: str, record: AutoscaleRecord) -> tuple[str, DecisionRecord | None]:
        async with limit:
            kv = await store.get(keys.autoscaler_decision(key, record.slot))
        found = decode_record(kv.value, DecisionRecord) if kv is not None else None
        return key, found if found is not None and found.number == record.number else None

    pairs = await asyncio.gather(*(read(key, record) for key, record in scaled.items()))
    return {key: found for key, found in pairs if found is not None}


async def read_ring(store: Store, keys: Keys, key: str) -> list[DecisionRecord]:
    """What the ring has of an object, oldest first."""
    listing = await store.list_prefix(keys.autoscaler_history_prefix(key))
    found = [decode_record(kv.value, DecisionRecord) for kv in listing.items]
    return sorted((one for one in found if one is not None), key=lambda one: one.number)
