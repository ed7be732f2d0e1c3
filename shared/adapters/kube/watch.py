"""One endless watch made of many streams: reconnects from the last resourceVersion, delivers events in batches.

    open --200--> read chunk -> split lines -> decode -> yield one list
     ^                                            |
     |  backoff (none after a stream that delivered and ended well) <-- end, error, silence, broken line
     +--------------------------------------------+
    410 (answer or ERROR event), or three streams in a row that broke at the same place  -->  KubeExpired

A stream that does not end when it should is taken for dead (a half-open connection reports nothing at all): when that
is, and what follows for the other watches, is ``signs``'. After a stream that broke, the server is asked for its
revision first: one that went back (a restored backup) would let us wait in silence; a bookmark that goes back says the
same. This file refuses to keep objects: ``runtime.reflector`` knows what there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import structlog
from msgspec import Struct, field

from shared.adapters.kube.signs import Sign, WatchSigns
from shared.adapters.kube.transport import Stream
from shared.backoff import backoff_s
from shared.errors import KubeExpired, KubeRejected, KubeUnknown
from shared.kube.decoding import FrameDecoder, LineSplitter, StreamBroken
from shared.kube.known import position_after
from shared.kube.resources import Bookmark, Resource, WatchEvent

log = structlog.get_logger()
T = TypeVar("T")

STUCK_STREAMS = 3
"""So many streams in a row that broke or fell silent without an event: the position is bad, list again."""

SPIN_GUARD_S = 5.0
"""A stream that ended well after so long is followed at once; a shorter one without an event counts as a failure."""

BRIEF_S = 3
"""``timeoutSeconds`` of a stream whose bookmark is wanted: it comes two seconds before the end, so after one
(``cacheWatcher.nextBookmarkTime``)."""

MAX_RETRY_AFTER_S = 30.0
"""A server that asks for an hour is asked again sooner: without a watch we are blind."""

OpenWatch = Callable[[str, Mapping[str, str], float], Coroutine[Any, Any, Stream]]
"""(path, query, patience_s) -> open stream; ``KubeRejected``, ``KubeUnknown`` or ``KubeExpired`` otherwise."""


Revision = Callable[[], Coroutine[Any, Any, str]]
"""The server's resourceVersion of the watched kind now, by a list of one item."""


class WatchPolicy(Struct, frozen=True):
    """Timing of watches, but for their length (``signs``). ``rng`` spreads reconnects of many clients."""

    head_s: float = 15.0
    """How long a server may take to accept a watch."""

    backoff_s: float = 0.1
    max_backoff_s: float = 10.0
    max_refused_s: float = 1.0
    """The same while connections are refused: who is blind after the server is back lets new pods wait for it."""
    max_line_bytes: int = 16 << 20
    rng: random.Random = field(default_factory=random.Random)

    def delay_s(self, failures: int, *, refused: bool = False) -> float:
        """The pause after so many failures in a row. ``refused``: nobody listens."""
        most_s = min(self.max_backoff_s, self.max_refused_s) if refused else self.max_backoff_s
        return backoff_s(failures, first_s=self.backoff_s, most_s=most_s, drawn=self.rng.random())


async def watch_batches(
    open_watch: OpenWatch,
    revision: Revision,
    resource: Resource[T],
    *,
    resource_version: str,
    policy: WatchPolicy,
    signs: WatchSigns,
    brief: int = 0,
) -> AsyncGenerator[list[WatchEvent[T]], None]:
    """Events after ``resource_version``, everything of one read as one list, never empty; bookmarks included.
    ``brief``: so many streams are short at first, since a server tells how far it has got two seconds before the end.

    Raises ``KubeExpired`` (list again) and ``KubeRejected`` (403, 404: nothing that trying again soon would cure).
    """
    loop = asyncio.get_running_loop()
    sign = signs.begin(resource.plural, loop.time())
    again = False
    try:
        async with contextlib.aclosing(
            _streams(open_watch, revision, resource, resource_version, policy, signs, sign, brief=brief)
        ) as batches:
            async for batch in batches:
                yield batch
    except KubeExpired:
        again = True
        raise
    finally:
        if again:
            signs.pause(sign)
        else:
            signs.end(sign)


