"""The pointer as the core is told it, and policies made of weights in etcd: read beside it, each once."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from services.coordinator.core.events import Event, PointerSeen, PolicyRead
from services.coordinator.rollout.pointer import follow
from shared.policy.registry import reference
from shared.policy.rollout.rollout import PointerChange, first_pointer
from shared.policy.weights import WeightsFile, decode, encode, shipped
from shared.ports import KeyValue
from shared.runtime.records.policies import read_pointer, write_change
from shared.wire.keys import Keys
from shared.wire.records import PolicyPointer, PolicyRef
from tests.memory_store import MemoryStore

KEYS = Keys("test")
OTHER = PolicyRef("kube-default", 1)


class Weights(MemoryStore):
    """Counts how often ``weights`` (keys) are read; while ``held``, such a read never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.held = False
        self.weights = frozenset[str]()
        self.reads: list[str] = []
        self.read = asyncio.Event()

    async def get(self, key: str, *, timeout_s: float = 2.0) -> KeyValue | None:
        if key in self.weights:
            self.reads.append(key)
            self.read.set()
            if self.held:
                await asyncio.Event().wait()
        return await super().get(key, timeout_s=timeout_s)


def of_version(version: int) -> tuple[PolicyRef, bytes]:
    file = shipped("frag")
    data = encode(WeightsFile(file.arrays, replace(file.card, version=version)))
    return reference(decode(data, policy="frag")), data


class Followed:
    """What ``follow`` posts of pointers that are written one after the other."""

    def __init__(self) -> None:
        self.store = Weights()
        self.posted: asyncio.Queue[Event] = asyncio.Queue()
        self.pointer = first_pointer(OTHER, number=1)

    async def write(self, pointer: PolicyPointer, data: bytes | None = None) -> None:
        before = self.pointer
        self.pointer = replace(pointer, number=before.number + 1)
        stored = await read_pointer(self.store, KEYS)
        assert await write_change(
            self.store, KEYS, PointerChange(before, self.pointer), stored.mod_revision, weights=data
        )

    async def seen(self) -> Event:
        return await asyncio.wait_for(self.posted.get(), 60)

    async def pointer_seen(self) -> None:
        assert await self.seen() == PointerSeen(self.pointer)

    async def read_of(self) -> PolicyRef:
        event = await self.seen()
        assert isinstance(event, PolicyRead)
        return event.ref

    async def __aenter__(self) -> Followed:
        self._task = asyncio.create_task(
            follow(self.store, KEYS, policy="kube-default", term=1, post=self.posted.put_nowait)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        assert self._task.cancelled()


async def test_weights_are_read_once_while_pointers_name_them_and_again_when_they_come_back() -> None:
    own, data = of_version(7)
    made = Followed()
    made.store.weights = frozenset({KEYS.policy_weights(own.sha256)})
    await made.write(replace(made.pointer, active=own), data)
    async with made:
        await made.pointer_seen()
        assert await made.read_of() == own
        for _ in range(2):
            await made.write(made.pointer)
            await made.pointer_seen()
        await made.write(replace(made.pointer, active=OTHER))
        await made.pointer_seen()
        assert len(made.store.reads) == 1
        await made.write(replace(made.pointer, active=OTHER, candidate=own))
        await made.pointer_seen()
        assert await made.read_of() == own
        assert len(made.store.reads) == 2


async def test_a_pointer_is_told_though_weights_of_the_one_before_cannot_be_read() -> None:
    own, data = of_version(7)
    made = Followed()
    made.store.weights, made.store.held = frozenset({KEYS.policy_weights(own.sha256)}), True
    await made.write(replace(made.pointer, candidate=own), data)
    async with made:
        await made.pointer_seen()
        await made.store.read.wait()
        await made.write(replace(made.pointer, candidate=None))
        await made.pointer_seen()
        made.store.held = False
        await made.write(replace(made.pointer, candidate=own))
        await made.pointer_seen()
        assert await made.read_of() == own
        assert made.posted.empty()
