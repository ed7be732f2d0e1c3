"""Keeps the garbage collector's pauses short, however much a service holds.

A full collection visits every container that lives: 0.3 s of CPU in a leader with 5,000 nodes and 10,000 waiting pods,
in the middle of a turn. What has survived one lives long, so it is moved out of the collector's sight; the next visits
only what came since. Reference counts free nearly all; a cycle that outlived one full collection waits until the
process grew by half. Then all is visited once: some times while a leader learns its cluster, hardly ever after that.
"""

from __future__ import annotations

import asyncio
import gc
import resource
from contextlib import suppress

GROWTH = 1.5
"""All is visited again when the most memory that was ever resident is so many times what it was the time before."""

YOUNG, MIDDLE, OLD = 3_000, 0, 0
"""Thresholds: a full collection comes with every 9,000 containers more than were freed, and visits about as many: some
10 ms on a busy machine, where 23,000 took up to 50. The youngest are visited when 3,000 are there: most of a batch is
gone by then."""

_thawed_at_kib = 0
_thawing = False


def keep_pauses_short() -> None:
    """From now on. What lives already is moved out of sight too. Calling it again does no more than that."""
    global _thawed_at_kib  # noqa: PLW0603  one collector per process
    gc.collect()
    gc.freeze()
    _thawed_at_kib = _most_resident_kib()
    gc.collect()  # of nothing: from now on a full one is not put off until a quarter as much came as lived before
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    if _collected not in gc.callbacks:
        gc.callbacks.append(_collected)


def _collected(phase: str, info: dict[str, int]) -> None:
    global _thawed_at_kib, _thawing  # noqa: PLW0603  one collector per process
    if info["generation"] != 2:
        return
    if phase == "start":
        most = _most_resident_kib()
        if _thawing := most >= GROWTH * _thawed_at_kib:
            _thawed_at_kib = most
            gc.unfreeze()
    else:
        gc.freeze()
        if _thawing:
            _forget_how_much_lived()


def _most_resident_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _forget_how_much_lived() -> None:
    """Have the next full collection not put off until a quarter as much came as this one visited: a collection of
    nothing, once this one is over (inside of it there is none)."""
    with suppress(RuntimeError):  # no loop in this thread
        asyncio.get_running_loop().call_soon(gc.collect)
