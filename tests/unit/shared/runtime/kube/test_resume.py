"""A server that has forgotten where a watch was: it goes on from now, and what was missed is listed beside it.

That is what each restart of an API server makes of a large kind. What is new is told however long the list takes, no
object goes back to what it was, and what went between is told gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from shared.errors import KubeExpired, KubeUnknown
from shared.kube.known import KnownObjects, ListingInProgress
from shared.kube.objects import KubePod
from shared.kube.resources import PODS, Bookmark, DeletedObject, ObjectList, Upserted
from shared.runtime.kube.reflector import Reflector, Synced
from tests.unit.shared.runtime.kube.test_reflector import pod


class Slow:
    """A server of a large kind whose second list comes page by page, as the test lets it."""

    def __init__(self, *says: str) -> None:
        self.says = list(says)
        self.news: asyncio.Queue[Any] = asyncio.Queue()
        self.pages_to_come: asyncio.Queue[Any] = asyncio.Queue()
        self.positions: list[str] = []
        self.lists = 0

    async def revision(self, resource: Any) -> str:
        return self.says.pop(0)

    async def pages(self, resource: Any, *, timeout_s: float = 60.0) -> AsyncGenerator[ObjectList[Any], None]:
        self.lists += 1
        while (page := await self.pages_to_come.get()) is not None:
            if isinstance(page, Exception):
                raise page
            yield page

    async def list(self, resource: Any, *, timeout_s: float = 60.0) -> ObjectList[Any]:
        self.lists += 1
        found: ObjectList[Any] = await self.pages_to_come.get()
        return found

    async def watch_batches(
        self, resource: Any, *, resource_version: str, brief: int = 0
    ) -> AsyncGenerator[Sequence[Any], None]:
        self.positions.append(resource_version)
        while True:
            event = await self.news.get()
            if isinstance(event, Exception):
                raise event
            yield [event]

    def shows(self, *pages: Any) -> None:
        for page in (*pages, None):
            self.pages_to_come.put_nowait(page)


class Consumer:
    """What it was told, in order."""

    def __init__(self, server: Slow, *, patience_s: float) -> None:
        self.reflector: Reflector[KubePod] = Reflector(
            server, PODS, rng=random.Random(1), backoff_s=0.001, small=0, catch_up_s=patience_s  # type: ignore[arg-type]
        )  # fmt: skip
        self.told: list[str] = []
        self.known: dict[str, str] = {}

    def __call__(self, batch: Sequence[Any]) -> None:
        for event in batch:
            match event:
                case Synced():
                    self.told.append(f"synced {event.resource_version}")
                case Upserted():
                    meta = event.object.metadata
                    self.known[meta.name] = meta.resource_version
                    self.told.append(f"{meta.name}{meta.resource_version}")
                case DeletedObject():
                    self.known.pop(event.object.metadata.name)
                    self.told.append(f"-{event.object.metadata.name}")


@contextlib.asynccontextmanager
async def lost(*says: str, patience_s: float = 0.001) -> Any:
    """(server, consumer): a1 and b2 are known, the watch has come to 10, and the server has forgotten that."""
    server = Slow(*says)
    server.shows(ObjectList((pod("a", 1), pod("b", 2)), "10"))
    consumer = Consumer(server, patience_s=patience_s)
    running = asyncio.ensure_future(consumer.reflector.run(consumer))
    await until(lambda: consumer.told == ["a1", "b2", "synced 10"])
    server.news.put_nowait(KubeExpired("too old"))
    try:
        yield server, consumer
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  it takes turns of the loop, and nothing else
            await asyncio.sleep(0)


async def test_what_is_new_is_told_before_the_list_is_there() -> None:
    async with lost("50") as (server, consumer):
        server.news.put_nowait(Upserted(pod("c", 51)))
        await until(lambda: "c51" in consumer.told)
        assert server.positions == ["10", "50"]
        assert not consumer.reflector.is_current(), "what was missed is not told yet"
        server.shows(ObjectList((pod("a", 1),), "52"), ObjectList((pod("c", 51), pod("d", 40)), "52"))
        await until(lambda: consumer.told[-1] == "-b")
        assert consumer.told[3:] == ["c51", "d40", "-b"]
        await until(lambda: server.positions == ["10", "50", "52"])
        assert consumer.reflector.is_current()


async def test_no_page_is_asked_for_before_the_watch_has_said_a_word() -> None:
    """A server that has just begun forgets once more, when its watch cache is there."""
    async with lost("50", "60", patience_s=60) as (server, consumer):
        server.shows(ObjectList((pod("a", 1),), "61"))
        await until(lambda: len(server.positions) == 2)
        server.news.put_nowait(KubeExpired("too old resource version: 50 (55)"))
        await until(lambda: len(server.positions) == 3)
        assert (server.positions[-1], server.lists) == ("60", 1)
        server.news.put_nowait(Bookmark("62"))
        await until(lambda: consumer.told[3:] == ["-b"])
        assert server.lists == 2


async def test_an_object_never_goes_back_whichever_tells_it_first() -> None:
    async with lost("50") as (server, consumer):
        server.news.put_nowait(Upserted(pod("a", 60)))
        await until(lambda: "a60" in consumer.told)
        server.pages_to_come.put_nowait(ObjectList((pod("a", 55), pod("b", 57)), "58"))
        await until(lambda: "b57" in consumer.told)
        server.news.put_nowait(Upserted(pod("b", 54)))
        server.news.put_nowait(Upserted(pod("c", 61)))
        await until(lambda: "c61" in consumer.told)
        server.pages_to_come.put_nowait(None)
        await until(lambda: len(server.positions) == 3)
        assert consumer.told[3:] == ["a60", "b57", "c61"]
        assert server.positions[-1] == "61", "the watch was ahead of the list"


async def test_a_part_of_the_list_that_waits_for_its_turn_does_not_take_back_what_the_watch_told_meanwhile() -> None:
    """Both are there at once, and the watch's comes first."""
    async with lost("50") as (server, consumer):
        server.news.put_nowait(Upserted(pod("a", 60)))
        server.shows(ObjectList((pod("a", 55), pod("b", 2)), "58"))
        await until(lambda: len(server.positions) == 3)
        assert consumer.known == {"a": "60", "b": "2"}


