"""A mirror: what a standby keeps, how a follower is told from it, and when it may rely on that."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shared.errors import KubeExpired, KubeUnknown
from shared.kube.resources import PODS, Bookmark, DeletedObject, ObjectList, Upserted
from shared.kube.scheduling_kinds import STORAGE_KINDS
from shared.runtime.kube import shared_watches
from shared.runtime.kube.reflector import BRIEF, CURRENT_S, Reflector, Synced, WatchPositionLost
from shared.runtime.kube.shared_watches import SharedWatch
from shared.runtime.kube.watches import Watches
from shared.runtime.process.process import Standby
from tests.unit.shared.runtime.kube.test_reflector import ScriptedPort, pod
from tests.unit.shared.runtime.kube.test_shared_watches import Cluster, Port, following


class Large(Port):
    """A kind of more than one page: it is asked for its revision; ``says``: the answers, in order."""

    def __init__(self, *lists: Any, says: Sequence[str] = ()) -> None:
        super().__init__(*lists)
        self.says = list(says)
        self.brief: list[int] = []

    async def revision(self, resource: Any) -> str:
        return self.says.pop(0)

    async def watch_batches(self, resource: Any, *, resource_version: str, brief: int = 0) -> Any:
        self.brief.append(brief)
        async with contextlib.aclosing(
            super().watch_batches(resource, resource_version=resource_version, brief=brief)
        ) as batches:
            async for batch in batches:
                yield batch


def large_of(port: Port, *, exact: bool = True, **options: Any) -> SharedWatch:
    """For one, of a kind of more than one page, and mirrored."""
    reflector: Reflector[Any] = Reflector(
        port, PODS, rng=random.Random(1), backoff_s=0.001, small=0, **options  # type: ignore[arg-type]
    )  # fmt: skip
    return SharedWatch(reflector, lambda item: item, followers=1, exact=exact)


async def nobody() -> None:
    """Attends."""


async def turns_until(holds: Callable[[], bool]) -> None:
    """As many turns of the loop as it takes."""
    for _ in range(100_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came about")


@asynccontextmanager
async def mirrored(watch: SharedWatch, *, of: int) -> AsyncIterator[None]:
    """It is warm, with so many objects."""
    task = asyncio.ensure_future(watch.mirror())
    try:
        await turns_until(lambda: watch.is_warm() and len(watch) == of)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("proof", [Bookmark("25"), Upserted(pod("c", 20))], ids=["bookmark", "event"])
async def test_who_is_told_from_a_mirror_hears_that_all_is_there_once_the_watch_has_passed_the_servers_revision(
    proof: Any,
) -> None:
    port = Large(ObjectList((pod("a", 1), pod("b", 2)), "10"), says=["20"])
    watch = large_of(port)
    async with mirrored(watch, of=2), following(watch) as begin:
        late = begin()
        await late.until(lambda: len(late.known()) == 2)
        port.say(Upserted(pod("b", 15)))
        await late.until(lambda: late.known() == {"uid-a": "1", "uid-b": "15"})
        assert late.synced == 0, "the watch has come to 15"
        port.say(proof)
        await late.until(lambda: late.synced == 1)
        assert len(watch) == 0
        port.say(DeletedObject(pod("a", 30)))
        await late.until(lambda: "uid-a" not in late.known())
        assert (late.synced, port.lists) == (1, [])
    assert (port.positions, port.brief) == (["10", "10"], [0, BRIEF])


async def test_a_watch_that_stays_silent_is_listed_instead() -> None:
    port = Large(ObjectList((pod("a", 1), pod("b", 2)), "10"), ObjectList((pod("b", 2),), "30"), says=["20", "30"])
    watch = large_of(port, catch_up_s=0.001)
    async with mirrored(watch, of=2), following(watch) as begin:
        late = begin()
        await late.until(lambda: late.synced == 1)
        assert (late.known(), port.lists) == ({"uid-b": "2"}, [])


async def test_a_watch_that_is_where_the_server_is_owes_no_proof() -> None:
    port = Large(ObjectList((pod("a", 1),), "10"), says=["10"])
    watch = large_of(port)
    async with mirrored(watch, of=1), following(watch) as begin:
        late = begin()
        await late.until(lambda: late.synced == 1)
        assert (late.known(), port.lists) == ({"uid-a": "1"}, [])


@pytest.mark.parametrize("says", ["9", "", "another"], ids=["went back", "does not tell", "no number"])
async def test_a_revision_that_the_watch_cannot_be_compared_with_is_listed(says: str) -> None:
    port = Large(ObjectList((pod("a", 1),), "10"), ObjectList((pod("b", 2),), "11"), says=[says])
    watch = large_of(port)
    async with mirrored(watch, of=1), following(watch) as begin:
        late = begin()
        await late.until(lambda: late.synced == 1)
        assert (late.known(), port.lists) == ({"uid-b": "2"}, [])


async def test_who_is_told_from_a_mirror_hears_of_things_in_the_order_in_which_they_came() -> None:
    """A list is in the order of names; pods that wait are queued as they came."""
    port = Large(ObjectList((pod("m", 1),), "10"), says=["13"])
    watch = large_of(port)
    async with mirrored(watch, of=1), following(watch) as begin:
        port.say(Upserted(pod("z", 11)), Upserted(pod("a", 12)), Upserted(pod("z", 13)))
        await turns_until(lambda: len(watch) == 3)
        late = begin()
        await late.until(lambda: late.synced == 1)
        assert [event.object.metadata.name for event in late.heard[:-1]] == ["m", "z", "a"]


async def test_a_list_for_a_mirror_alone_gives_way_and_one_that_a_follower_waits_for_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that was killed comes back as a standby and lists, while its successor has more to ask for."""
    gave_way: list[float] = []
    follows = asyncio.Event()

    async def give_way(self: Reflector[Any], took_s: float) -> None:
        gave_way.append(took_s)
        await follows.wait()

    monkeypatch.setattr(Reflector, "_give_way", give_way)
    pages = [ObjectList((pod(name, 1),), "10") for name in "abc"]
    watch = large_of(Large(pages, says=["10"]))
    async with following(watch) as begin:
        mirroring = asyncio.ensure_future(watch.mirror())
        await turns_until(lambda: len(gave_way) == 1)
        late = begin()
        await turns_until(lambda: len(late.heard) == 1)
        follows.set()
        await late.until(lambda: late.synced == 1)
        mirroring.cancel()
        await asyncio.gather(mirroring, return_exceptions=True)
    assert len(gave_way) == 1
    assert sorted(late.known()) == ["uid-a", "uid-b", "uid-c"]