async def _streams(
    open_watch: OpenWatch,
    revision: Revision,
    resource: Resource[T],
    position: str,
    policy: WatchPolicy,
    signs: WatchSigns,
    sign: Sign,
    *,
    brief: int,
) -> AsyncGenerator[list[WatchEvent[T]], None]:
    """One stream after the other."""
    loop = asyncio.get_running_loop()
    failures = stuck = 0
    interrupted = False
    while True:
        delivered, refused, opened = False, False, loop.time()
        try:
            if interrupted and went_back(await revision(), position):
                raise KubeExpired(f"watch of {resource.plural}: the server's history went back behind {position}")
            interrupted = False
            stream = _stream(open_watch, resource, position, policy, signs, sign, brief=brief > 0)
            brief -= 1
            try:
                async for batch, after in stream:
                    delivered, position = True, after
                    failures = stuck = 0
                    yield batch
            finally:
                await stream.aclose()
            stuck = 0
            # a server tells at least where it is (a bookmark) before the end; one that went back has nothing to say
            interrupted = not delivered
            # a server that ends streams at once, without an event, must not make us spin
            failures = 0 if delivered or loop.time() - opened >= SPIN_GUARD_S else failures + 1
        except (StreamBroken, TimeoutError) as error:
            interrupted = True
            failures += 1
            stuck += 1
            log.warning("watch_broken", resource=resource.plural, resource_version=position, error=error)
            if stuck >= STUCK_STREAMS:
                raise KubeExpired(f"watch of {resource.plural} broke {stuck} times at {position}: {error}") from error
        except KubeRejected as error:
            if error.status not in (401, 429):
                raise
            failures += 1
            if error.status == 429:
                signs.strained(loop.time())
            if error.retry_after_s is not None:
                await asyncio.sleep(min(error.retry_after_s, MAX_RETRY_AFTER_S))
        except (KubeUnknown, OSError) as error:
            interrupted = True
            failures += 1
            refused = isinstance(error, KubeUnknown) and error.nobody_listens
            log.info("watch_interrupted", resource=resource.plural, resource_version=position, error=error)
        if failures:
            await asyncio.sleep(policy.delay_s(failures, refused=refused))


def went_back(revision: str, position: str) -> bool:
    """Whether the server is behind what we have seen: etcd was restored from a backup, or it is another cluster.

    A watch from a future revision is not refused but silent (recorded from 1.36), so it must be asked. Since 1.35
    resourceVersions are comparable as integers (KEP-5504); where they are not, nothing is concluded.
    """
    return revision.isdecimal() and position.isdecimal() and int(revision) < int(position)


async def _stream(
    open_watch: OpenWatch,
    resource: Resource[T],
    position: str,
    policy: WatchPolicy,
    signs: WatchSigns,
    sign: Sign,
    *,
    brief: bool,
) -> AsyncGenerator[tuple[list[WatchEvent[T]], str], None]:
    """The batches of one stream, each with the resourceVersion after it. ``TimeoutError``: it did not end when due."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    length_s = BRIEF_S if brief else signs.length_s(sign, began)
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": position,
        "timeoutSeconds": str(length_s),
    }
    decode, splitter = FrameDecoder(resource), LineSplitter(policy.max_line_bytes)
    stream = await open_watch(resource.path(), query, policy.head_s)
    now = loop.time()
    signs.opened(sign, now, length_s=length_s, took_s=now - began, leave=stream.leave)
    try:
        while chunk := await _read(stream, signs, sign):
            lines = splitter.feed(chunk)
            if not lines:
                continue
            batch: list[WatchEvent[T]] = []
            try:
                for line in lines:
                    batch.append(decode(line))  # noqa: PERF401  what came before a bad line must not be lost
            except (KubeExpired, StreamBroken):
                if batch:
                    yield batch, position_after(batch, position)
                raise
            after = position_after(batch, position)
            if isinstance(batch[-1], Bookmark):
                if went_back(after, before := position_after(batch[:-1], position)):
                    raise KubeExpired(f"watch of {resource.plural}: the server went back from {before} to {after}")
                signs.bookmarked(sign, loop.time(), length_s=length_s)
            position = after
            yield batch, position
        signs.ended(sign, loop.time())
    finally:
        signs.left(sign)
        stream.close()


async def _read(stream: Stream, signs: WatchSigns, sign: Sign) -> bytes:
    """What came next; ``TimeoutError``: nothing by the time when something was due."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    assert sign.due_at is not None
    try:
        # what arrived while we were busy elsewhere, or asleep, is looked at before anything is concluded
        chunk = await stream.read(max(sign.due_at - now, signs.grace_s))
    except TimeoutError:
        signs.missed(sign, loop.time())
        raise
    signs.heard(sign, loop.time())
    return chunk
