"""Runs services as child processes: starts, watches, restarts with backoff, kills on request, ends them all.

Why: ``conclave demo`` and ``conclave up`` are one command, yet every service must be a process of its own that can die
alone. A child is ready when it prints a line beginning with ``ready`` (or ``serving``); its output goes to a log file.

    starting --ready line--> ready --exit--> waiting (backoff) --> starting     stop: SIGTERM, then SIGKILL

Rules: a child that ends with code 2 before it was ever ready is a configuration error: its last line is raised. Any
other end is answered with a restart after ``FIRST_BACKOFF_S``, doubled up to ``MAX_BACKOFF_S`` until it has lived for
``STABLE_S``. Children die with this process, whatever ends it (PR_SET_PDEATHSIG). It does not know what they do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shared.backoff import backoff_s
from shared.errors import ConfigError
from shared.runtime.process.linux import die_with_parent
from shared.runtime.process.service import PROGRAM

FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0
STABLE_S = 10.0
STOP_S = 8.0
SAMPLE_S = 0.5
EXIT_CONFIG = 2
READY_WORDS = ("ready", "serving")
MAX_LINE = 65_536
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """``cpu_s``: user and system, all threads. ``peak_rss_bytes``: largest resident set since its exec."""

    cpu_s: float = 0.0
    peak_rss_bytes: int = 0


def read_usage(pid: int) -> ProcessUsage:
    """Usage of a live process; zeros where it is gone or not ours.

    The peak is the kernel's ``VmHWM``, which psutil does not tell; ``ru_maxrss`` keeps that of the process that forked.
    """
    import psutil  # not for a supervisor that measures nothing

    try:
        times = psutil.Process(pid).cpu_times()
        peak = _PEAK.search(Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace"))
    except (psutil.Error, OSError):
        return ProcessUsage()
    return ProcessUsage(times.user + times.system, int(peak[1]) * 1024 if peak else 0)


@dataclass(slots=True)
class Costs:
    """What all incarnations of a process cost together: CPU summed, memory the largest. ``measured`` False: not looked
    at while it lives."""

    measured: bool = True
    spent: ProcessUsage = field(default_factory=ProcessUsage)
    """Of those that have ended."""
    live: ProcessUsage = field(default_factory=ProcessUsage)

    def look(self, pid: int) -> None:
        """Remember what the live one has used: a process that dies takes its memory figure along."""
        found = read_usage(pid) if pid and self.measured else ProcessUsage()
        if found.peak_rss_bytes:
            self.live = found

    def ended(self, cpu_s: float | None = None) -> None:
        """The live one has ended. ``cpu_s``: what it used by its exit status; None: what was seen last counts."""
        self.live = ProcessUsage(self.live.cpu_s if cpu_s is None else cpu_s, self.live.peak_rss_bytes)
        self.spent, self.live = self.total(), ProcessUsage()

    def total(self) -> ProcessUsage:
        """All of them."""
        peak = max(self.spent.peak_rss_bytes, self.live.peak_rss_bytes)
        return ProcessUsage(self.spent.cpu_s + self.live.cpu_s, peak)


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One child. ``service`` groups figures (coordinator, agent ...); ``name`` is unique.

    ``restart`` False: it holds what cannot be had again, so its end is the command's (the twin and its cluster).
    """

    name: str
    service: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    restart: bool = True


@dataclass(slots=True)
class Child:
    """One place and the process that fills it now. ``incarnation`` counts from 1."""

    spec: ChildSpec
    log_file: Path
    incarnation: int = 0
    restarts: int = 0
    pid: int = 0
    ready_line: str = ""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ever_ready: bool = False
    stopping: bool = False
    exit_code: int | None = None
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=5))
    costs: Costs = field(default_factory=Costs)

    @property
    def url(self) -> str:
        """Where it listens: the last word of a service's ready line."""
        return self.ready_line.split()[-1] if self.ready_line else ""

    def usage(self) -> ProcessUsage:
        """All incarnations together."""
        self.costs.look(self.pid)
        return self.costs.total()