async def test_what_the_watch_showed_deleted_does_not_come_back_with_the_list() -> None:
    async with lost("50") as (server, consumer):
        server.news.put_nowait(DeletedObject(pod("b", 60)))
        await until(lambda: "-b" in consumer.told)
        server.shows(ObjectList((pod("a", 1), pod("b", 2)), "55"))
        await until(lambda: len(server.positions) == 3)
        assert consumer.known == {"a": "1"}


async def test_what_came_and_went_behind_the_list_is_told_gone_and_what_came_after_it_stays() -> None:
    """The watch is at 52 and goes on at the list's 60: it will never hear of what happened between."""
    async with lost("50") as (server, consumer):
        server.news.put_nowait(Upserted(pod("brief", 52)))
        await until(lambda: "brief52" in consumer.told)
        server.shows(ObjectList((pod("a", 1), pod("b", 2)), "60"))
        await until(lambda: len(server.positions) == 3)
        assert (consumer.known, server.positions[-1]) == ({"a": "1", "b": "2"}, "60")
    async with lost("50") as (server, consumer):
        server.news.put_nowait(Upserted(pod("late", 70)))
        await until(lambda: "late70" in consumer.told)
        server.shows(ObjectList((pod("a", 1), pod("b", 2)), "60"))
        await until(lambda: len(server.positions) == 3)
        assert (consumer.known, server.positions[-1]) == ({"a": "1", "b": "2", "late": "70"}, "70")


@pytest.mark.parametrize("first", ["watch", "list"])
async def test_one_that_bears_the_name_of_another_is_told_after_that_ones_end(first: str) -> None:
    known: KnownObjects[KubePod] = KnownObjects(PODS)
    known.relist(ObjectList((pod("a", 1),), "10"))
    again = KubePod(
        metadata=pod("a", 55).metadata.__class__(name="a", namespace="d", uid="other", resource_version="55")
    )
    listing = ListingInProgress(known, since=50)
    page = ObjectList((again,), "60")
    told = [*listing.apply([Upserted(again)])] if first == "watch" else [*listing.page(page)]
    told += listing.page(page) if first == "watch" else listing.apply([Upserted(again)])
    assert [type(event) for event in told] == [DeletedObject, Upserted]
    assert listing.end("60") == []


