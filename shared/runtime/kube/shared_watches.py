r"""One watch per kind for all who follow it in this process, and who may: an object is decoded and converted once.

    Reflector --batches--> read once --> each follower's events --> its core's inbox
                                    \\--> the mirror: what a list would tell now, while a follower may still come

A watch begins once all who will follow are there, or before, where some may be long in coming (``begin``, or
``patience_s``): so all share the first list. A process that stands by has no follower yet and begins all the same
(``mirror``, ADR 0058).

Who comes while a watch goes on is told from the mirror, in the order in which things came, and nothing is listed. What
the mirror shows may be older than what it knows from elsewhere (a binder's intents). Of an ``exact`` kind the watch
first has to pass the server's revision of that moment (``Reflector.ask``), and only then the follower gets its one
``Synced``: it cannot tell this from a watch of its own (I8). Of other kinds it is enough that the server was heard as
lately as of any watch that works: a leader's own view is no newer. Followers share the models, which are frozen.

Who is to follow may attend while the process stands by: it hears of objects as the mirror does, and of nothing else;
once it follows, it is told what is new and that all is there, however much stands.

It ends with its last follower, unless it is mirrored; an error of the watch is everybody's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from shared.kube.known import uid_of
from shared.kube.resources import DeletedObject, Malformed, Upserted
from shared.runtime.kube.reflector import BATCH, Batch, Reflector, Synced, WatchPositionLost

Deliver = Callable[[Batch[Any]], None]


class Follower:
    """Who follows, and what it has yet to hear: what came while it is told from the mirror waits its turn."""

    def __init__(self, deliver: Deliver, *, late: bool) -> None:
        self.asked = 0
        """By which number of ``Reflector.ask`` it is told that all is there; 0: by the first list."""
        self.complete = False
        """Whether it was told, and no position was lost since."""
        self._deliver = deliver
        self._waiting: list[Any] | None = [] if late else None

    def complete_by(self, synced: Synced) -> None:
        """All is there, if that is what it waits for; told once, and after each lost position."""
        if not self.complete and synced.asked >= self.asked:
            self.complete = True
            self.hear([synced])

    def lose(self, lost: WatchPositionLost) -> None:
        """Who was told that all is there hears that it is not, and is told again."""
        if self.complete:
            self.complete = False
            self.hear([lost])

    def hear(self, batch: Sequence[Any]) -> None:
        """The next of the watch."""
        if self._waiting is None:
            self._deliver(batch)
        else:
            self._waiting += batch

    async def catch_up(self, shown: Sequence[Any]) -> None:
        """Hear what the mirror shows, in parts, then what came meanwhile."""
        for start in range(0, len(shown), BATCH):
            self._deliver(shown[start : start + BATCH])
            await asyncio.sleep(0)
        waiting, self._waiting = self._waiting, None
        if waiting:
            self._deliver(waiting)


class SharedWatch:
    """One kind. ``read``: what is made of an object, once. ``followers``: how many come in all; when they are there,
    nothing is kept for another one. ``exact``: who comes late relies on nothing that may have changed before it came.
    ``patience_s``: how long the first waits for the last; None: until ``begin``."""

    def __init__(
        self,
        reflector: Reflector[Any],
        read: Callable[[Any], Any],
        *,
        followers: int = 1,
        exact: bool = True,
        patience_s: float | None = None,
    ) -> None:
        self._reflector = reflector
        self._read = read
        self._exact = exact
        self._to_come = followers
        self._patience_s = patience_s
        self._followers: list[Follower] = []
        self._shown: dict[str, Upserted[Any] | Malformed] = {}
        self._attending: Deliver | None = None
        self._running: asyncio.Task[None] | None = None
        self._may_begin = asyncio.Event()
        self._begun = self._mirrored = False

    def attend(self, deliver: Deliver) -> bool:
        """Deliver what the mirror takes in, from the first list on. False: it has begun, or several are to follow."""
        if self._to_come != 1 or self._may_begin.is_set():
            return False
        self._attending = deliver
        return True

    async def follow(self, deliver: Deliver, *, attended: bool = False) -> None:
        """Deliver every batch, its objects read; eternal. ``attended``: it has heard all that the mirror shows."""
        self._attending = None
        self._to_come -= 1
        if self._to_come <= 0:
            self.begin()
        late = self._begun
        follower = Follower(deliver, late=late)
        self._followers.append(follower)
        self._reflector.awaited = True
        running = self._run_once()
        try:
            if late:
                await self._bring_up(follower, attended=attended)
            await asyncio.shield(running)
        finally:
            self._followers.remove(follower)
            if not self._followers and not self._mirrored:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):  # told by the shield, where it failed
                    await running

    async def _bring_up(self, follower: Follower, *, attended: bool) -> None:
        """Tell it from the mirror; what comes meanwhile waits, and so does the word that all is there."""
        if self._exact or not self._reflector.is_current():
            follower.asked = self._reflector.ask()
        else:
            follower.complete_by(Synced(""))
        shown = [] if attended else list(self._shown.values())
        if self._to_come <= 0:
            self._shown.clear()
        await follower.catch_up(shown)

    async def mirror(self) -> None:
        """Watch without a follower too, and keep what there is for those to come; eternal."""
        self._mirrored = True
        self._reflector.awaited = bool(self._followers)
        self.begin()
        await self._run_once()

    def begin(self) -> None:
        """Begin with those who are there."""
        self._may_begin.set()

    def was_wanted(self) -> bool:
        """Whether anybody follows, or mirrors, or ever did."""
        return self._running is not None

    def is_warm(self) -> bool:
        """Whether who comes now is told all without a list."""
        return self._begun and self._reflector.synced.is_set()

    def heard_at(self) -> float | None:
        """When the API server last said something, bookmarks too; None: it has not."""
        return self._reflector.heard_at

    def __len__(self) -> int:
        """How many objects are kept for followers to come."""
        return len(self._shown)

    def _run_once(self) -> asyncio.Task[None]:
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return self._running

    async def _run(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                await self._may_begin.wait()
        self._begun = True
        await self._reflector.run(self._take)

    def _take(self, batch: Batch[Any]) -> None:
        seen: list[Any] = []
        synced: Synced | None = None
        for event in batch:
            if isinstance(event, Synced):
                synced = event
                continue
            if isinstance(event, WatchPositionLost):  # alone in its batch
                for follower in self._followers:
                    follower.lose(event)
                continue
            read = Upserted(self._read(event.object)) if isinstance(event, Upserted) else event
            if self._to_come > 0:
                self._keep(event, read)
            seen.append(read)
        if self._attending is not None and seen:
            self._attending(seen)
        for follower in self._followers if seen else ():
            follower.hear(seen)
        if synced is not None:
            for follower in self._followers:
                follower.complete_by(synced)

    def _keep(self, event: Any, read: Any) -> None:
        if isinstance(event, DeletedObject) or (isinstance(event, Malformed) and event.deleted):
            self._shown.pop(uid_of(event), None)
        else:
            self._shown[uid_of(event)] = read