class Supervisor:
    """All children of one command. Use inside one event loop; ``close`` ends everything.

    ``measured``: what each uses is looked at every ``SAMPLE_S``, for ``Child.usage``."""

    def __init__(
        self, log_dir: Path, *, on_event: Callable[[str, Child], None] | None = None, measured: bool = True
    ) -> None:
        self.log_dir = log_dir
        self.children: dict[str, Child] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._on_event = on_event or (lambda _event, _child: None)
        self._stopping = False
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._measured = measured
        self._sampler = asyncio.create_task(self._sample()) if measured else None

    # --- start and stop -------------------------------------------------------------------------------------------

    def start(self, spec: ChildSpec) -> Child:
        """Start a child and keep it running; await ``ready`` for its first ready line."""
        child = Child(spec, self.log_dir / f"{spec.name}.log", costs=Costs(measured=self._measured))
        self.children[spec.name] = child
        self._tasks[spec.name] = asyncio.create_task(self._keep(child), name=f"keep {spec.name}")
        return child

    async def ready(self, *children: Child, timeout_s: float) -> None:
        """Wait until all are ready. ``ConfigError``: one cannot start, or it takes longer than ``timeout_s``."""
        all_ready = asyncio.create_task(_all_ready(children))
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait((all_ready, self._failure), return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                self._failure.result()
        except TimeoutError:
            late = [child for child in children if not child.ready.is_set()]
            names = ", ".join(child.spec.name for child in late)
            said = late[0].last_lines[-1][:200] if late and late[0].last_lines else "it said nothing"
            raise ConfigError(f"{names}: not ready after {timeout_s:g} s ({said}); see {self.log_dir}") from None
        finally:
            all_ready.cancel()

    @property
    def failure(self) -> asyncio.Future[None]:
        """Raises once a child cannot be started at all. Shield it where the waiter may be cancelled."""
        return self._failure

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> bool:
        """Send a signal to the process that fills a place now; False when there is none."""
        child = self.children.get(name)
        if child is None or not child.pid:
            return False
        child.costs.look(child.pid)
        os.kill(child.pid, number)
        return True

    async def stop(self, *names: str) -> None:
        """End these children for good: SIGTERM, SIGKILL after ``STOP_S``."""
        for name in names:
            self.children[name].stopping = True
            self.kill(name, signal.SIGTERM)
        tasks = [self._tasks[name] for name in names]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=STOP_S)
        if late:
            for name in names:
                self.kill(name, signal.SIGKILL)
            await asyncio.wait(late, timeout=STOP_S)

    async def close(self) -> None:
        """End all children and every task."""
        self._stopping = True
        await self.stop(*self.children)
        tasks = [*self._tasks.values(), *((self._sampler,) if self._sampler is not None else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Looked at or not, a failure has been dealt with by now: the command is ending.
        if not self._failure.cancel() and not self._failure.cancelled():
            self._failure.exception()

    # --- one child ------------------------------------------------------------------------------------------------

    async def _keep(self, child: Child) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            code = await self._run_once(child)
            if self._ended(child):
                return
            if not child.spec.restart or (code == EXIT_CONFIG and not child.ever_ready):
                said = child.last_lines[-1] if child.last_lines else "it said nothing"
                self._fail(child, said if code == EXIT_CONFIG else f"ended with {code}: {said}")
                return
            if time.monotonic() - started >= STABLE_S:
                failures = 0
            failures += 1
            await asyncio.sleep(backoff_s(failures, first_s=FIRST_BACKOFF_S, most_s=MAX_BACKOFF_S))
            if self._ended(child):
                return
            child.restarts += 1
            self._on_event("restart", child)

    def _ended(self, child: Child) -> bool:
        return self._stopping or child.stopping

    def _fail(self, child: Child, why: str) -> None:
        if not self._failure.done():
            self._failure.set_exception(ConfigError(f"{child.spec.name}: {why}"))

    async def _run_once(self, child: Child) -> int:
        child.incarnation += 1
        child.log_file.parent.mkdir(parents=True, exist_ok=True)
        with child.log_file.open("ab") as log:
            process = subprocess.Popen(  # noqa: ASYNC220  fork and exec take a millisecond, and exit is awaited below
                child.spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **dict(child.spec.env)},
                # Ctrl-C is for the command, which ends its children in order.
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509  one prctl, see die_with_parent
            )
        child.pid, child.exit_code = process.pid, None
        self._on_event("start", child)
        reading = asyncio.create_task(self._read(child, process))
        try:
            code, cpu_s = await _wait(process)
        except asyncio.CancelledError:
            process.kill()
            process.wait()
            raise
        finally:
            child.pid = 0
            child.ready.clear()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        child.costs.ended(cpu_s)
        child.exit_code = code
        _remember_last_lines(child)
        self._on_event("exit", child)
        return code

    async def _read(self, child: Child, process: subprocess.Popen[bytes]) -> None:
        """Copy the child's stdout to its log, and notice its ready line."""
        assert process.stdout is not None
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_LINE)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
        try:
            with child.log_file.open("ab", buffering=0) as log:
                while line := await reader.readline():
                    log.write(line)
                    text = line.decode(errors="replace").strip()
                    if text.startswith(READY_WORDS) and not child.ready.is_set():
                        child.ready_line = text
                        child.ever_ready = True
                        child.ready.set()
                        self._on_event("ready", child)
        finally:
            transport.close()

    async def _sample(self) -> None:
        while True:
            for child in self.children.values():
                child.costs.look(child.pid)
            await asyncio.sleep(SAMPLE_S)


async def _all_ready(children: tuple[Child, ...]) -> None:
    for child in children:
        await child.ready.wait()


def _remember_last_lines(child: Child) -> None:
    with contextlib.suppress(OSError):
        tail = child.log_file.read_bytes()[-4096:].decode(errors="replace").splitlines()
        child.last_lines.extend(line.removeprefix(PROGRAM) for line in tail[-5:] if line.strip())


async def _wait(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """(exit code, negative for a signal; CPU seconds) of a child, once it has ended."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    watch = os.pidfd_open(process.pid)
    loop.add_reader(watch, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(watch)
        os.close(watch)
    _, status, usage = os.wait4(process.pid, 0)  # noqa: ASYNC222  it has ended: this only collects its status
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime
