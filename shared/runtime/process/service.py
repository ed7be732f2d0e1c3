"""The life of a process: start, signals, drain, exit code.

Every service is ``raise SystemExit(run_service(main, name=...))``. ``main(service)`` is the composition root: it
builds adapters, spawns eternal tasks, and returns when ``service.stopping`` is set and it has drained. An eternal task
that ends by itself is an error (kopf's rule): a scheduler that silently stopped watching looks healthy and is not.

    starting --mark_ready--> ready --SIGTERM/SIGINT--> draining --main returns or drain_s passes--> exit

It refuses to restart anything: a process that lost its lease or its footing ends, and its supervisor starts it anew.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from shared.errors import ConfigError, LeadershipLost, StoreFenced
from shared.runtime.process.garbage import keep_pauses_short
from shared.runtime.process.linux import forget_start
from shared.runtime.process.liveness import Liveness

log = structlog.get_logger()

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_CONFIG = 2
EXIT_LEADERSHIP = 3
"""0: drained after a signal. 1: an error. 2: bad input or configuration: a restart does not help. 3: lost leadership:
a restart does."""
PROGRAM = "conclave: "
"""How a line about bad input begins, of a service as of a command."""

TICK_S = 0.2
LAG_WARNING_S = 0.5
"""A loop that stood still for so long is told: leases, deadlines and latencies all suffer from it."""

FORGET_S = 3.0
"""So long after it was ready a service has listed its cluster or got its view, and needs no more what that needed."""

WANTED_OPEN_FILES = 65_536


class TaskEnded(Exception):
    """An eternal task returned though nobody had asked it to stop."""


class Heartbeat:
    """Proof that the event loop turns, readable from another thread (the lease keeper's).

    ``age_s`` is on CLOCK_BOOTTIME: a suspended machine counts as hung, as it must.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()
        self.worst_lag_s = 0.0

    def beat(self) -> float:
        """Called from the loop, every ``TICK_S``; by how many seconds this beat is late."""
        now = self._clock()
        lag_s = now - self._last - TICK_S
        self.worst_lag_s = max(self.worst_lag_s, lag_s)
        self._last = now
        return lag_s

    def age_s(self) -> float:
        """Seconds since the loop last turned. Safe from any thread: one float is read."""
        return self._clock() - self._last


def boottime() -> float:
    """The ``Clock`` of real processes: seconds, monotonic, counting suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Service:
    """What ``main`` is given: tasks, the stop signal, readiness, the heartbeat."""

    def __init__(self, name: str, group: asyncio.TaskGroup, heartbeat: Heartbeat) -> None:
        self.name = name
        self.stopping = asyncio.Event()
        self.ready = False
        self.heartbeat = heartbeat
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, name: str, task: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run an eternal task. Its error ends the service; so does its return before ``stopping``."""
        return self.start(name, self._guard(name, task))

    def start(self, name: str, task: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task that ends in its own time. Its error ends the service."""
        started = self._group.create_task(task, name=name)
        self._tasks.add(started)
        started.add_done_callback(self._tasks.discard)
        return started

    def cancel_tasks(self) -> None:
        """Cancel everything spawned or started that still runs."""
        for task in self._tasks:
            task.cancel()

    def mark_ready(self) -> None:
        """``/readyz`` answers 200 from now on. What start-up built is moved out of the garbage collector's sight."""
        if not self.ready:
            keep_pauses_short()
            asyncio.get_running_loop().call_later(FORGET_S, forget_start)
            self.ready = True
            log.info("service_ready")

    async def _guard(self, name: str, task: Coroutine[Any, Any, None]) -> None:
        await task
        if not self.stopping.is_set():
            raise TaskEnded(f"task {name} ended by itself")


Main = Callable[[Service], Awaitable[None]]


def run_service(
    main: Main, *, name: str, drain_s: float = 10.0, follow_parent: bool = False, live_listen: str = ""
) -> int:
    """Run ``main`` to its end; the exit code (see ``EXIT_*``). Takes uvloop, signals and the process's limits.

    A first SIGTERM or SIGINT sets ``stopping``; after ``drain_s`` more seconds, or at a second signal, ``main`` and all
    tasks are cancelled. ``follow_parent``: stop too when the process that started us is gone. ``live_listen``: where
    liveness is told (``runtime/liveness.py``).
    """
    import uvloop

    raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(
                supervise(main, name=name, drain_s=drain_s, follow_parent=follow_parent, live_listen=live_listen)
            )
    except BaseException as error:  # noqa: BLE001  the process's last guard: every end gets one line and a code
        return report(error)
    return EXIT_OK


async def supervise(
    main: Main, *, name: str, drain_s: float = 10.0, follow_parent: bool = False, live_listen: str = ""
) -> None:
    """``run_service`` inside a running loop: returns after a drain, raises what ended the service otherwise."""
    loop = asyncio.get_running_loop()
    heartbeat = Heartbeat(boottime)
    async with asyncio.TaskGroup() as group:
        service = Service(name, group, heartbeat)
        ticking = group.create_task(_tick(service, follow_parent), name="heartbeat")
        running = group.create_task(_run_main(main, service), name="main")
        signals = (signal.SIGTERM, signal.SIGINT)

        def on_signal(number: signal.Signals) -> None:
            if service.stopping.is_set():
                running.cancel()
                return
            log.info("service_stopping", signal=number.name)
            service.stopping.set()

        for number in signals:
            loop.add_signal_handler(number, on_signal, number)
        try:
            with Liveness(live_listen, heartbeat.age_s):
                await _until_stopped(service, running, drain_s)
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
            ticking.cancel()
            service.cancel_tasks()


async def _run_main(main: Main, service: Service) -> None:
    await main(service)
    if not service.stopping.is_set():
        raise TaskEnded(f"{service.name} ended by itself")


async def _until_stopped(service: Service, running: asyncio.Task[None], drain_s: float) -> None:
    stopped = asyncio.ensure_future(service.stopping.wait())
    try:
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await asyncio.wait({running}, timeout=drain_s)
        if not running.done():
            log.warning("drain_cut_short", drain_s=drain_s)
            running.cancel()
            await asyncio.wait({running}, timeout=1.0)
    finally:
        stopped.cancel()


async def _tick(service: Service, follow_parent: bool) -> None:
    parent = os.getppid()
    while True:
        lag_s = service.heartbeat.beat()
        if lag_s > LAG_WARNING_S:
            log.warning("loop_blocked", lag_s=round(lag_s, 3))
        if follow_parent and os.getppid() != parent and not service.stopping.is_set():
            log.warning("parent_gone")
            service.stopping.set()
        await asyncio.sleep(TICK_S)


def report(error: BaseException) -> int:
    """One line about what ended the process, and its exit code. A ``ConfigError`` is plain text for a person."""
    found = list(_leaves(error))
    for kind, code in ((ConfigError, EXIT_CONFIG), (LeadershipLost, EXIT_LEADERSHIP), (StoreFenced, EXIT_LEADERSHIP)):
        for cause in found:
            if isinstance(cause, kind):
                if code == EXIT_CONFIG:
                    sys.stderr.write(PROGRAM + " ".join(str(cause).split()) + "\n")
                else:
                    log.critical("leadership_lost", error=cause)
                return code
    for cause in found:
        if isinstance(cause, SystemExit):
            return cause.code if isinstance(cause.code, int) else EXIT_FAILED
    cause = next((item for item in found if not isinstance(item, asyncio.CancelledError)), error)
    log.critical("service_failed", error=cause, exc_info=cause)
    return EXIT_FAILED


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]


def raise_file_limit(wanted: int = WANTED_OPEN_FILES) -> int:
    """Raise the soft limit of open files as far as we may, up to ``wanted``; the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        return target
    return soft