async def test_who_asks_meanwhile_is_told_once_all_is_there() -> None:
    async with lost("50", "56") as (server, consumer):
        await until(lambda: len(server.positions) == 2)
        asked = consumer.reflector.ask()
        server.news.put_nowait(Upserted(pod("c", 51)))
        await until(lambda: "c51" in consumer.told)
        assert asked == 1
        assert consumer.told[3:] == ["c51"]
        server.shows(ObjectList((pod("a", 1), pod("c", 51)), "55"))
        await until(lambda: len(server.positions) == 3)
        server.news.put_nowait(Bookmark("56"))
        await until(lambda: consumer.told[3:] == ["c51", "-b", "synced 56"])


ERRORS = pytest.mark.parametrize("error", [KubeUnknown("away"), KubeExpired("old")], ids=["away", "expired"])


@ERRORS
async def test_a_list_may_fail_and_nothing_that_was_told_of_is_lost(error: Exception) -> None:
    async with lost("50", "70") as (server, consumer):
        server.pages_to_come.put_nowait(ObjectList((pod("a", 45),), "52"))
        server.news.put_nowait(Upserted(pod("c", 51)))
        await until(lambda: {"a45", "c51"} <= set(consumer.told))
        server.pages_to_come.put_nowait(error)
        await until(lambda: len(server.positions) == 3)
        assert server.positions[-1] == "70"
        server.news.put_nowait(Upserted(pod("d", 71)))
        await until(lambda: "d71" in consumer.told)
        await until(lambda: server.lists == 3)


@ERRORS
@pytest.mark.parametrize(("told", "position"), [("c51", "52"), ("c60", "60")], ids=["behind the list", "ahead of it"])
async def test_a_watch_that_fails_beside_a_list_lets_it_come_to_its_end(
    told: str, position: str, error: Exception
) -> None:
    """A server that begins anew more often than a list takes: the watch goes on where the list was made."""
    async with lost("50") as (server, consumer):
        server.pages_to_come.put_nowait(ObjectList((pod("a", 45),), "52"))
        server.news.put_nowait(Upserted(pod("c", int(told[1:]))))
        await until(lambda: {"a45", told} <= set(consumer.told))
        server.news.put_nowait(error)
        await until(server.news.empty)
        server.shows(ObjectList((pod("d", 46),), "52"))
        await until(lambda: len(server.positions) == 3)
        assert (server.positions[-1], server.lists) == (position, 2)
        assert consumer.told[-2:] == (["d46", "-b"] if told == "c60" else ["-b", "-c"])


async def test_a_page_from_before_the_watch_began_is_of_a_server_that_went_back_and_is_not_taken() -> None:
    async with lost("50", "9") as (server, consumer):
        await until(lambda: len(server.positions) == 2)
        server.news.put_nowait(Upserted(pod("a", 51)))
        await until(lambda: "a51" in consumer.told)
        server.pages_to_come.put_nowait(ObjectList((pod("a", 3), pod("c", 4)), "9"))
        await until(lambda: not server.says)
        assert consumer.told[3:] == ["a51"]
        server.shows(ObjectList((pod("a", 3),), "9"))
        await until(lambda: len(server.positions) == 3)
        assert (consumer.known, server.positions[-1]) == ({"a": "3"}, "9")


@pytest.mark.parametrize("says", ["9", "", "another"], ids=["went back", "does not tell", "no number"])
async def test_a_server_that_went_back_or_does_not_say_where_it_is_is_listed_as_it_is(says: str) -> None:
    async with lost(says) as (server, consumer):
        server.shows(ObjectList((pod("b", 1),), "9"))
        await until(lambda: len(server.positions) == 2)
        assert (consumer.known, server.positions[-1]) == ({"b": "1"}, "9")


async def test_without_the_comparison_an_object_would_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The safeguard switched off."""
    monkeypatch.setattr(ListingInProgress, "_is_behind", lambda self, uid, resource_version: False)
    async with lost("50") as (server, consumer):
        server.news.put_nowait(Upserted(pod("a", 60)))
        await until(lambda: "a60" in consumer.told)
        server.pages_to_come.put_nowait(ObjectList((pod("a", 55),), "58"))
        await until(lambda: consumer.known["a"] == "55")
