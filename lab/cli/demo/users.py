"""The users of the demo's workload of latency: they answer on loopback, and their way to each node is as long as told.

Kernels differ in what they can delay, and a demo needs no root: so each agent adds the delay that its file gives
(``--target-delays``) to the round trip that it really makes. Everything behind that is as in a cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from lab.cli.demo.latency import GROUPS, Delays, LatencyPhase, Served, target_json

DELAYS_FILE = "delays-{name}"
AGENT_FLAGS = ("--node", "{name}", "--sensor-every-s", "0.5", "--target-delays")
"""Followed by the file; ``{name}`` is the agent's."""


def agent_flags(folder: Path) -> tuple[str, ...]:
    """Of every agent of the demo, which is the one of its node."""
    return (*AGENT_FLAGS, str(folder / DELAYS_FILE))


class Users:
    """``play`` lets delays change as planned."""

    def __init__(self, folder: Path, phases: Sequence[LatencyPhase], ports: Sequence[int]) -> None:
        self.served = Served()
        self._folder = folder
        self._phases = phases
        self._ports = ports

    def targets(self) -> list[dict[str, Any]]:
        """The LatencyTarget objects."""
        return [target_json(group, port) for group, port in zip(GROUPS, self._ports, strict=True)]

    def set(self, delays: Delays) -> None:
        """From now on; each file is replaced whole."""
        for name, groups in delays.items():
            file = self._folder / DELAYS_FILE.format(name=name)
            new = file.with_suffix(".new")
            new.write_text("".join(f"{group} {delay_ms:g}\n" for group, delay_ms in groups.items()), encoding="ascii")
            new.replace(file)
        self.served.changed(time.time(), delays)

    async def play(self, real: Callable[[float], float], note: Callable[[str], None]) -> None:
        """Change delays when it is time: ``real`` makes monotonic seconds of virtual ones."""
        for phase in self._phases[1:]:
            await asyncio.sleep(max(0.0, real(phase.at_s) - time.monotonic()))
            self.set(phase.delays)
            note("the users' delays change: other nodes are near now")


@asynccontextmanager
async def opened_users(folder: Path, phases: Sequence[LatencyPhase]) -> AsyncIterator[Users]:
    """Users who answer, with the first delays set."""
    async with AsyncExitStack() as stack:
        ports = []
        for _ in GROUPS:
            server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
            await stack.enter_async_context(server)
            ports.append(int(server.sockets[0].getsockname()[1]))
        users = Users(folder, phases, ports)
        users.set(phases[0].delays)
        yield users
