"""A watch that several follow, and a mirror: each hears what a watch of its own tells, and when all is there."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shared.errors import KubeRejected, KubeUnknown
from shared.kube.objects import KubeNode, KubePod, ObjectMeta
from shared.kube.resources import NODES, PODS, DeletedObject, Malformed, MalformedObject, ObjectList, Upserted
from shared.kube.scheduling_kinds import CLAIMS, STORAGE_KINDS
from shared.model.cluster_events import ClusterEvent, Listed, NodeDeleted, NodeUpserted, PodUpserted
from shared.ports import KubeApi
from shared.runtime.kube.reflector import BRIEF, Reflector, Synced
from shared.runtime.kube.shared_watches import SharedWatch
from shared.runtime.kube.watches import Watches
from tests.patience import PATIENCE_S
from tests.unit.shared.runtime.kube.test_reflector import ScriptedPort, pod


class Port(ScriptedPort):
    """Lists as scripted; each watch tells what is ``say``'d while it is the last one."""

    def __init__(self, *lists: Any) -> None:
        super().__init__(list(lists), [])
        self._queue: asyncio.Queue[list[Any]] = asyncio.Queue()
        self.may_list = asyncio.Event()
        self.may_list.set()
        self.listed = asyncio.Event()
        """A list was asked for."""
        self.may_end = asyncio.Event()
        self.may_end.set()
        """A watch that is ended takes until then."""
        self.ending = asyncio.Event()

    async def list(self, resource: Any, *, timeout_s: float = 60.0) -> ObjectList[Any]:
        self.listed.set()
        found = await super().list(resource, timeout_s=timeout_s)
        await self.may_list.wait()
        return found

    @property
    def empty(self) -> bool:
        """Whether all that was said is told."""
        return self._queue.empty()

    def say(self, *events: Any) -> None:
        self._queue.put_nowait(list(events))

    async def watch_batches(self, resource: Any, *, resource_version: str, brief: int = 0) -> Any:
        self.positions.append(resource_version)
        try:
            while True:
                yield await self._queue.get()
        finally:
            self.closed += 1
            self.ending.set()
            await self.may_end.wait()


