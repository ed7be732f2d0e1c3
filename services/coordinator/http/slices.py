"""Work that would hold up the leader's loop, done in slices between its turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")

SLICE_S = 0.004
"""After so long the loop turns."""


async def in_slices(steps: Generator[object, None, T], clock: Callable[[], float]) -> tuple[T, float]:
    """What came of all steps, and the seconds that they took."""
    spent_s = 0.0
    while True:
        began = clock()
        try:
            while clock() < began + SLICE_S:
                next(steps)
        except StopIteration as done:
            found: T = done.value
            return found, spent_s + clock() - began
        spent_s += clock() - began
        await asyncio.sleep(0)
