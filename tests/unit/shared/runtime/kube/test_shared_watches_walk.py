"""Random walks of a shared watch: objects come, change and go, watches break and expire, lists fail and are slow.

Whoever follows, from whenever on, is told ``Synced`` once; by then nothing is as it was before it came (W1); and in the
end it knows what there is (W2).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from shared.errors import KubeExpired, KubeRejected, KubeUnknown
from shared.kube.objects import ObjectMeta, Pod
from shared.kube.resources import PODS, Deleted, Malformed, MalformedObject, ObjectList, Upserted
from shared.runtime.kube.reflector import Reflector, Synced
from shared.runtime.kube.shared_watches import SharedWatch

STEPS = 60


class Server:
    """Pods, some malformed, with all their history; it ``fails`` now and then."""

    def __init__(self, rng: random.Random, *, fails: bool) -> None:
        self.rng, self.fails = rng, fails
        self.revision = 10
        self.objects: dict[str, Pod | MalformedObject] = {}
        self._events: list[tuple[int, Any]] = []
        self._names = 0
        self._changed = asyncio.Event()

    def known(self) -> dict[str, int]:
        """The revision of each object by uid, below 0 where it is malformed."""
        return {uid: revision_of(item) for uid, item in self.objects.items()}

    def change(self) -> None:
        self.revision += 1
        event: Any
        if self.objects and self.rng.random() < 0.3:
            gone = self.objects.pop(self.rng.choice(sorted(self.objects)))
            event = Deleted(gone) if isinstance(gone, Pod) else Malformed(gone, deleted=True)
        else:
            if not self.objects or self.rng.random() < 0.5:
                self._names += 1
                uid = f"u{self._names}"
            else:
                uid = self.rng.choice(sorted(self.objects))
            if self.rng.random() < 0.15:
                bad = self.objects[uid] = MalformedObject("Pod", "d", uid, uid, str(self.revision), "no")
                event = Malformed(bad)
            else:
                meta = ObjectMeta(name=uid, namespace="d", uid=uid, resource_version=str(self.revision))
                pod = self.objects[uid] = Pod(metadata=meta)
                event = Upserted(pod)
        self._events.append((self.revision, event))
        self._changed.set()

    async def list(self, resource: Any, *, timeout_s: float = 60.0) -> ObjectList[Any]:
        if self.fails and self.rng.random() < 0.3:
            raise self.rng.choice([KubeUnknown("away"), KubeRejected("no", status=500)])
        found = tuple(item for item in self.objects.values() if isinstance(item, Pod))
        malformed = tuple(item for item in self.objects.values() if isinstance(item, MalformedObject))
        listed = ObjectList(found, str(self.revision), malformed)
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

    async def watch_batches(self, resource: Any, *, resource_version: str) -> AsyncGenerator[Sequence[Any], None]:
        shown = int(resource_version)
        while True:
            if self.fails and self.rng.random() < 0.1:
                raise self.rng.choice([KubeExpired("410"), KubeUnknown("cut")])
            news = [(revision, event) for revision, event in self._events if revision > shown]
            if not news:
                self._changed.clear()
                await self._changed.wait()
                await asyncio.sleep(self.rng.choice([0, 0.002]))  # it comes late
                continue
            news = news[: self.rng.randrange(len(news)) + 1]
            shown = news[-1][0]
            yield [event for _, event in news]


def revision_of(item: Pod | MalformedObject) -> int:
    return int(item.metadata.resource_version) if isinstance(item, Pod) else -int(item.resource_version)


class Follower:
    """What it was told, and what there was when it came."""

    def __init__(self, server: Server) -> None:
        self.there, self.came_at = server.known(), server.revision
        self.known: dict[str, int] = {}
        self.at_synced: list[dict[str, int]] = []

    def __call__(self, batch: Sequence[Any]) -> None:
        for event in batch:
            match event:
                case Synced():
                    self.at_synced.append(dict(self.known))
                case Upserted() | Malformed(deleted=False):
                    found = event.object
                    self.known[found.metadata.uid if isinstance(found, Pod) else found.uid] = revision_of(found)
                case Deleted():
                    self.known.pop(event.object.metadata.uid, None)
                case Malformed():
                    self.known.pop(event.object.uid, None)

    def believes_what_is_over(self) -> dict[str, int]:
        """What it knew at ``Synced`` that was over when it came."""
        told = self.at_synced[0]
        return {uid: seen for uid, seen in told.items() if abs(seen) < abs(self.there.get(uid, self.came_at + 1))}


@pytest.mark.parametrize("seed", range(60))
async def test_whoever_follows_from_whenever_on_knows_what_there_is_and_nothing_that_was_over(seed: int) -> None:
    rng = random.Random(seed)
    server, count = Server(rng, fails=seed % 4 > 0), rng.choice([2, 2, 3, 4])
    reflector: Reflector[Any] = Reflector(server, PODS, rng=random.Random(1), backoff_s=0.0005)  # type: ignore[arg-type]
    watch = SharedWatch(reflector, lambda item: item, followers=count)
    watch.begin()
    followers: list[Follower] = []
    tasks: list[asyncio.Future[None]] = []

    def come() -> None:
        followers.append(Follower(server))
        tasks.append(asyncio.ensure_future(watch.follow(followers[-1])))

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
        async with asyncio.timeout(10):
            while not all(one.at_synced and one.known == server.known() for one in followers):  # W2
                assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
                await asyncio.sleep(0.001)
        assert [len(one.at_synced) for one in followers] == [1] * count
        assert [one.believes_what_is_over() for one in followers] == [{}] * count  # W1
        assert len(watch) == 0
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
