"""Sensors as processes beside a mesh, each with a /proc of files that says what its node uses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S
from tests.process.changing_proc import FakeNode, time_passes
from tests.process.mesh import ROOT


class SensorProcess:
    """One sensor; ``lines`` are those of its log so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._came = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def told(self, event: str, **facts: object) -> dict[str, Any]:
        """The first line of this event with these facts, once it is there."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for line in self.lines:
                    if line["event"] == event and facts.items() <= line.items():
                        return line
                self._came.clear()
                await self._came.wait()

    async def end_of_itself(self) -> int:
        """Its exit code, once it has ended."""
        async with asyncio.timeout(PATIENCE_S):
            code = await self.process.wait()
        await self._reading
        return code

    async def end(self) -> int:
        """Ask it to end; its exit code."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.end_of_itself()

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(json.loads(line) if line.startswith(b"{") else {"event": "text", "text": line.decode()})
            self._came.set()


async def start(*arguments: str) -> SensorProcess:
    """``python -m services.sensor ARGUMENTS``."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.sensor", *arguments, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return SensorProcess(process)


@asynccontextmanager
async def sensing(
    folder: Path, busy: dict[str, float], coordinators: Sequence[str], *more: str
) -> AsyncIterator[dict[str, SensorProcess]]:
    """A sensor for each node, whose disk is busy for so much of the time."""
    fakes = [FakeNode(folder / f"proc-{node}", busy=share) for node, share in busy.items()]
    started: dict[str, SensorProcess] = {}
    async with time_passes(fakes):
        try:
            for node in busy:
                proc = folder / f"proc-{node}"
                boot = proc / "sys/kernel/random"
                boot.mkdir(parents=True)
                (boot / "boot_id").write_text(f"boot-of-{node}\n")
                own = [word.replace("{name}", node) for word in more]
                started[node] = await start(*flags_of(node, proc, coordinators), *own)
            yield started
        finally:
            await asyncio.gather(*(one.end() for one in started.values()))


def flags_of(node: str, proc: Path, coordinators: Sequence[str]) -> list[str]:
    """What a sensor is told in a test: it is quick."""
    return [
        "--node", node, "--coordinators", ",".join(coordinators), "--host-proc", str(proc),
        "--sensor-every-s", "0.5", "--probes-per-s", "4", "--probe-listen", "127.0.0.1:0",
    ]  # fmt: skip


def at(url: str) -> str:
    """HOST:PORT of a URL."""
    return url.partition("://")[2]
