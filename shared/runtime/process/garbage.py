"""Keeps the garbage collector's pauses short, however much a service holds.

A full collection visits every container that lives: 70 ms of CPU in a leader with 5,000 nodes and 10,000 waiting pods,
in the middle of a turn. What has survived one lives long, so it is moved out of the collector's sight; the next visits
only what came since. Reference counts free nearly all; a cycle that outlived one full collection waits until the
process has doubled. Then all is visited once, between two turns of the loop: some times while a leader learns its
cluster, hardly ever after that.
"""

from __future__ import annotations

import asyncio
import gc
import resource
from contextlib import suppress

GROWTH = 2.0
"""All is visited again when the most memory that was ever resident is so many times what it was the time before."""

YOUNG, MIDDLE, OLD = 3_000, 0, 0
"""Thresholds: a full collection comes with every 9,000 containers more than were freed, and visits about as many: some
10 ms on a busy machine, where 23,000 took up to 50. The youngest are visited when 3,000 are there: most of a batch is
gone by then."""

_visited_at_kib = 0


def keep_pauses_short() -> None:
    """From now on. What lives already is moved out of sight too. Calling it again does no more than that."""
    _visit_all()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    if _collected not in gc.callbacks:
        gc.callbacks.append(_collected)


def _collected(phase: str, info: dict[str, int]) -> None:
    if phase != "stop" or info["generation"] != 2:
        return
    gc.freeze()
    if _has_grown():
        with suppress(RuntimeError):  # no loop in this thread: it is asked again the next time
            asyncio.get_running_loop().call_soon(_visit_all_if_grown)


def _visit_all_if_grown() -> None:
    if _has_grown():  # a turn may have asked twice
        _visit_all()


def _visit_all() -> None:
    global _visited_at_kib  # noqa: PLW0603  one collector per process
    _visited_at_kib = _most_resident_kib()
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.collect()  # of nothing: the next full one is not put off until a quarter as much came as lived before


def _has_grown() -> bool:
    return _most_resident_kib() >= GROWTH * _visited_at_kib


def _most_resident_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
