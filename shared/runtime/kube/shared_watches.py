r"""One watch per kind for all who follow it in this process: each object is decoded and converted once.

    Reflector --batches--> read once --> each follower's events --> its core's inbox
                                    \--> what a list would tell now, while another follower may still come

The watch begins once all who will follow are there, or before, where some may be long in coming (``begin``, or
``patience_s``): so all share the first list. Who comes while it goes on is not told what was shown so far, which may be
older than what it knows from elsewhere (a binder's intents): the list is made anew, the others hear what it changes,
and it gets all of it, then the one ``Synced``. So a follower cannot tell this from a watch of its own (I8), and a list
is not spared where it says something. Followers share the models, which are frozen.

It ends with its last follower; an error of the watch is everybody's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from shared.kube.convert import node_from_api, pod_from_api
from shared.kube.convert_relations import node_images
from shared.kube.known import uid_of
from shared.kube.resources import Deleted, Malformed, Upserted
from shared.kube.scheduling_kinds import SchedulingKind
from shared.ports import KubeApi
from shared.runtime.kube.reflector import Batch, Reflector, Synced
from shared.runtime.kube.watches import (
    Post,
    Watches,
    node_events,
    node_reflector,
    object_events,
    object_reflector,
    pod_events,
    pod_reflector,
    read_object,
)

Deliver = Callable[[Batch[Any]], None]


class SharedWatch:
    """One kind. ``read``: what is made of an object, once. ``followers``: how many come in all; when they are there,
    nothing is kept for another one. ``patience_s``: how long the first waits for the last; None: until ``begin``."""

    def __init__(
        self,
        reflector: Reflector[Any],
        read: Callable[[Any], Any],
        *,
        followers: int,
        patience_s: float | None = None,
    ) -> None:
        self._reflector = reflector
        self._read = read
        self._to_come = followers
        self._patience_s = patience_s
        self._live: list[Deliver] = []
        self._waiting: list[tuple[int, Deliver]] = []
        self._shown: dict[str, Upserted[Any] | Malformed] = {}
        self._running: asyncio.Task[None] | None = None
        self._may_begin = asyncio.Event()
        self._begun = self._synced = False

    async def follow(self, deliver: Deliver) -> None:
        """Deliver every batch, its objects read; eternal."""
        self._to_come -= 1
        if self._to_come <= 0:
            self.begin()
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        if self._begun:
            self._waiting.append((self._reflector.ask(), deliver))
        else:
            self._live.append(deliver)
        running = self._running
        try:
            await asyncio.shield(running)
        finally:
            self._live = [one for one in self._live if one is not deliver]
            self._waiting = [one for one in self._waiting if one[1] is not deliver]
            if not self._live and not self._waiting:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):  # told by the shield, where it failed
                    await running

    def begin(self) -> None:
        """Begin with those who are there."""
        self._may_begin.set()

    def __len__(self) -> int:
        """How many objects are kept for followers to come."""
        return len(self._shown)

    async def _run(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                await self._may_begin.wait()
        self._begun = True
        await self._reflector.run(self._take)

    def _take(self, batch: Batch[Any]) -> None:
        seen: list[Any] = []
        asked: int | None = None
        for event in batch:
            if isinstance(event, Synced):
                asked = event.asked
            read = Upserted(self._read(event.object)) if isinstance(event, Upserted) else event
            if self._to_come > 0 or self._waiting:
                self._keep(event, read)
            seen.append(read)
        if asked is None or not self._synced:  # ``Synced`` comes once to each
            self._deliver(self._live, seen)
        if asked is not None:
            self._synced = True
            self._admit(asked, seen)
        if self._to_come <= 0 and not self._waiting:
            self._shown.clear()

    def _admit(self, asked: int, synced: Sequence[Any]) -> None:
        """A list is over: those who asked before it was begun are told all that there is."""
        late = [deliver for number, deliver in self._waiting if number <= asked]
        self._waiting = [one for one in self._waiting if one[0] > asked]
        self._deliver(late, [*self._shown.values(), *synced])
        self._live += late

    def _keep(self, event: Any, read: Any) -> None:
        if isinstance(event, Deleted) or (isinstance(event, Malformed) and event.deleted):
            self._shown.pop(uid_of(event), None)
        elif not isinstance(event, Synced):
            self._shown[uid_of(event)] = read

    @staticmethod
    def _deliver(followers: Sequence[Deliver], batch: Batch[Any]) -> None:
        for deliver in followers:
            deliver(batch)


class SharedWatches(Watches):
    """Pods, nodes and the ``kinds`` are followed by ``followers`` of this process; other kinds by one each."""

    def __init__(
        self, api: KubeApi, *, kinds: Sequence[SchedulingKind], followers: int, patience_s: float | None = None
    ) -> None:
        super().__init__(api)
        shared = partial(SharedWatch, followers=followers, patience_s=patience_s)
        self._pods = shared(pod_reflector(api), pod_from_api)
        self._nodes = shared(node_reflector(api), lambda node: (node_from_api(node), node_images(node)))
        self._objects = {kind.name: shared(object_reflector(api, kind), partial(read_object, kind)) for kind in kinds}

    def begin(self) -> None:
        """Begin with those who follow: others of this process may be long in coming, or never come."""
        for watch in (self._pods, self._nodes, *self._objects.values()):
            watch.begin()

    async def follow_pods(self, post: Post, *, job_groups: bool = True) -> None:
        """As ``Watches``; a pod's model is read once."""
        await self._pods.follow(lambda batch: post(pod_events(batch, job_groups=job_groups, read=_as_it_is)))

    async def follow_nodes(self, post: Post, *, images: bool = False, drop_malformed: bool = False) -> None:
        """As ``Watches``; a node's model is read once, its images for whoever wants them."""
        told = partial(node_events, images=images, drop_malformed=drop_malformed)
        await self._nodes.follow(lambda batch: post(told(batch, read=itemgetter(0), read_images=itemgetter(1))))

    async def follow_objects(
        self, kind: SchedulingKind, post: Post, *, saw: Callable[[Batch[Any]], None] | None = None
    ) -> None:
        """As ``Watches``; ``saw`` is for kinds that one alone follows."""
        shared = self._objects.get(kind.name)
        if shared is None:
            await super().follow_objects(kind, post, saw=saw)
            return
        await shared.follow(lambda batch: post(object_events(kind, batch, read=lambda _, item: item)))


def _as_it_is(item: Any) -> Any:
    return item
