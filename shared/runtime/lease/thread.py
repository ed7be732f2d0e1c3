"""One thread per process that does nothing but keep leases alive, on its own event loop and its own connection.

Why: a long garbage collection, a slow handler or a full connection on the main loop must not cost a lease, so the
renewals do not run there. But a service that *hangs* must lose its leases, so they are renewed only while the main
loop makes progress: a turn of it has ended within ``hung_after_s``. That bound says how long a hung leader may keep
others from working, and nothing about safety: a process that is stopped as a whole renews nothing, whatever the bound,
and what it writes later is refused by its term.

Not its job: anything else. No request of a service runs here.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import TracebackType
from typing import Any, Self, TypeVar, TypeVarTuple

from shared.errors import ConfigError
from shared.ports import Clock, Store
from shared.runtime.process.service import boottime

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BEAT_EVERY_S = 0.5
"""How often the main loop says that it lives."""


LEADER_HUNG_AFTER_S = 15.0
"""A leader under load is busy, not hung: turns of 5 s have been measured on an overloaded machine. Its successor would
have to list everything anew, on the same machine."""


class LeaseLoop(asyncio.SelectorEventLoop):
    """The thread's loop (the stdlib's: a handful of wake-ups a second gain nothing from uvloop).

    gRPC takes the answers of all loops out of one queue, in whichever loop comes first, and hands each to its own. A
    call that was given up, with its channel or by a cancelled task, is answered all the same, perhaps after this loop
    has closed. Nobody waits for it; raised, it would be an error of the main loop, which only passed it on.
    """

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As the stdlib's; what gRPC brings after the end is dropped."""
        if self.is_closed() and str(getattr(callback, "__module__", "")).startswith("grpc."):
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon_threadsafe(callback, *args, context=context)


class LeaseThread:
    """Shared by all ``Leadership`` and ``Membership`` of a process; ``async with`` runs it.

    ``open_store`` is called in the thread, so that the connection belongs to its loop.
    """

    def __init__(self, open_store: Callable[[], Store], *, clock: Clock = boottime, hung_after_s: float = 2.0) -> None:
        if hung_after_s < 2 * BEAT_EVERY_S:
            raise ConfigError(f"hung_after_s: {hung_after_s} must be at least {2 * BEAT_EVERY_S}")
        self.clock = clock
        self._open_store = open_store
        self._hung_after_s = hung_after_s
        self._store: Store | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._beat_at = -float("inf")
        self._beat: asyncio.TimerHandle | None = None

    @property
    def store(self) -> Store:
        """The thread's own store; to be used in its loop only."""
        if self._store is None:
            raise ConfigError("lease thread: not started")
        return self._store

    def main_alive(self) -> bool:
        """Whether the main loop makes progress: a turn of it has ended lately."""
        return self.clock() - self._beat_at < self._hung_after_s

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run ``work`` in the thread's loop."""
        if self._loop is None:
            work.close()
            raise ConfigError("lease thread: not started")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def __aenter__(self) -> Self:
        main = asyncio.get_running_loop()
        started: asyncio.Future[None] = main.create_future()
        self._thread = threading.Thread(target=self._run, args=(main, started), name="leases", daemon=True)
        self._tick_main(main)
        self._thread.start()
        try:
            await started
        except BaseException:  # cancelled too; raised again, and what was not entered is not left: nothing may beat on
            if self._beat is not None:
                self._beat.cancel()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._beat is not None:
            self._beat.cancel()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        self._loop = self._store = self._thread = None

    def _tick_main(self, main: asyncio.AbstractEventLoop) -> None:
        self._beat_at = self.clock()
        self._beat = main.call_later(BEAT_EVERY_S, self._tick_main, main)

    def _run(self, main: asyncio.AbstractEventLoop, started: asyncio.Future[None]) -> None:
        loop = LeaseLoop()
        asyncio.set_event_loop(loop)

        async def open_store() -> Store:
            return self._open_store()

        try:
            try:
                self._store = loop.run_until_complete(open_store())
                self._loop = loop
            except BaseException as error:  # noqa: BLE001 -- raised again in the loop that waits for it
                main.call_soon_threadsafe(started.set_exception, error)
                return
            main.call_soon_threadsafe(started.set_result, None)
            loop.run_forever()
            self._finish(loop, self._store)
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    @staticmethod
    def _finish(loop: asyncio.AbstractEventLoop, store: Store) -> None:
        # The store first: it ends the calls that are under way, and waits for those that tell when they have ended.
        loop.run_until_complete(store.close())
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
