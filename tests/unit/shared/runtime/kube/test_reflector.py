"""The reflector against a scripted port: lists become differences, errors are waited out, batches stay batches."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from shared.errors import KubeExpired, KubeRejected, KubeUnknown
from shared.kube.known import ListingInProgress
from shared.kube.objects import KubePod, ObjectMeta
from shared.kube.resources import PODS, Bookmark, DeletedObject, ObjectList, Resource, Upserted
from shared.runtime.kube import reflector
from shared.runtime.kube.reflector import BATCH, Reflector, Synced, WatchPositionLost
from tests.patience import PATIENCE_S


def pod(name: str, version: int) -> KubePod:
    return KubePod(metadata=ObjectMeta(name=name, namespace="d", uid=f"uid-{name}", resource_version=str(version)))


class ScriptedPort:
    """Answers of ``list`` and ``watch_batches`` in order: a list or an error; batches, then an error or silence."""

    def __init__(self, lists: list[Any], watches: list[list[Any]]) -> None:
        self.lists, self.watches = lists, watches
        self.positions: list[str] = []
        self.listing = self.most_listing = 0
        self.closed = self.whole = 0
        """Watches that were closed, lists that were made at once."""

    async def list(self, resource: Any, *, timeout_s: float = 60.0) -> ObjectList[Any]:
        self.whole += 1
        self.listing += 1
        self.most_listing = max(self.most_listing, self.listing)
        await asyncio.sleep(0)
        self.listing -= 1
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def pages(self, resource: Any, *, timeout_s: float = 60.0) -> AsyncGenerator[ObjectList[Any], None]:
        """A list in ``lists``, or pages and errors in a list of their own."""
        if not isinstance(self.lists[0], list):
            yield await self.list(resource, timeout_s=timeout_s)
            return
        for step in self.lists.pop(0):
            if isinstance(step, Exception):
                raise step
            yield step

    async def watch_batches(
        self, resource: Any, *, resource_version: str, brief: int = 0
    ) -> AsyncGenerator[Sequence[Any], None]:
        self.positions.append(resource_version)
        try:
            for step in self.watches.pop(0) if self.watches else []:
                if isinstance(step, Exception):
                    raise step
                yield step
            await asyncio.Event().wait()
        finally:
            self.closed += 1


def reflector_of(port: ScriptedPort, **options: Any) -> Reflector[KubePod]:
    return Reflector(port, PODS, rng=random.Random(1), backoff_s=0.001, **options)  # type: ignore[arg-type]


async def take(reflector: Reflector[KubePod], number: int) -> list[Any]:
    """The first ``number`` batches."""
    found: list[Any] = []
    async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(reflector.batches()) as batches:
        async for batch in batches:
            found.append(list(batch))
            if len(found) == number:
                break
    return found


async def test_list_then_synced_then_events_from_the_lists_revision():
    a, b = pod("a", 1), pod("b", 11)
    port = ScriptedPort([ObjectList((a,), "10")], [[[Upserted(b)]]])
    assert await take(reflector_of(port), 3) == [[Upserted(a)], [Synced("10")], [Upserted(b)]]
    assert port.positions == ["10"]


async def test_the_first_list_is_told_page_by_page_and_synced_after_the_last():
    a, b = pod("a", 1), pod("b", 2)
    port = ScriptedPort([[ObjectList((a,), "10"), ObjectList((), "10"), ObjectList((b,), "10")]], [])
    assert await take(reflector_of(port), 3) == [[Upserted(a)], [Upserted(b)], [Synced("10")]]


async def test_after_pages_that_broke_off_the_next_list_tells_the_difference():
    """What went between the two lists was told and must be taken back, before it was ever said to be all."""
    a, b, c = pod("a", 1), pod("b", 2), pod("c", 3)
    port = ScriptedPort([[ObjectList((a, b), "10"), KubeExpired("too old")], ObjectList((b, c), "20")], [])
    told = await take(reflector_of(port), 4)
    assert told[0] == [Upserted(a), Upserted(b)]
    assert told[1] == [Upserted(c)]
    (gone,) = told[2]
    assert gone.object.metadata.uid == "uid-a"
    assert told[3] == [Synced("20")]
    assert port.positions == []


async def test_an_empty_cluster_is_synced_too():
    port = ScriptedPort([ObjectList((), "10")], [])
    assert await take(reflector_of(port), 1) == [[Synced("10")]]


async def test_expiry_lists_again_and_tells_the_difference_without_a_second_synced():
    a, b, c = pod("a", 1), pod("b", 2), pod("c", 20)
    port = ScriptedPort(
        [ObjectList((a, b), "10"), ObjectList((a, c), "30")],
        [[KubeExpired("old")], [[Upserted(pod("d", 31))]]],
    )
    batches = await take(reflector_of(port), 5)
    assert batches[:3] == [[Upserted(a), Upserted(b)], [Synced("10")], [Upserted(c)]]
    (gone,) = batches[3]
    assert isinstance(gone, DeletedObject)
    assert (gone.object.metadata.uid, batches[4]) == ("uid-b", [Upserted(pod("d", 31))])
    assert port.positions == ["10", "30"]


async def test_a_consumer_that_goes_by_the_order_hears_of_a_lost_position_and_when_all_is_told_again():
    a, b = pod("a", 1), pod("b", 20)
    lists = [ObjectList((a,), "10"), ObjectList((a, b), "30")]
    port = ScriptedPort(lists, [[KubeExpired("old")], []])
    told = await take(reflector_of(port, ordered=True), 5)
    assert told == [[Upserted(a)], [Synced("10")], [WatchPositionLost()], [Upserted(b)], [Synced("30")]]


async def test_without_the_difference_a_deletion_during_the_gap_would_be_missed(monkeypatch: pytest.MonkeyPatch):
    """Ablation: a reflector that only adds what a list holds leaves a dead pod with the consumer."""
    monkeypatch.setattr(ListingInProgress, "missing", lambda self, revision: [])
    port = ScriptedPort(
        [ObjectList((pod("a", 1), pod("b", 2)), "10"), ObjectList((pod("a", 1), pod("c", 3)), "30")],
        [[KubeExpired("old")], [[Upserted(pod("d", 31))]]],
    )
    told = [event for batch in await take(reflector_of(port), 4) for event in batch]
    assert not any(isinstance(event, DeletedObject) for event in told)


async def test_a_watch_that_got_no_answer_goes_on_where_it_was_and_nothing_is_listed():
    """A server that restarts, a connection that is refused: what the server has forgotten it says itself (410)."""
    a, b, c = pod("a", 1), pod("b", 11), pod("c", 21)
    port = ScriptedPort(
        [ObjectList((a,), "10")],
        [[[Upserted(b)], [Bookmark("20")], KubeUnknown("away")], [KubeUnknown("away")], [[Upserted(c)]]],
    )
    reflector = reflector_of(port)
    assert await take(reflector, 4) == [[Upserted(a)], [Synced("10")], [Upserted(b)], [Upserted(c)]]
    assert (port.positions, reflector.relists) == (["10", "20", "20"], 1)


async def test_a_list_of_what_is_known_is_told_page_by_page_too():
    """No more than a page or two are held after 410; who took another one's name comes after that one's deletion."""
    a, b = pod("a", 1), pod("b", 2)
    again = KubePod(metadata=ObjectMeta(name="b", namespace="d", uid="another", resource_version="25"))
    port = ScriptedPort(
        [ObjectList((a, b), "10"), [ObjectList((a,), "30"), ObjectList((again,), "30")]],
        [[KubeExpired("old")], [[Upserted(pod("d", 31))]]],
    )
    told = await take(reflector_of(port), 4)
    gone, added = told[2]
    assert isinstance(gone, DeletedObject)
    assert (gone.object.metadata.uid, added) == ("uid-b", Upserted(again))
    assert told[3] == [Upserted(pod("d", 31))]


async def test_pages_that_expired_are_followed_by_a_list_without_pages():
    a = pod("a", 1)
    port = ScriptedPort([[ObjectList((a,), "10"), KubeExpired("too old")], ObjectList((a,), "20")], [])
    assert await take(reflector_of(port), 2) == [[Upserted(a)], [Synced("20")]]
    assert port.whole == 1


async def test_a_bookmark_is_a_word_and_a_failed_list_is_none():
    """Who must know how old the view is goes by when the server last said anything."""
    times = iter(range(100))
    port = ScriptedPort([KubeUnknown("down"), ObjectList((), "10"), ObjectList((), "20")], [[[Bookmark("12")]]])
    reflector = reflector_of(port, clock=lambda: float(next(times)))
    assert reflector.heard_at is None
    async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(reflector.batches()) as batches:
        await anext(batches)
        listed_at = reflector.heard_at
        assert listed_at is not None
        waiting = asyncio.ensure_future(anext(batches))
        for _ in range(20):
            await asyncio.sleep(0)
        assert reflector.heard_at > listed_at
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_a_failed_list_is_tried_again():
    port = ScriptedPort([KubeUnknown("down"), KubeUnknown("down"), ObjectList((), "10")], [])
    assert await take(reflector_of(port), 1) == [[Synced("10")]]


async def test_one_read_is_one_batch_and_bookmarks_alone_are_none():
    events = [Upserted(pod(f"p{number}", number)) for number in range(300)]
    port = ScriptedPort([ObjectList((), "0")], [[[Bookmark("1")], events]])
    assert await take(reflector_of(port), 2) == [[Synced("0")], events]


async def test_a_long_list_is_handed_over_in_parts():
    items = tuple(pod(f"p{number}", number) for number in range(BATCH + 1))
    port = ScriptedPort([ObjectList(items, "0")], [])
    first, second, _ = await take(reflector_of(port), 3)
    assert (len(first), len(second)) == (BATCH, 1)


async def test_lists_of_one_process_run_one_at_a_time():
    port = ScriptedPort([ObjectList((), "0") for _ in range(4)], [])
    gate = asyncio.Semaphore(1)
    await asyncio.gather(*(take(reflector_of(port, relist_gate=gate), 1) for _ in range(4)))
    assert port.most_listing == 1


async def test_without_the_gate_lists_pile_up():
    """Ablation of the test above."""
    port = ScriptedPort([ObjectList((), "0") for _ in range(4)], [])
    await asyncio.gather(*(take(reflector_of(port), 1) for _ in range(4)))
    assert port.most_listing == 4


async def test_closing_the_consumer_closes_the_watch():
    port = ScriptedPort([ObjectList((), "0")], [[[Upserted(pod("a", 1))]]])
    await take(reflector_of(port), 2)
    assert port.closed == 1


# --- kinds that not every server has, and their versions ------------------------------------------------------------

NEW, OLD = (
    Resource("Pod", "example.com", version, "pods", True, KubePod) for version in ("v2", "v1")
)  # fmt: skip
ABSENT = KubeRejected("not served", status=404)


class VersionedPort:
    """Serves ``served`` of the versions; a change of it ends the watch, as an upgrade of the server does."""

    def __init__(self, *served: str) -> None:
        self.served, self.items = set(served), [pod("a", 1)]
        self.lists: list[str] = []
        self.upgraded, self.refused_often = asyncio.Event(), asyncio.Event()

    async def list(self, resource: Any, *, timeout_s: float = 60.0) -> ObjectList[Any]:
        self.lists.append(resource.version)
        if resource.version not in self.served:
            if self.lists[-4:].count(resource.version) == 2:
                self.refused_often.set()
            raise ABSENT
        return ObjectList(tuple(self.items), "10")

    async def pages(self, resource: Any, *, timeout_s: float = 60.0) -> AsyncGenerator[ObjectList[Any], None]:
        yield await self.list(resource, timeout_s=timeout_s)

    async def watch_batches(
        self, resource: Any, *, resource_version: str, brief: int = 0
    ) -> AsyncGenerator[Sequence[Any], None]:
        await self.upgraded.wait()
        self.upgraded.clear()
        if resource.version not in self.served:
            raise ABSENT
        yield [Upserted(pod("late", 20))]


def versioned(port: VersionedPort, **options: Any) -> Reflector[KubePod]:
    reflector: Reflector[KubePod] = Reflector(
        port, NEW, older=(OLD,), optional=True, rng=random.Random(1), backoff_s=0.001, **options  # type: ignore[arg-type]
    )  # fmt: skip
    return reflector


async def test_the_newest_served_version_is_followed() -> None:
    port = VersionedPort("v1", "v2")
    assert await take(versioned(port), 2) == [[Upserted(pod("a", 1))], [Synced("10")]]
    assert port.lists == ["v2"]
    port = VersionedPort("v1")
    assert await take(versioned(port), 2) == [[Upserted(pod("a", 1))], [Synced("10")]]
    assert port.lists == ["v2", "v1"]


async def test_an_upgrade_tells_every_object_anew_and_deletes_only_what_is_gone() -> None:
    port = VersionedPort("v1")
    port.items.append(pod("b", 2))
    reflector = versioned(port)
    async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(reflector.batches()) as batches:
        await anext(batches)
        await anext(batches)
        port.served, port.items = {"v2"}, [pod("a", 1)]
        port.upgraded.set()
        events = await anext(batches)
        (gone,) = await anext(batches)
    assert events == [Upserted(pod("a", 1))]
    assert isinstance(gone, DeletedObject)
    assert gone.object.metadata.uid == "uid-b"
    assert port.lists[-1] == "v2"


async def test_without_doubt_a_kept_object_would_be_known_by_its_old_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation of the test above."""
    from shared.kube.known import KnownObjects

    monkeypatch.setattr(KnownObjects, "doubt", lambda self: None)
    port = VersionedPort("v1")
    reflector = versioned(port)
    async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(reflector.batches()) as batches:
        await anext(batches)
        await anext(batches)
        port.served, port.items = {"v2"}, [pod("a", 1), pod("c", 3)]
        port.upgraded.set()
        assert await anext(batches) == [Upserted(pod("c", 3))]