class Follower:
    """What one who follows has heard."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.changed = asyncio.Event()

    def __call__(self, batch: Any) -> None:
        self.heard += batch
        self.changed.set()

    def known(self) -> dict[str, str]:
        """Pods it would believe in: resourceVersion by uid."""
        found: dict[str, str] = {}
        for event in self.heard:
            match event:
                case Upserted(object=KubePod(metadata=meta)):
                    found[meta.uid] = meta.resource_version
                case DeletedObject(object=one):
                    found.pop(one.metadata.uid, None)
        return found

    @property
    def synced(self) -> int:
        return sum(isinstance(event, Synced) for event in self.heard)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def following(watch: SharedWatch) -> AsyncIterator[Callable[[], Follower]]:
    """``begin()`` adds a follower."""
    tasks = []

    def begin() -> Follower:
        follower = Follower()
        tasks.append(asyncio.ensure_future(watch.follow(follower)))
        return follower

    try:
        yield begin
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def watch_of(port: Port, read: Callable[[Any], Any] = lambda item: item, *, begun: bool = True) -> SharedWatch:
    """For two. ``begun``: the first need not wait for the second."""
    reflector: Reflector[Any] = Reflector(port, PODS, rng=random.Random(1), backoff_s=0.001)  # type: ignore[arg-type]
    watch = SharedWatch(reflector, read, followers=2)
    if begun:
        watch.begin()
    return watch


async def test_those_who_come_together_share_one_list_and_one_reading_of_each_object() -> None:
    read: list[str] = []
    port = Port(ObjectList((pod("a", 1),), "10"))

    def name(item: KubePod) -> KubePod:
        read.append(item.metadata.name)
        return item

    async with following(watch_of(port, name, begun=False)) as begin:
        first = begin()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not port.listed.is_set(), "one more is to come"
        second = begin()
        await second.until(lambda: second.synced == 1)
        port.say(Upserted(pod("b", 11)))
        await second.until(lambda: len(second.heard) == 3)
        assert first.heard == second.heard == [Upserted(pod("a", 1)), Synced("10"), Upserted(pod("b", 11))]
    assert (read, port.positions) == (["a", "b"], ["10"])


async def test_who_comes_first_waits_for_the_other_no_longer_than_it_may() -> None:
    """A role of the process may be kept from following by what does not concern the other one."""
    port = Port(ObjectList((pod("a", 1),), "10"))
    reflector: Reflector[Any] = Reflector(port, PODS)  # type: ignore[arg-type]
    async with following(SharedWatch(reflector, lambda item: item, followers=2, patience_s=0.001)) as begin:
        first = begin()
        await first.until(lambda: first.synced == 1)


async def test_who_comes_late_is_told_what_a_list_says_now_and_not_what_was_shown_before() -> None:
    """The watch has not shown yet that b was bound or c deleted: a list, made after it came, has."""
    port = Port(
        ObjectList((pod("a", 1), pod("b", 2), pod("c", 3)), "10"), ObjectList((pod("a", 1), pod("b", 12)), "20")
    )
    async with following(watch_of(port)) as begin:
        first = begin()
        await first.until(lambda: first.synced == 1)
        second = begin()
        await second.until(lambda: second.synced == 1)
        assert second.known() == {"uid-a": "1", "uid-b": "12"}
        assert isinstance(second.heard[-1], Synced), "it may rely on nothing before all is told"
        assert first.known() == second.known()
        assert first.synced == 1
        port.say(Upserted(pod("d", 21)))
        await second.until(lambda: "uid-d" in second.known())
        assert first.known() == second.known()
    assert port.positions == ["10", "20"]


async def test_who_comes_amid_a_list_waits_for_the_next_one_and_holds_nobody_up() -> None:
    port = Port(ObjectList((pod("a", 1),), "10"), ObjectList((pod("a", 5),), "20"))
    port.may_list.clear()
    async with following(watch_of(port)) as begin:
        first = begin()
        await port.listed.wait()
        second = begin()
        await asyncio.sleep(0)
        port.may_list.set()
        await second.until(lambda: second.synced == 1)
        assert first.heard[:2] == [Upserted(pod("a", 1)), Synced("10")], "it is told the list that was under way"
        assert second.known() == {"uid-a": "5"}
    assert port.positions == ["20"]


async def test_who_comes_while_the_watch_is_ending_for_another_is_told_by_the_same_list() -> None:
    port = Port(ObjectList((pod("a", 1),), "10"), ObjectList((pod("a", 5),), "20"))
    reflector: Reflector[Any] = Reflector(port, PODS, rng=random.Random(1))  # type: ignore[arg-type]
    watch = SharedWatch(reflector, lambda item: item, followers=3)
    watch.begin()
    async with following(watch) as begin:
        first = begin()
        await first.until(lambda: first.synced == 1)
        port.may_end.clear()
        second = begin()
        await port.ending.wait()
        third = begin()
        await asyncio.sleep(0)
        port.may_end.set()
        await second.until(lambda: second.synced == 1)
        await third.until(lambda: third.synced == 1)
        assert second.known() == third.known() == {"uid-a": "5"}
    assert port.positions == ["10", "20"]


async def test_everybody_is_told_synced_once_though_the_first_list_failed() -> None:
    port = Port(KubeUnknown("away"), ObjectList((pod("a", 1),), "10"))
    port.may_list.clear()
    async with following(watch_of(port)) as begin:
        first = begin()
        await port.listed.wait()
        second = begin()
        await asyncio.sleep(0)
        port.may_list.set()
        await second.until(lambda: second.synced == 1)
        await first.until(lambda: first.synced == 1)
        assert first.known() == second.known() == {"uid-a": "1"}
        assert (first.synced, second.synced) == (1, 1)


async def test_of_a_kind_that_is_not_served_who_comes_late_hears_at_once() -> None:
    """Not when it is asked for the next time, which may be long after."""
    port = Port(KubeRejected("no such kind", status=404), KubeRejected("no such kind", status=404))
    reflector: Reflector[Any] = Reflector(port, PODS, optional=True, unserved_retry_s=1000.0)  # type: ignore[arg-type]
    watch = SharedWatch(reflector, lambda item: item, followers=2)
    watch.begin()
    async with following(watch) as begin:
        first = begin()
        await first.until(lambda: first.synced == 1)
        await asyncio.sleep(0)  # it rests now
        second = begin()
        await second.until(lambda: second.synced == 1)
        assert first.synced == 1


async def test_nothing_is_kept_once_all_followers_are_there() -> None:
    port = Port(ObjectList((pod("a", 1),), "10"), ObjectList((pod("a", 1),), "20"))
    watch = watch_of(port)
    async with following(watch) as begin:
        first = begin()
        await first.until(lambda: first.synced == 1)
        assert len(watch) == 1
        second = begin()
        await second.until(lambda: second.synced == 1)
        assert len(watch) == 0
        port.say(Upserted(pod("b", 21)))
        await second.until(lambda: "uid-b" in second.known())
        assert len(watch) == 0


async def test_the_watch_goes_on_for_who_is_left_and_ends_with_the_last() -> None:
    port = Port(ObjectList((), "10"))
    watch, follower = watch_of(port), Follower()
    leaving, staying = (asyncio.ensure_future(watch.follow(one)) for one in (Follower(), follower))
    await follower.until(lambda: follower.synced == 1)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    port.say(Upserted(pod("a", 11)))
    await follower.until(lambda: follower.known() == {"uid-a": "11"})
    staying.cancel()
    await asyncio.gather(staying, return_exceptions=True)
    assert port.closed == 1


async def test_an_error_of_the_watch_is_everybodys() -> None:
    port = Port(ObjectList((pod("a", 1),), "10"))

    def fails(item: Any) -> Any:
        raise ValueError("a bug")

    watch = watch_of(port, fails)
    for ended in await asyncio.gather(watch.follow(Follower()), watch.follow(Follower()), return_exceptions=True):
        assert isinstance(ended, ValueError)


class Cluster(Port):
    """Lists of pods, nodes and claims by kind, each once more where it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        bare: Any = ObjectMeta(name="n", uid="n", resource_version="1")
        pods: Any = KubePod(metadata=ObjectMeta(name="p", namespace="d", uid="p", resource_version="1"))
        bad = MalformedObject("Node", "", "bad", "bad", "1", "no")
        self.of: dict[str, ObjectList[Any]] = {
            NODES.plural: ObjectList((KubeNode(metadata=bare),), "10", (bad,)),
            PODS.plural: ObjectList((pods,), "10"),
        }

    async def list(self, resource: Any, *, timeout_s: float = 60.0) -> ObjectList[Any]:
        return self.of.get(resource.plural, ObjectList((), "10"))

    async def pages(self, resource: Any, *, timeout_s: float = 60.0) -> AsyncGenerator[ObjectList[Any], None]:
        yield await self.list(resource)

    async def watch_batches(self, resource: Any, *, resource_version: str, brief: int = 0) -> Any:
        self.positions.append(resource.plural)
        await asyncio.Event().wait()
        yield []


