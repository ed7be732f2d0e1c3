"""The running loop's clock, for tests of what waits: it is set forward, and nobody waits.

Time-outs that the test itself set count by it too: set it forward by less than ``PATIENCE_S`` within one.
"""

from __future__ import annotations

import asyncio
from typing import Any

TURNS = 50
"""Of the loop, over loopback: many more than any answer takes that is due."""


class LoopClock:
    """Made within the loop whose clock it is."""

    def __init__(self) -> None:
        loop: Any = asyncio.get_running_loop()
        self._ahead_s, time = 0.0, loop.time
        loop.time = lambda: time() + self._ahead_s

    async def forward(self, seconds: float) -> None:
        """What was on its way has come, so much time has passed, and what was due by then is done."""
        for ahead_s in (0.0, seconds):
            self._ahead_s += ahead_s
            for _ in range(TURNS):
                await asyncio.sleep(0)