async def test_what_comes_while_a_long_mirror_is_told_waits_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told in parts, between which the watch goes on: a pod that goes meanwhile stays gone."""
    monkeypatch.setattr(shared_watches, "BATCH", 1)
    pods = tuple(pod(f"p{number}", 1) for number in range(500))
    port = Large(ObjectList(pods, "10"), says=["20"])
    watch = large_of(port)
    async with mirrored(watch, of=len(pods)), following(watch) as begin:
        late = begin()
        await late.until(lambda: len(late.heard) > 0)
        gone = DeletedObject(pod("p499", 20))
        port.say(gone)
        await turns_until(lambda: port.empty)
        assert len(late.heard) < len(pods)
        await late.until(lambda: late.synced == 1)
        assert late.heard[-2:] == [gone, Synced("20", 1)]
        assert len(late.known()) == len(pods) - 1


async def test_of_a_kind_whose_view_may_be_as_old_as_a_leaders_all_is_there_at_once() -> None:
    port = Large(ObjectList((pod("a", 1),), "10"))
    watch = large_of(port, exact=False)
    async with mirrored(watch, of=1), following(watch) as begin:
        late = begin()
        await late.until(lambda: late.synced == 1)
        assert late.known() == {"uid-a": "1"}
    assert port.positions == ["10"], "nothing was asked"


async def test_but_not_where_the_server_was_not_heard_for_longer_than_a_watch_that_works_is_silent() -> None:
    now = [100.0]
    port = Large(ObjectList((pod("a", 1),), "10"), says=["20"])
    watch = large_of(port, exact=False, clock=lambda: now[0])
    async with mirrored(watch, of=1), following(watch) as begin:
        now[0] += CURRENT_S + 1
        late = begin()
        await late.until(lambda: late.known() == {"uid-a": "1"})
        assert late.synced == 0
        port.say(Bookmark("20"))
        await late.until(lambda: late.synced == 1)


@pytest.mark.parametrize("standby", ["warm", "cold"])
async def test_a_mirror_is_kept_by_a_warm_standby_and_not_by_who_has_led(standby: Standby) -> None:
    """One that was stopped and hears of its successor is about to end, and its watches with it."""
    port: Any = Cluster()
    watches, spawned, heard = Watches(port, STORAGE_KINDS), list[str](), list[bool]()

    def spawn(name: str, work: Coroutine[Any, Any, None]) -> None:
        spawned.append(name)
        work.close()

    leads = Watches(port, STORAGE_KINDS)
    following = asyncio.ensure_future(leads.follow_nodes(lambda events: None))
    await asyncio.sleep(0)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    for of, ours in ((leads, False), (watches, True), (watches, False), (watches, False)):
        of.while_others_lead(standby, spawn, heard.append, nobody)(ours)
    assert heard == [False, True, False, False]
    assert spawned == (["mirror"] if standby == "warm" else [])


async def test_two_that_ask_one_after_the_other_are_both_answered_by_what_the_watch_passes() -> None:
    """The second comes while the server is asked for its revision: it waits for no time to be over."""
    asked, may_say = asyncio.Event(), asyncio.Event()

    class Slow(Large):
        async def revision(self, resource: Any) -> str:
            asked.set()
            await may_say.wait()
            return await super().revision(resource)

    port, heard = Slow(ObjectList((pod("a", 1),), "10"), says=["20", "21"]), list[Any]()
    reflector: Reflector[Any] = Reflector(port, PODS, small=0, catch_up_s=3600.0)  # type: ignore[arg-type]
    running = asyncio.ensure_future(reflector.run(heard.extend))
    await turns_until(lambda: Synced("10") in heard)
    assert reflector.ask() == 1
    await asked.wait()
    assert reflector.ask() == 2
    may_say.set()
    port.say(Bookmark("22"))
    await turns_until(lambda: isinstance(heard[-1], Synced) and heard[-1].asked == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_is_shown_amid_a_list_is_not_current() -> None:
    """Deletions come with its end."""
    port = ScriptedPort(
        [ObjectList((pod("a", 1),), "10"), [ObjectList((pod("b", 2),), "30"), ObjectList((pod("c", 3),), "30")]],
        [[KubeExpired("gone")], []],
    )
    reflector: Reflector[Any] = Reflector(port, PODS, backoff_s=0.001)  # type: ignore[arg-type]
    current: list[bool] = []
    async with contextlib.aclosing(reflector.batches()) as batches:
        async for batch in batches:
            current.append(reflector.is_current())
            if isinstance(batch[-1], DeletedObject):
                break
    assert current == [False, True, False, False, False], "once all was told, and not while it is listed again"


async def test_a_follower_hears_of_a_lost_position_and_once_more_when_all_is_there() -> None:
    a, b = pod("a", 1), pod("b", 20)
    port = ScriptedPort([ObjectList((a,), "10"), ObjectList((a, b), "30")], [[KubeExpired("gone")], []])
    reflector: Reflector[Any] = Reflector(port, PODS, backoff_s=0.001, ordered=True)  # type: ignore[arg-type]
    heard = list[Any]()
    running = asyncio.ensure_future(SharedWatch(reflector, lambda item: item).follow(heard.extend))
    await turns_until(lambda: Synced("30") in heard)
    assert heard == [Upserted(a), Synced("10"), WatchPositionLost(), Upserted(b), Synced("30")]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_who_asks_does_not_wait_for_the_pause_after_lists_that_failed() -> None:
    port = ScriptedPort([KubeUnknown("no answer"), ObjectList((pod("a", 1),), "10")], [[]])
    reflector: Reflector[Any] = Reflector(port, PODS, backoff_s=3600.0)  # type: ignore[arg-type]
    heard = list[Any]()
    running = asyncio.ensure_future(reflector.run(heard.extend))
    await turns_until(lambda: len(port.lists) == 1)
    for _ in range(10):
        await asyncio.sleep(0)
    reflector.ask()
    await turns_until(lambda: bool(heard) and heard[-1] == Synced("10", 1))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
