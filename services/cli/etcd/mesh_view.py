"""What etcd says of a mesh: who leads under which term, which agents are there, what is registered.

A read-only look at ``shared.wire.keys`` for ``conclave status``, for the demo's progress and for kills that must find
their victim. It refuses to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from services.cli.etcd.mesh_warnings import warnings_of
from shared.election.record import LeaderRecord
from shared.election.record import decode_record as decode_leader
from shared.ports import KeyValue, Store
from shared.wire.keys import Keys
from shared.wire.records import AgentRecord, MemberRecord, decode_record


@dataclass(frozen=True, slots=True)
class Leading:
    """A leader as its key shows it. ``term`` is the key's create_revision."""

    record: LeaderRecord
    term: int
    lease_id: int


@dataclass(frozen=True, slots=True)
class MeshView:
    """Everything under the prefix at one etcd revision. ``binders`` by shard, ``agents`` by id, ``processes`` (whoever
    is under ``members/``) by ``service/id``; ``misplaced``: the id that an agent's key holds though it is another's."""

    revision: int = 0
    coordinator: Leading | None = None
    binders: dict[str, Leading] = field(default_factory=dict)
    agents: dict[str, AgentRecord] = field(default_factory=dict)
    members: dict[str, Any] = field(default_factory=dict)
    intents: int = 0
    processes: dict[str, MemberRecord] = field(default_factory=dict)
    misplaced: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For ``conclave status -o json``."""
        return {
            "revision": self.revision,
            "coordinator": _leading(self.coordinator),
            "binders": {shard: _leading(leading) for shard, leading in sorted(self.binders.items())},
            "agents": {
                name: {"url": a.url, "incarnation": a.incarnation, "node": a.node, "version": a.version}
                for name, a in sorted(self.agents.items())
            },
            "members": dict(sorted(self.members.items())),
            "intents": self.intents,
            "warnings": warnings_of(self),
        }


def _leading(leading: Leading | None) -> dict[str, Any] | None:
    if leading is None:
        return None
    record = leading.record
    return {
        "id": record.identity, "incarnation": record.incarnation, "url": record.url, "term": leading.term,
        "lease_id": f"{leading.lease_id:x}", "version": record.version,
    }  # fmt: skip


async def read_mesh(store: Store, keys: Keys, *, timeout_s: float = 2.0) -> MeshView:
    """The mesh as etcd shows it now. Unknown: ``StoreUnknown``."""
    listing = await store.list_prefix(keys.prefix, timeout_s=timeout_s)
    return mesh_of(listing.items, listing.revision, keys)


def mesh_of(items: Sequence[KeyValue], revision: int, keys: Keys) -> MeshView:
    """The view of a listing; records that cannot be read are left out."""
    coordinator: Leading | None = None
    binders: dict[str, Leading] = {}
    agents: dict[str, AgentRecord] = {}
    members: dict[str, Any] = {}
    processes: dict[str, MemberRecord] = {}
    misplaced: dict[str, str] = {}
    intents = 0
    for kv in items:
        if kv.key == keys.coordinator_leader:
            coordinator = _leader(kv)
        elif kv.key.startswith(keys.binders_prefix) and kv.key.endswith("/leader"):
            shard = keys.last_part(kv.key.removesuffix("/leader"))
            found = _leader(kv)
            if found is not None:
                binders[shard] = found
        elif kv.key.startswith(keys.agents_prefix):
            record = decode_record(kv.value, AgentRecord)
            if record is not None and keys.agent(record.id) == kv.key:
                agents[record.id] = record
            elif record is not None:
                misplaced[keys.last_part(kv.key)] = record.id
        elif kv.key.startswith(keys.intents_prefix):
            intents += 1
        elif kv.key.startswith(f"{keys.prefix}members/"):
            name = kv.key.removeprefix(f"{keys.prefix}members/")
            members[name] = kv.value.decode(errors="replace")
            process = decode_record(kv.value, MemberRecord)
            if process is not None:
                processes[name] = process
    return MeshView(revision, coordinator, binders, agents, members, intents, processes, misplaced)


def _leader(kv: KeyValue) -> Leading | None:
    record = decode_leader(kv.value)
    return None if record is None else Leading(record, kv.create_revision, kv.lease_id)
