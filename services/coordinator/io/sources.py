"""Which of the core's facts come from etcd: agents, the shards, the binders' leaders, and the intents of earlier terms.

Each function follows one source for ever and posts events; they translate and decide nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing

import structlog

from services.coordinator.core.events import (
    AgentsChanged,
    BinderChanged,
    Event,
    IntentGone,
    IntentRecord,
    IntentsListed,
    ShardsSeen,
)
from services.coordinator.io.nomination_writes import stored_nominations
from shared.ports import KeyValue, Store
from shared.runtime.lease.leadership import observe_leader
from shared.runtime.records.prefix_watch import follow_prefix
from shared.runtime.records.shards import follow_shards
from shared.version import CONCLAVE_VERSION, compatible
from shared.wire.keys import Keys
from shared.wire.messages import VERSION
from shared.wire.records import AgentRecord, Intent, decode_record

log = structlog.get_logger()
ANSWER_FIRST_S = 0.5
Post = Callable[[Iterable[Event]], None]


async def follow_agents(store: Store, keys: Keys, post: Post, *, otherwise: Sequence[AgentRecord] = ()) -> None:
    """Who is registered, now and after every change; ``otherwise``: who decides while nobody is."""
    known: dict[str, tuple[int, AgentRecord | None]] = {}
    async with aclosing(follow_prefix(store, keys.agents_prefix)) as views:
        async for view in views:
            items = sorted(view.items.values(), key=lambda item: item.key)
            # thousands come and go one by one: each registration is read once, and stays the same object
            before, known = known, {}
            for kv in items:
                had = before.get(kv.key)
                known[kv.key] = had if had and had[0] == kv.mod_revision else (kv.mod_revision, _agent(keys, kv))
            records = tuple(record for _, record in known.values() if record is not None)
            post([AgentsChanged(records or tuple(otherwise))])


def _agent(keys: Keys, kv: KeyValue) -> AgentRecord | None:
    record = decode_record(kv.value, AgentRecord)
    # one that speaks another version would refuse every message; its nodes are better dealt to others
    problem = _problem(keys, kv.key, record)
    if record is None or problem:
        log.warning("agent_ignored", key=kv.key, problem=problem)
        return None
    return record


def _problem(keys: Keys, key: str, record: AgentRecord | None) -> str:
    """Why an agent's registration is not believed; empty where it is."""
    if record is None:
        return "the record cannot be read"
    if keys.agent(record.id) != key:
        return "it registers another agent's id under its own key"
    if record.protocol != VERSION:
        return f"it speaks protocol {record.protocol}, we speak {VERSION}"
    if not compatible(record.version, CONCLAVE_VERSION):
        return f"it runs {record.version}, we run {CONCLAVE_VERSION}: upgrade one of them"
    return ""


async def follow_binder(store: Store, keys: Keys, shard: str, post: Post) -> None:
    """Who leads the shard's binders, now and after every change."""
    async with aclosing(observe_leader(store, keys.binder_leader(shard))) as leaders:
        async for leader in leaders:
            if leader is not None and not compatible(leader[0].version, CONCLAVE_VERSION):
                log.warning(
                    "binder_ignored", binder=leader[0].identity, runs=leader[0].version, we_run=CONCLAVE_VERSION
                )
                leader = None
            url, term = (leader[0].url, leader[1]) if leader is not None else ("", 0)
            post([BinderChanged(url, term, shard)])


async def follow_layout(store: Store, keys: Keys, post: Post) -> None:
    """What the nodes are divided into, now and after every change. It is told a moment late: who has changed it through
    our admin API is answered before the term ends."""
    async with aclosing(follow_shards(store, keys)) as views:
        async for shards in views:
            await asyncio.sleep(ANSWER_FIRST_S)
            post([ShardsSeen(shards.revision)])


async def follow_inherited_intents(store: Store, keys: Keys, post: Post, wanted: Callable[[], bool]) -> None:
    """List the intents, and who was nominated, as of after the election; then tell which intents go, while that is
    ``wanted``."""
    nominations = await stored_nominations(store, keys)
    open_keys: set[str] | None = None
    async with aclosing(follow_prefix(store, keys.intents_prefix)) as views:
        async for view in views:
            if open_keys is None:
                open_keys = set(view.items)
                post([IntentsListed(tuple(_intent(kv) for kv in view.items.values()), nominations)])
                if not open_keys:
                    return
                continue
            gone = open_keys - view.items.keys()
            open_keys -= gone
            post([IntentGone(key) for key in sorted(gone)])
            if not open_keys or not wanted():
                return


def _intent(kv: KeyValue) -> IntentRecord:
    intent = decode_record(kv.value, Intent)
    if intent is None:
        log.warning("intent_unreadable", key=kv.key)
        return IntentRecord(kv.key, ())
    reservations = tuple((pod.uid, pod.reservation) for pod in intent.pods if pod.reservation)
    return IntentRecord(kv.key, tuple((pod.uid, pod.node) for pod in intent.pods), reservations)
