"""What is to be looked at, in the order in which it was noted, a few writes per turn of the event loop.

Why: the twin's controllers share it. A key is noted once however often it changes; who is asked for often rests in
between, longer the more it costs, so that no set of pods takes the loop for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

BATCH = 32
"""Writes before the event loop turns: about 5 ms, so that no request waits longer for us."""

Key = TypeVar("Key", bound=Hashable)


class ControllerQueue(Generic[Key]):
    """``look`` is called with a key and says how many writes that took."""

    def __init__(self, look: Callable[[Key], int]) -> None:
        self._look = look
        self._todo: dict[Key, None] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._rests: dict[Key, float] = {}
        self._running: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Take keys from now on. Call inside the event loop."""
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Look at nothing any more."""
        for handle in (self._running, *self._timers.values()):
            if handle is not None:
                handle.cancel()
        self._running = self._loop = None
        self._timers.clear()
        self._todo.clear()
        self._rests.clear()

    @property
    def busy(self) -> bool:
        """Whether something is to be looked at now; what waits for its time does not count."""
        return bool(self._todo)

    def note(self, key: Key) -> None:
        """Look at ``key`` soon; when its rest is over where it rests."""
        if self._loop is None or key in self._todo:
            return
        rests_until = self._rests.get(key, 0.0)
        if rests_until > self._loop.time():
            self._at(key, rests_until)
            return
        self._todo[key] = None
        if self._running is None:
            self._running = self._loop.call_soon(self._run)

    def again(self, key: Key, after_s: float) -> None:
        """Look at ``key`` again after so long, or before."""
        if self._loop is not None:
            self._at(key, self._loop.time() + after_s)

    def rest(self, key: Key, for_s: float) -> None:
        """Do not look at ``key`` for so long."""
        if self._loop is not None:
            self._rests[key] = self._loop.time() + for_s

    def forget(self, key: Key) -> None:
        """``key`` is gone."""
        self._rests.pop(key, None)
        self._todo.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _at(self, key: Key, when: float) -> None:
        assert self._loop is not None
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._timers[key] = self._loop.call_at(when, self._due, key)

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        self._rests.pop(key, None)
        self.note(key)

    def _run(self) -> None:
        self._running = None
        writes = looks = 0
        while self._todo and writes < BATCH and looks < BATCH:
            key = next(iter(self._todo))
            del self._todo[key]
            writes += self._look(key)
            looks += 1
        if self._todo and self._running is None and self._loop is not None:
            self._running = self._loop.call_soon(self._run)
