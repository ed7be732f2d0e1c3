"""Tries the targets that users named, by opening a TCP connection and closing it: no byte of a protocol is sent.

A handshake is one round trip whatever answers there; names are resolved before the clock starts. Which target is due,
and what a median is, is ``shared/agent/target_times.py``'s. A file of delays, where one is given, stands for a longer
way: kernels differ in what they can delay.
"""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import structlog

from shared.agent.target_times import TargetTimes
from shared.wire.readings import ProbeTarget

log = structlog.get_logger()

TIMEOUT_S = 3.0
AT_ONCE = 4
RESOLVED_S = 60.0
IDLE_S = 0.5
MOST_DELAY_MS = 10_000.0


class Targets:
    """``run`` is an eternal task."""

    def __init__(self, times: TargetTimes, delays: Path | None = None) -> None:
        self._times = times
        self._delays = delays
        self._places = asyncio.Semaphore(AT_ONCE)
        self._resolved: dict[tuple[str, int], tuple[float, tuple[int, tuple[str, int]]]] = {}

    async def run(self) -> None:
        """Try what is due, a few at a time."""
        async with asyncio.TaskGroup() as group:
            while True:
                for target in self._times.due(time.monotonic()):
                    await self._places.acquire()
                    group.create_task(self._try(target))
                next_s = self._times.next_s()
                wait_s = IDLE_S if next_s is None else min(IDLE_S, max(0.02, next_s - time.monotonic()))
                await asyncio.sleep(wait_s)

    async def _try(self, target: ProbeTarget) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                family, address = await self._address(target.host, target.port)
                took_s = await _connect(family, address)
            if self._delays is not None:
                took_s += delay_of(self._delays, target.name)
            self._times.answered(target.name, took_s, time.monotonic())
        except (OSError, TimeoutError, ValueError) as error:  # a name that cannot be encoded is a ValueError
            self._times.failed(target.name)
            self._resolved.pop((target.host, target.port), None)
            log.debug("target_silent", target=target.name, error=error)
        finally:
            self._places.release()

    async def _address(self, host: str, port: int) -> tuple[int, tuple[str, int]]:
        """(family, address); asked anew each minute. ``OSError``: there is no such name."""
        known, now = self._resolved.get((host, port)), time.monotonic()
        if known is not None and now - known[0] < RESOLVED_S:
            return known[1]
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        resolved = (int(family), (str(address[0]), int(address[1])))
        if len(self._resolved) > 256:
            self._resolved.clear()
        self._resolved[host, port] = (now, resolved)
        return resolved


def delay_of(file: Path, target: str) -> float:
    """Seconds that the file adds; 0 where it does not name the target. ``OSError``: it cannot be read;
    ``ValueError``: its line is none."""
    for number, line in enumerate(file.read_text(encoding="ascii").splitlines(), 1):
        name, _, told = line.strip().rpartition(" ")
        if name == target:
            if 0 <= (delay_ms := float(told)) <= MOST_DELAY_MS:
                return delay_ms / 1000
            raise ValueError(f"{file}, line {number}: give a number of milliseconds from 0 to {MOST_DELAY_MS:g}")
    return 0.0


async def _connect(family: int, address: tuple[str, int]) -> float:
    """Seconds until the handshake was done. ``OSError``: it was refused, or there is no way."""
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        began = time.monotonic()
        await asyncio.get_running_loop().sock_connect(connection, address)
        return time.monotonic() - began
