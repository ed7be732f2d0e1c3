"""One resource of the API server as an endless series of event batches: list, watch, and list again when we must.

    list --Upserted...--> Synced ----------> watch --batches--> ...
     ^                                        |  ^
     +--- KubeExpired (410), refused: diff ---+  +-- asked: caught up with the server's revision --> Synced
     (a large kind: the watch goes on from now,       (small kinds: listed; one that stays silent too)
      and the diff is told beside it)

A consumer sees events only. A list is told page by page, so that no more than a page or two of it are held at once; of
what is known it tells the difference (``shared.kube.known``). A server that has forgotten the position (every restart
of an API server does) is watched from its revision of now on, and what was missed is listed beside that: what is new is
told at once, however long the list takes. Who needs to know what there is now, not what was shown
so far, asks (``ask``): the server says its resourceVersion, and the watch goes on until it has passed that, so nothing
is listed however much there is. A list is made only where the position is lost, where the kind is a page at most, or
where no event and no bookmark proves in time that the watch has come so far. Batches let a consumer handle everything
that one read brought in one turn of the loop. It refuses to keep objects and to drop events: the consumer's pace is the
stream's pace (TCP pushes back on the API server).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog
from msgspec import Struct

from shared.backoff import backoff_s
from shared.errors import KubeError, KubeExpired, KubeRejected
from shared.kube.known import KnownObjects, ListingInProgress, has_reached, position_after
from shared.kube.resources import ObjectList, Resource, WatchEvent
from shared.ports import Clock, KubeApi
from shared.runtime.kube.beside import beside
from shared.runtime.process.service import boottime

log = structlog.get_logger()
T = TypeVar("T")

BATCH = 512
"""Events of a list handed over at once: 512 pods take a consumer some 10 ms; then the loop turns."""

LIST_S = 300.0
"""For a whole list, of 300,000 pods too; each page has a deadline of its own."""

BACKOFF_S = 0.2
MAX_BACKOFF_S = 30.0
MAX_REFUSED_S = 1.0
"""While nobody listens: a server that is being started again."""
HEALTHY_AFTER_S = 30.0
"""A watch that held so long resets the backoff of lists."""

SMALL = 500
"""Of a kind with so many objects, which fit on one page, a list costs no more requests than asking for a revision."""

BRIEF = 2
"""Streams in which a watch that is silent may prove that it has passed a revision: an API server's bookmark comes after
one to two seconds of each, if its watch cache has got so far by then."""

CATCH_UP_S = 7.0
"""For both; then a list is made."""

MOST_PAUSE_S = 0.25
"""Between two pages of a list that nobody waits for."""

CURRENT_S = 30.0
"""A watch that works is heard of at least so often (ADR 0053)."""

UNSERVED_RETRY_S = 5.0
"""How often an optional kind that was refused (403) or is not served (404) is asked for again."""


class Synced(Struct, frozen=True):
    """Everything that existed at ``resource_version`` has been delivered: at first, each time it was asked for, and
    when a kind is there to be had that was not.

    ``asked``: whatever of ``Reflector.ask`` came before the server was asked for that revision, by number. ``served``:
    False where nothing is there to be had, since the kind is not served or not ours to read; ``refused``: the latter,
    so that there may be some."""

    resource_version: str
    asked: int = 0
    served: bool = True
    refused: bool = False


@dataclass(frozen=True, slots=True)
class WatchPositionLost:
    """The position is lost: what follows is told in no order of time, until the next ``Synced``."""


Batch = Sequence[WatchEvent[T] | Synced | WatchPositionLost]


class Reflector(Generic[T]):
    """One per resource and process.

    ``relist_gate``: give all reflectors of a process the same semaphore of 1, so that lists, the expensive calls,
    run one at a time. ``rng`` spreads the lists of many processes after an API server's restart. ``optional``: a kind
    that the server refuses or does not serve is told once and counts as empty. ``older``: earlier versions of the kind,
    the newest first, for a server that does not have it in ``resource``'s; asked for anew with every list, so that a
    server that was upgraded under us goes on where the old one was: what it has no more is deleted then, not before.
    ``content``: what of an object is told at all (``KnownObjects``). ``ordered``: the consumer goes by the order of
    events, so each lost position is told (``WatchPositionLost``), and a ``Synced`` after it.
    """

    def __init__(
        self,
        api: KubeApi,
        resource: Resource[T],
        *,
        relist_gate: asyncio.Semaphore | None = None,
        clock: Clock = boottime,
        rng: random.Random | None = None,
        list_timeout_s: float = LIST_S,
        catch_up_s: float = CATCH_UP_S,
        small: int = SMALL,
        backoff_s: float = BACKOFF_S,
        optional: bool = False,
        older: Sequence[Resource[T]] = (),
        unserved_retry_s: float = UNSERVED_RETRY_S,
        content: Callable[[T], int | None] | None = None,
        ordered: bool = False,
    ) -> None:
        self.relists = 0
        self.heard_at: float | None = None
        """When the server last said anything of this kind, bookmarks included; None: never."""
        self.synced = asyncio.Event()
        self.awaited = True
        """Whether somebody waits for what lists tell; else they give way to those who ask the server for more."""
        self._api = api
        self._resource = self._served = resource
        self._versions = (resource, *older)
        self._unserved_retry_s = unserved_retry_s
        self._known: KnownObjects[T] = KnownObjects(resource, content)
        self._gate = relist_gate if relist_gate is not None else asyncio.Semaphore(1)
        self._clock = clock
        self._rng = rng if rng is not None else random.Random()
        self._list_timeout_s = list_timeout_s
        self._whole = False
        """Whether the next list is to be made without pages."""
        self._catch_up_s = catch_up_s
        self._small = small
        self._position = ""
        """The resourceVersion up to which all was told; empty: not known, or the server has forgotten it."""
        self._reached = ""
        """The last one that was known."""
        self._backoff_s = backoff_s
        self._optional = optional
        self._ordered = ordered
        self._lost = False
        """Whether a lost position was told, and no ``Synced`` since."""
        self._told_served = True
        self._asked = self._served_asked = 0
        self._resting: asyncio.Timeout | None = None
        """Of a wait that a list which is asked for ends."""

    def __len__(self) -> int:
        return len(self._known)

    def ask(self) -> int:
        """Catch up with what the server has now: a ``Synced`` with this number or a higher one tells that it is done.

        For consumers that await nothing between two batches (``run``'s): a watch is left where it waits for more."""
        self._asked += 1
        resting, self._resting = self._resting, None  # once: what ends already cannot be ended again
        if resting is not None and not resting.expired():
            resting.reschedule(asyncio.get_running_loop().time())
        return self._asked

    def is_current(self) -> bool:
        """Whether what was told is as new as a watch that works makes it: all of it, the server being heard lately, and
        no list under way, whose deletions come last."""
        heard = self.synced.is_set() and bool(self._position) and self.heard_at is not None
        return heard and self._clock() - (self.heard_at or 0.0) <= CURRENT_S

    async def batches(self) -> AsyncGenerator[Batch[T], None]:
        """Events for ever, never an empty batch; errors are waited out. Call once; close it with ``aclose``."""
        failures = 0
        while True:
            listed_at, lists, asked, most_s = self._clock(), self.relists, self._asked, MAX_BACKOFF_S
            try:
                async with contextlib.aclosing(self._round()) as told:
                    async for batch in told:
                        yield batch
                if self._asked > self._served_asked:
                    continue
            except KubeExpired as error:
                self._lose_position()
                log.info("watch_expired", resource=self._resource.plural, error=error)
            except KubeError as error:
                if isinstance(error, KubeRejected):
                    self._lose_position()  # the kind may be served in another version now
                listed = self.relists > lists
                if self._optional and not listed and isinstance(error, KubeRejected) and error.status in (403, 404):
                    if not self.synced.is_set():
                        tell = log.warning if error.status == 403 else log.info  # many clusters lack some kinds
                        tell("kind_not_readable", resource=self._resource.name, error=error)
                    if self._owes_synced(asked, served=False):
                        yield [Synced("", asked, served=False, refused=error.status == 403)]
                    failures = 0
                    if self._asked == asked:
                        await self._rest(self._unserved_retry_s)
                    continue
                most_s = MAX_REFUSED_S if error.nobody_listens else MAX_BACKOFF_S
                log.warning("reflector_failed", resource=self._resource.plural, failures=failures, error=error)
            failures = 0 if self._clock() - listed_at >= HEALTHY_AFTER_S else failures + 1
            if failures and self._asked == asked:
                drawn = self._rng.random()
                await self._rest(backoff_s(failures, first_s=self._backoff_s, most_s=most_s, drawn=drawn))

    async def run(self, deliver: Callable[[Batch[T]], None]) -> None:
        """``batches`` for those who want a call back; eternal."""
        async for batch in self.batches():
            deliver(batch)

    async def _round(self) -> AsyncGenerator[Batch[T], None]:
        """A list where one must be made, then the watch until it ends or something is asked."""
        asked, behind = self._asked, ""
        if self._ordered and not self._position and self._reached and self.synced.is_set() and not self._lost:
            self._lost = True
            yield [WatchPositionLost()]
        if not self._position and self.synced.is_set() and len(self._known) > self._small:
            now = await self._api.revision(self._served)
            if now.isdecimal() and has_reached(now, self._reached):  # one that went back in time is listed as it is
                async with contextlib.aclosing(self._resume(now)) as told:
                    async for batch in told:
                        yield batch
                behind = self._position
        elif self._position and asked > self._served_asked and len(self._known) > self._small:
            behind = await self._api.revision(self._served)
        # a server that is behind what we were told went back in time
        if not self._position or (asked > self._served_asked and not has_reached(behind, self._position)):
            async with contextlib.aclosing(self._list()) as told:
                async for batch in told:
                    yield batch
            behind = self._position
        if self._position == behind:
            behind = ""
            if self._owes_synced(asked):
                yield [Synced(self._position, asked)]
        if self._asked > asked:  # meanwhile: one revision of later serves both
            return
        async with contextlib.aclosing(self._watch(asked, behind)) as told:
            async for batch in told:
                yield batch

    async def _resume(self, now: str) -> AsyncGenerator[Batch[T], None]:
        """What a watch tells from ``now`` on, beside it what a list tells of before; then the position is known."""
        position, revision, listing = now, "", ListingInProgress(self._known, since=int(now))
        # its first word, a bookmark at the latest, says that the server goes along: one that has just begun answers
        # 410 once more when its watch cache is there, and the pages would have been for nothing
        goes_along = asyncio.Event()
        watch = self._watch_beside(now)
        log.info("watch_resumed", resource=self._resource.plural, resource_version=now, missed_since=self._reached)
        async with contextlib.aclosing(beside(watch, self._parts_after(goes_along))) as both:
            async for batch, part in both:
                if part is not None:
                    revision = part.resource_version
                    if revision.isdecimal() and not has_reached(revision, now):
                        raise KubeExpired(f"list of {self._resource.plural}: {revision} is behind the server's {now}")
                    told = listing.page(part)
                else:
                    goes_along.set()
                    self.heard_at = self._clock()
                    told = listing.apply(batch)
                    self._reached = position = position_after(batch, position)
                if told:
                    yield told
        for gone in self._end(listing, revision):
            yield gone
        self._position = position if has_reached(position, revision) else revision

    async def _watch_beside(self, now: str) -> AsyncGenerator[Sequence[WatchEvent[T]], None]:
        """The watch beside a list. An error before the first page ends both, a later one the watch alone: a list that
        takes longer than the server lasts would never be complete."""
        lists = self.relists
        watch = self._api.watch_batches(self._served, resource_version=now, brief=BRIEF)
        try:
            async with contextlib.aclosing(watch):
                async for batch in watch:
                    yield batch
        except KubeError as error:
            if self.relists == lists:
                raise
            log.info("watch_ended_beside_list", resource=self._resource.plural, error=error)

    async def _list(self) -> AsyncGenerator[Batch[T], None]:
        """What a list tells; then the position is known."""
        revision, listing = "", ListingInProgress(self._known)
        async with contextlib.aclosing(self._parts()) as parts:
            async for part in parts:
                revision = part.resource_version
                if told := listing.page(part):
                    yield told
        for gone in self._end(listing, revision):
            yield gone
        self._position = revision

    @staticmethod
    def _end(listing: ListingInProgress[T], revision: str) -> Iterator[Batch[T]]:
        """What the list did not show any more, in parts."""
        gone = listing.missing(revision)
        for start in range(0, len(gone), BATCH):
            if told := listing.forget(gone[start : start + BATCH]):
                yield told

    async def _parts_after(self, event: asyncio.Event) -> AsyncGenerator[ObjectList[T], None]:
        """``_parts``, not before ``event``; one that does not come in time is not needed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._catch_up_s):
                await event.wait()
        async with contextlib.aclosing(self._parts()) as parts:
            async for part in parts:
                yield part

    async def _parts(self) -> AsyncGenerator[ObjectList[T], None]:
        """A list, in parts that are handed over at once. After pages that expired before the last it is one page."""
        self._lose_position()  # a list that breaks off has told what is newer than the position: only a list goes on
        first = True
        try:
            async with self._gate, contextlib.aclosing(self._lists(whole=self._whole)) as lists:
                began = self._clock()
                async for listed in lists:
                    self.heard_at = self._clock()
                    self.relists += first
                    first = False
                    for start in range(0, max(1, len(listed.items)), BATCH):
                        malformed = () if start else listed.malformed
                        yield ObjectList(listed.items[start : start + BATCH], listed.resource_version, malformed)
                        await asyncio.sleep(0)
                    del listed  # before the next page is read
                    if not self.awaited:
                        await self._give_way(self._clock() - began)
                    began = self._clock()
        except KubeExpired:
            self._whole = True
            raise
        self._whole = False

    async def _watch(self, asked: int, behind: str) -> AsyncGenerator[Batch[T], None]:
        """What the watch tells from the position on. ``behind``: the revision that is owed to who asked; one that is
        not passed in time must be listed."""
        watch = self._api.watch_batches(self._served, resource_version=self._position, brief=BRIEF if behind else 0)
        try:
            async with contextlib.aclosing(watch), asyncio.timeout(self._catch_up_s if behind else None) as patience:
                self._resting = patience
                async for batch in watch:
                    self.heard_at = self._clock()
                    told = self._known.apply(batch)
                    self._position = position_after(batch, self._position)
                    if told:
                        yield told
                    if behind and has_reached(self._position, behind):
                        behind = ""
                        if self._asked == asked:  # else it is ending already
                            patience.reschedule(None)
                        if self._owes_synced(asked):
                            yield [Synced(self._position, asked)]
        except TimeoutError:
            if self._asked > asked:
                return
            if not behind:
                raise
            log.info("watch_silent", resource=self._resource.plural, resource_version=self._position, behind=behind)
            self._lose_position()
        finally:
            self._resting = None

    def _lose_position(self) -> None:
        self._reached, self._position = self._position or self._reached, ""

    async def _give_way(self, took_s: float) -> None:
        """A list that nobody waits for, after a page that took so long, takes half of what it could."""
        await asyncio.sleep(min(took_s, MOST_PAUSE_S))

    async def _rest(self, seconds: float) -> None:
        """So long, or until a list is asked for."""
        try:
            async with asyncio.timeout(seconds) as self._resting:
                await asyncio.Event().wait()
        except TimeoutError:
            pass
        finally:
            self._resting = None

    def _owes_synced(self, asked: int, *, served: bool = True) -> bool:
        """Whether a list that is over is to be told: the first, one that was asked for, one after a lost position, one
        of a kind of which it was told that it is not there to be had; it counts as told."""
        owes = not self.synced.is_set() or asked > self._served_asked or (self._lost and served)
        owes |= served and not self._told_served
        if owes:
            self._told_served = served
        self.synced.set()
        self._lost &= not served
        self._served_asked = asked
        return owes

    async def _lists(self, *, whole: bool) -> AsyncGenerator[ObjectList[T], None]:
        """The list of the newest version that is served, ``whole`` or page by page."""
        for version in self._versions:
            try:
                async with contextlib.aclosing(self._pages(version, whole=whole)) as pages:
                    async for page in pages:
                        if version is not self._served:
                            log.info("kind_served_as", resource=version.name, version=version.version)
                            self._served = version
                            self._known.doubt()
                        yield page
            except KubeRejected as error:
                if error.status != 404 or version is self._versions[-1]:
                    raise
            else:
                return

    async def _pages(self, version: Resource[T], *, whole: bool) -> AsyncGenerator[ObjectList[T], None]:
        if whole:
            yield await self._api.list(version, timeout_s=self._list_timeout_s)
            return
        async with contextlib.aclosing(self._api.pages(version, timeout_s=self._list_timeout_s)) as pages:
            async for page in pages:
                yield page
