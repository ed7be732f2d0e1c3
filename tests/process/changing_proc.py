"""A /proc of files for sensors, whose texts change all at once: whoever looks sees counters and clock of one moment."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

NAMES = ("uptime", "stat", "meminfo", "vmstat", "diskstats", "1")
STEADY = ["--lease-ttl-s", "120"]
"""For what sensors are told the address of: on a loaded machine a renewal takes longer than a lease of 3 s, and who is
started again listens elsewhere. Who is killed is missed at once all the same (ADR 0061)."""
STEP_S = 0.05
"""A whole number of ticks and milliseconds of work: rates come out as they were made. Not below ``AT_ONCE_S``: a look
into which a change fell is known by its clock."""


class ChangingProc:
    """Every file leads through one link, ``now``, which is replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changes = 0
        folder.mkdir(parents=True)
        for name in NAMES:
            (folder / name).symlink_to(f"now/{name}")

    def change(self, uptime_s: float, texts: Mapping[str, str]) -> None:
        """From now on it is so, at this time of the node's clock."""
        self._changes += 1
        new = self._folder / f"at-{self._changes}"
        (new / "1/net").mkdir(parents=True)
        for name, text in {"1/net/dev": "", "vmstat": "oom_kill 0\n", **texts}.items():
            (new / name).write_text(text)
        (new / "uptime").write_text(f"{uptime_s:.2f} 0.00\n")
        link = self._folder / "next"
        link.symlink_to(new.name)
        link.replace(self._folder / "now")
        shutil.rmtree(self._folder / f"at-{self._changes - 2}", ignore_errors=True)


class FakeNode:
    """One CPU that is at work for a fifth of the time, and one disk that is for ``busy`` of it. Its
    memory is never the same: a /proc that stands still is taken for a copy."""

    def __init__(self, folder: Path, *, busy: float) -> None:
        self._proc = ChangingProc(folder)
        self._busy = busy
        self._began = time.monotonic()
        self._steps = -1
        self.write()

    def write(self) -> None:
        """As of now."""
        steps = int((time.monotonic() - self._began) / STEP_S)
        if steps == self._steps:
            return
        self._steps = steps
        ticks, worked_ms, sectors = steps, round(steps * 50 * self._busy), round(steps * 1000 * self._busy)
        self._proc.change(
            steps * STEP_S,
            {
                "stat": f"cpu  {ticks} 0 0 {4 * ticks} 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n",
                "meminfo": f"MemTotal: 8388608 kB\nMemAvailable: {7_000_000 - steps % 1024} kB\n",
                "diskstats": f"   8 0 sda 1 0 {sectors} 1 1 0 {sectors} 1 0 {worked_ms} {worked_ms}\n",
                "1/net/dev": "eth0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
            },
        )


@asynccontextmanager
async def time_passes(fakes: Sequence[FakeNode]) -> AsyncIterator[None]:
    """For these, as often as this process comes to it: how late that is no reading shows."""

    async def write() -> None:
        while True:
            for fake in fakes:
                fake.write()
            await asyncio.sleep(0.1)

    passing = asyncio.create_task(write())
    try:
        yield
    finally:
        passing.cancel()
