"""Three members: killed and paused one after another under traffic, the client stays on the rest and sees no lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.errors import StoreUnknown
from shared.ports import CreateRevisionIs, Put, WatchBatch
from tests.faults.etcd_process import EtcdProcess
from tests.faults.watch_checks import check_atomic, check_bookmarkable, check_ordered, check_reliable, check_unique
from tests.patience import PATIENCE_S
from tests.ports import free_port

pytestmark = [pytest.mark.etcd, pytest.mark.process]


@pytest.fixture
async def members(tmp_path: Path) -> AsyncIterator[list[EtcdProcess]]:
    peers = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
    everyone = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
    made = [
        EtcdProcess(
            tmp_path / f"m{number}",
            client_port=free_port(),
            extra_flags=(
                f"--name=m{number}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster={everyone}",
                "--heartbeat-interval=100",
                "--election-timeout=1000",
            ),
        )
        for number, peer in enumerate(peers)
    ]
    # A member is healthy only once there is a quorum, so they start together.
    await asyncio.gather(*(asyncio.to_thread(member.start) for member in made))
    yield made
    # Without a quorum a member takes seconds to end by itself.
    await asyncio.gather(*(asyncio.to_thread(member.kill) for member in made))
    await asyncio.gather(*(asyncio.to_thread(member.close) for member in made))


def numbers() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


async def write_once(store: EtcdStore, key: str) -> int:
    """Create ``key`` exactly once: an unknown outcome is repeated, because the compare makes that harmless."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                result = await store.txn([CreateRevisionIs(key, 0)], [Put(key, b"")], timeout_s=1.0)
                if result.succeeded:
                    return result.revision
                kv = await store.get(key)
                if kv is not None:
                    return kv.create_revision
            except StoreUnknown:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_members_fail_in_turn_under_traffic(members, fault):
    endpoints = tuple(member.endpoint for member in members)
    store = EtcdStore(EtcdSettings(endpoints=endpoints, ask_after_s=0.5, silent_limit_s=1.5))
    batches: list[WatchBatch] = []
    written: dict[int, set[str]] = {}
    reached = asyncio.Event()

    async def follow() -> None:
        async with aclosing(store.watch("/w/", start_revision=1)) as watch:
            async for batch in watch:
                batches.append(batch)
                reached.set()

    following = asyncio.create_task(follow())
    count = numbers()

    async def write(how_many: int) -> None:
        for _ in range(how_many):
            key = f"/w/{next(count)}"
            written[await write_once(store, key)] = {key}

    await write(20)
    for member in members:
        if fault == "kill":
            await asyncio.to_thread(member.kill)
            await write(20)
            await asyncio.to_thread(member.start)
        else:
            member.pause()
            await write(20)
            member.resume()
        await write(5)
    async with asyncio.timeout(PATIENCE_S):
        while not batches or batches[-1].revision < max(written):
            reached.clear()
            await reached.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    listing = await store.list_prefix("/w/")
    await store.close()
    assert len(listing.items) == len(written) == next(count)
    assert check_ordered(batches) == []
    assert check_unique(batches) == []
    assert check_atomic(batches) == []
    assert check_reliable(batches, written) == []
    assert check_bookmarkable(batches, written) == []
