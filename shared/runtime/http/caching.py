"""Encoded answers of reads, kept for a moment: however many look, the leader does the work once.

    kept and fresh --> given        under way --> waited for        neither --> made, kept
    kept, and the leader is late --> given with its age

A change through this API forgets everything, and what was begun before it is never given to who asks after it; for
``SETTLING_S`` nothing is kept then, since the leader hears of its own change by a watch a moment later. Errors are told
to those who wait, and not kept. Answers that depend on the caller (``Route.fresh_s`` 0) and large ones are never kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from msgspec import Struct

MOST_KEPT = 256
MOST_BYTES = 1 << 20
"""Of one answer; a larger one is given and not kept."""

SETTLING_S = 1.0
"""How long after a change answers are made anew for each request."""


class CachedAnswer(Struct, frozen=True):
    """An answer of ``term``, made at ``made_at``."""

    answer: bytes
    made_at: float
    term: int


class CachedAnswers:
    """Of one process. ``key``: what was asked for, path and query; ``now``: seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, CachedAnswer] = OrderedDict()
        self._coming: dict[str, asyncio.Future[bytes]] = {}
        self._changes = 0
        self._settled_at = float("-inf")

    def forget(self, now: float) -> None:
        """Something was changed: nothing that was read before is true any more."""
        self._changes += 1
        self._settled_at = now + SETTLING_S
        self._kept.clear()
        self._coming.clear()  # who waits already still gets it: they asked before the change was answered

    def fresh(self, key: str, now: float, *, fresh_s: float, term: int) -> CachedAnswer | None:
        """The answer at hand, not older than ``fresh_s`` and of this term; None where there is none."""
        kept = self._kept.get(key)
        return kept if kept is not None and kept.term == term and now - kept.made_at < fresh_s else None

    def coming(self, key: str) -> bool:
        """Whether somebody is having the same answer made: to wait for it costs nothing."""
        return key in self._coming

    async def made(self, key: str, now: float, *, term: int, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """A new answer, shared with all who ask for the same meanwhile. Raises what ``make`` raises, to all of them."""
        while (others := self._coming.get(key)) is not None:
            await asyncio.wait([others])
            if not others.cancelled():  # the one who had it made has gone: then it is for us to do
                return others.result()
        coming: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._coming[key] = coming
        changes = self._changes
        try:
            answer = await make()
        except Exception as error:  # whatever it is, all who wait for this answer get it too
            coming.set_exception(error)
            coming.exception()  # nobody may be waiting, and that is no accident
            raise
        except BaseException:  # cancelled: raised again, and one of those who wait makes the answer instead
            coming.cancel()
            raise
        finally:
            if self._coming.get(key) is coming:
                del self._coming[key]
        coming.set_result(answer)
        if changes == self._changes and now >= self._settled_at and len(answer) <= MOST_BYTES:
            self._kept[key] = CachedAnswer(answer, now, term)
            self._kept.move_to_end(key)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return answer
