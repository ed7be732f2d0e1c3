"""Lines of JSON on stderr, of the same keys as every service's: structlog would cost more memory than all the rest.

The same line is told once in ``AGAIN_S``: what goes wrong at every reading is one line, and then silence.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

LEVELS = ("debug", "info", "warning", "error")
AGAIN_S = 600.0
MOST_KINDS = 256
MOST_CHARS = 1024


class SensorLog:
    """One process's. ``write`` takes a line; ``wall``: seconds since the epoch."""

    def __init__(
        self,
        name: str,
        level: str = "info",
        *,
        write: Callable[[str], object] | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._least = LEVELS.index(level)
        self._write = write or _to_stderr
        self._wall = wall
        self._clock = clock
        self._told: dict[tuple[str, str], float] = {}

    def tell(self, level: str, event: str, *, kind: str = "", **facts: Any) -> None:
        """One line; another of this event and ``kind`` is left out for ``AGAIN_S``."""
        if LEVELS.index(level) < self._least:
            return
        now, key = self._clock(), (event, kind)
        if now - self._told.get(key, -AGAIN_S) < AGAIN_S:
            return
        if len(self._told) >= MOST_KINDS:
            self._told.clear()
        self._told[key] = now
        wall = self._wall()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall)) + f".{int(wall % 1 * 1e6):06d}Z"
        short = {key: value[:MOST_CHARS] if isinstance(value, str) else value for key, value in facts.items()}
        line = {"service": "sensor", "id": self._name, "event": event, "level": level, "time": at, **short}
        self._write(msgspec.json.encode(line).decode() + "\n")

    def over(self, event: str) -> None:
        """It is well again: the next such line is news."""
        self._told = {key: at for key, at in list(self._told.items()) if key[0] != event}


def _to_stderr(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()
