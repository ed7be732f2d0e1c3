"""Random walks of a shared watch: objects come, change and go, watches break and expire, lists fail and are slow.

Whoever follows, from whenever on, is told ``Synced`` once; by then nothing is as it was before it came (W1); and in the
end it knows what there is (W2). With and without a mirror from which it is told, and lists of one page or of several.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from shared.errors import KubeExpired, KubeRejected, KubeUnknown
from shared.kube.objects import KubePod, ObjectMeta
from shared.kube.resources import PODS, Bookmark, DeletedObject, Malformed, MalformedObject, ObjectList, Upserted
from shared.runtime.kube.reflector import Reflector, Synced
from shared.runtime.kube.shared_watches import SharedWatch
from tests.patience import PATIENCE_S

STEPS = 60


class Server:
    """Pods, some malformed, with all their history; it ``fails`` now and then."""

    def __init__(self, rng: random.Random, *, fails: bool) -> None:
        self.rng, self.fails = rng, fails
        self.at = 10
        self.objects: dict[str, KubePod | MalformedObject] = {}
        self._events: list[tuple[int, Any]] = []
        self._names = 0
        self._changed = asyncio.Event()

    def known(self) -> dict[str, int]:
        """The revision of each object by uid, below 0 where it is malformed."""
        return {uid: revision_of(item) for uid, item in self.objects.items()}

    def change(self) -> None:
        self.at += 1
        event: Any
        if self.objects and self.rng.random() < 0.3:
            gone = self.objects.pop(self.rng.choice(sorted(self.objects)))
            event = DeletedObject(gone) if isinstance(gone, KubePod) else Malformed(gone, deleted=True)
        else:
            if not self.objects or self.rng.random() < 0.5:
                self._names += 1
                uid = f"u{self._names}"
            else:
                uid = self.rng.choice(sorted(self.objects))
            if self.rng.random() < 0.15:
                bad = self.objects[uid] = MalformedObject("Pod", "d", uid, uid, str(self.at), "no")
                event = Malformed(bad)
            else:
                meta = ObjectMeta(name=uid, namespace="d", uid=uid, resource_version=str(self.at))
                pod = self.objects[uid] = KubePod(metadata=meta)
                event = Upserted(pod)
        self._events.append((self.at, event))
        self._changed.set()

    async def list(self, resource: Any, *, timeout_s: float = 60.0) -> ObjectList[Any]:
        if self.fails and self.rng.random() < 0.3:
            raise self.rng.choice([KubeUnknown("away"), KubeRejected("no", status=500)])
        found = tuple(item for item in self.objects.values() if isinstance(item, KubePod))
        malformed = tuple(item for item in self.objects.values() if isinstance(item, MalformedObject))
        listed = ObjectList(found, str(self.at), malformed)
        for _ in range(self.rng.randrange(4)):
            await asyncio.sleep(self.rng.choice([0, 0.001]))
        return listed

    async def pages(self, resource: Any, *, timeout_s: float = 60.0) -> AsyncGenerator[ObjectList[Any], None]:
        listed = await self.list(resource)
        half = len(listed.items) // 2
        yield ObjectList(listed.items[:half], listed.resource_version)
        await asyncio.sleep(0)
        if self.fails and self.rng.random() < 0.3:
            raise KubeUnknown("between two pages")
        yield ObjectList(listed.items[half:], listed.resource_version, listed.malformed)

    async def revision(self, resource: Any) -> str:
        if self.fails and self.rng.random() < 0.3:
            raise KubeUnknown("away")
        return str(self.at)

    async def watch_batches(
        self, resource: Any, *, resource_version: str, brief: int = 0
    ) -> AsyncGenerator[Sequence[Any], None]:
        shown = int(resource_version)
        tells = brief > 0 and self.rng.random() < 0.7  # else nothing says how far it has got
        while True:
            if self.fails and self.rng.random() < 0.1:
                raise self.rng.choice([KubeExpired("410"), KubeUnknown("cut")])
            news = [(revision, event) for revision, event in self._events if revision > shown]
            if not news and tells:
                tells = False
                yield [Bookmark(str(self.at))]
                continue
            if not news:
                self._changed.clear()
                await self._changed.wait()
                await asyncio.sleep(self.rng.choice([0, 0.002]))  # it comes late
                continue
            news = news[: self.rng.randrange(len(news)) + 1]
            shown = news[-1][0]
            yield [event for _, event in news]


def revision_of(item: KubePod | MalformedObject) -> int:
    return int(item.metadata.resource_version) if isinstance(item, KubePod) else -int(item.resource_version)


class Follower:
    """What it was told, and what there was when it came."""

    def __init__(self, server: Server) -> None:
        self.there, self.came_at = server.known(), server.at
        self.known: dict[str, int] = {}
        self.at_synced: list[dict[str, int]] = []

    def __call__(self, batch: Sequence[Any]) -> None:
        for event in batch:
            match event:
                case Synced():
                    self.at_synced.append(dict(self.known))
                case Upserted() | Malformed(deleted=False):
                    found = event.object
                    self.known[found.metadata.uid if isinstance(found, KubePod) else found.uid] = revision_of(found)
                case DeletedObject():
                    self.known.pop(event.object.metadata.uid, None)
                case Malformed():
                    self.known.pop(event.object.uid, None)

    def believes_what_is_over(self) -> dict[str, int]:
        """What it knew at ``Synced`` that was over when it came."""
        told = self.at_synced[0]
        return {uid: seen for uid, seen in told.items() if abs(seen) < abs(self.there.get(uid, self.came_at + 1))}


@dataclass(frozen=True)
class Way:
    """How a walk goes. ``pages``: more objects than one page holds; ``mirrored``: the watch begins before anybody
    follows; ``exact``: False switches the catching up off. ``attends``: the only follower hears along before."""

    pages: bool = False
    mirrored: bool = False
    exact: bool = True
    attends: bool = False


async def walk(seed: int, way: Way) -> list[Follower]:
    """Until everybody knows what there is (W2); those who followed."""
    rng = random.Random(seed)
    server, count = Server(rng, fails=seed % 4 > 0), 1 if way.attends else rng.choice([1, 2, 2, 3, 4])
    reflector: Reflector[Any] = Reflector(
        server, PODS, rng=random.Random(1), backoff_s=0.0005, catch_up_s=0.01,  # type: ignore[arg-type]
        small=-1 if way.pages else 500,
    )  # fmt: skip
    watch = SharedWatch(reflector, lambda item: item, followers=count, exact=way.exact)
    heir = Follower(server)
    assert not way.attends or watch.attend(heir)
    watch.begin()
    assert not watch.attend(heir), "what was shown before it would not know"
    followers: list[Follower] = []
    tasks: list[asyncio.Future[None]] = []

    def come() -> None:
        followers.append(Follower(server))
        if way.attends:
            followers[-1].known = heir.known
        tasks.append(asyncio.ensure_future(watch.follow(followers[-1], attended=way.attends)))

    if way.mirrored:
        tasks.append(asyncio.ensure_future(watch.mirror()))
    try:
        for _ in range(STEPS):
            if rng.random() < 0.5:
                server.change()
            while len(followers) < count and rng.random() < 0.15:
                come()
            await asyncio.sleep(rng.choice([0, 0, 0.001]))
        while len(followers) < count:
            come()
        server.fails = False
        server.change()
        async with asyncio.timeout(PATIENCE_S):
            while not all(one.at_synced and one.known == server.known() for one in followers):  # W2
                assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
                await asyncio.sleep(0.001)
        assert [len(one.at_synced) for one in followers] == [1] * count
        assert len(watch) == 0
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return followers


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("seed", range(40))
async def test_whoever_follows_from_whenever_on_knows_what_there_is_and_nothing_that_was_over(
    seed: int, pages: bool, mirrored: bool
) -> None:
    followers = await walk(seed, Way(pages=pages, mirrored=mirrored))
    assert not any(one.believes_what_is_over() for one in followers)  # W1


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("seed", range(40))
async def test_who_has_attended_knows_the_same_as_who_is_told_from_the_mirror(seed: int, pages: bool) -> None:
    followers = await walk(seed, Way(pages=pages, mirrored=True, attends=True))
    assert not any(one.believes_what_is_over() for one in followers)


async def test_told_from_a_mirror_that_does_not_catch_up_some_would_believe_what_is_over() -> None:
    """The safeguard switched off, as it is for kinds of which a leader's own view may be as old."""
    walks = [await walk(seed, Way(pages=True, mirrored=True, exact=False)) for seed in range(40)]
    assert any(one.believes_what_is_over() for followers in walks for one in followers)