@pytest.mark.parametrize("late", [0, BRIEF])
async def test_each_follower_hears_what_watches_of_its_own_would_tell_it(late: bool) -> None:
    """The coordinator wants images and keeps a node that cannot be read; the binder does neither."""

    async def told(watches: Watches, coordinators: bool, synced: asyncio.Event) -> list[ClusterEvent]:
        heard: list[ClusterEvent] = []

        def post(events: list[ClusterEvent]) -> None:
            heard.extend(events)
            if sum(isinstance(event, Listed) for event in heard) == 3:
                synced.set()

        group = asyncio.gather(
            watches.follow_pods(post, job_groups=not coordinators),
            watches.follow_nodes(post, images=coordinators, drop_malformed=not coordinators),
            watches.follow_objects(CLAIMS, post),
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                await synced.wait()
                await done.wait()
        finally:
            group.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await group
        return heard

    done = asyncio.Event()
    done.set()
    api: KubeApi = Cluster()  # type: ignore[assignment]
    own = [
        await told(Watches(api, STORAGE_KINDS, images=True), coordinators, asyncio.Event())
        for coordinators in (True, False)
    ]
    done.clear()
    port: Any = Cluster()
    watches = Watches(port, STORAGE_KINDS, STORAGE_KINDS, images=True)
    listed = [asyncio.Event(), asyncio.Event()]
    first = asyncio.ensure_future(told(watches, True, listed[0]))
    if late:
        watches.begin()
        await listed[0].wait()
    second = asyncio.ensure_future(told(watches, False, listed[1]))
    for event in listed:
        await event.wait()
    done.set()
    shared = [await first, await second]

    def order(event: Any) -> str:
        return str((isinstance(event, Listed), type(event).__name__, event))

    for alone, together in zip(own, shared, strict=True):
        assert sorted(together, key=order) == sorted(alone, key=order)
    nodes = [next(event for event in heard if isinstance(event, NodeUpserted)) for heard in shared]
    assert (nodes[0].images, nodes[1].images) == ({}, None)
    assert [NodeDeleted("bad") in heard for heard in shared] == [False, True]
    pods = [next(event.pod for event in heard if isinstance(event, PodUpserted)) for heard in shared]
    assert pods[0] is pods[1] or late, "one conversion for both"
    assert sorted(set(port.positions)) == ["nodes", "persistentvolumeclaims", "pods"]


async def test_a_malformed_object_is_told_to_who_comes_late_and_forgotten_when_it_is_gone() -> None:
    bad = MalformedObject("Pod", "d", "x", "uid-x", "1", "no")
    first_list = ObjectList((pod("a", 1),), "10", (bad,))
    port = Port(first_list, ObjectList((pod("a", 1),), "20", (bad,)))
    async with following(watch_of(port)) as begin:
        first = begin()
        await first.until(lambda: first.synced == 1)
        second = begin()
        await second.until(lambda: second.synced == 1)
        assert Malformed(bad) in second.heard