async def test_nothing_is_forgotten_while_no_version_is_served() -> None:
    port = VersionedPort("v1")
    reflector = versioned(port, unserved_retry_s=0.001)
    async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(reflector.batches()) as batches:
        await anext(batches)
        await anext(batches)
        port.served = set()
        port.upgraded.set()
        told = asyncio.ensure_future(anext(batches))
        await port.refused_often.wait()
        assert not told.done()
        port.served = {"v2"}
        assert await told == [Upserted(pod("a", 1))]


async def test_a_kind_that_is_not_served_counts_as_empty_and_is_picked_up_when_it_is() -> None:
    port = VersionedPort()
    reflector = versioned(port, unserved_retry_s=0.001)
    async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(reflector.batches()) as batches:
        assert await anext(batches) == [Synced("", served=False)]
        told = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0)
        port.served = {"v2"}
        assert await told == [Upserted(pod("a", 1))]
        [synced] = await anext(batches)  # who was told that there are none is told that these are all
        assert isinstance(synced, Synced)
        assert synced.served


async def test_a_server_that_is_started_again_is_listed_soon_however_often_it_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reflector, "MAX_BACKOFF_S", 3600.0)
    monkeypatch.setattr(reflector, "MAX_REFUSED_S", 0.001)
    refused = KubeUnknown("list pods: refused")
    refused.__cause__ = ConnectionRefusedError()
    port = ScriptedPort([*[refused] * 30, ObjectList((pod("a", 1),), "10")], [[]])
    batches = await take(reflector_of(port), 1)
    assert batches == [[Upserted(pod("a", 1))]]
