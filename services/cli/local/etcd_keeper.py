"""The mesh's private etcd, kept running: restarted on its data directory with backoff whenever it ends.

Beside ``supervisor.py`` because etcd is not a service of ours: it has no ready line, its own start-up and its own log.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from services.cli.local.supervisor import FIRST_BACKOFF_S, MAX_BACKOFF_S, STABLE_S, Costs, ProcessUsage
from shared.backoff import backoff_s
from shared.errors import ConfigError
from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings, EtcdBinary

SAMPLE_S = 0.5


class EtcdKeeper:
    """``start`` it, ``kill`` it if you like, ``stop`` it last. ``healthy`` is set while it serves.

    ``measured``: what it uses is looked at, for ``usage``."""

    def __init__(
        self,
        data_dir: Path,
        *,
        binary: Path | None = None,
        on_event: Callable[[str], None] | None = None,
        measured: bool = True,
    ) -> None:
        settings = EmbeddedEtcdSettings(data_dir=data_dir, binary=binary, die_with_parent=True)
        self._etcd = EmbeddedEtcd(settings)
        self.quota_mb = settings.quota_bytes // 1_000_000
        self._on_event = on_event or (lambda _event: None)
        self._tasks: list[asyncio.Task[None]] = []
        self._costs = Costs(measured=measured)
        self.restarts = 0
        self.healthy = asyncio.Event()

    @property
    def endpoint(self) -> str:
        """URL for clients."""
        return self._etcd.endpoint

    @property
    def binary(self) -> EtcdBinary:
        """What is run."""
        return self._etcd.binary

    @property
    def pid(self) -> int:
        """Process id; 0 when not running."""
        return self._etcd.pid

    async def start(self) -> None:
        """Start and await its health. ``ConfigError``: there is no etcd, or it does not start."""
        await self._etcd.start()
        self.healthy.set()
        self._tasks = [asyncio.create_task(self._keep())]
        if self._costs.measured:
            self._tasks.append(asyncio.create_task(self._sample()))

    async def kill(self) -> bool:
        """SIGKILL; it is restarted by itself. False when it was not running."""
        if not self._etcd.pid:
            return False
        self._costs.look(self._etcd.pid)
        self.healthy.clear()
        await self._etcd.kill()
        return True

    async def stop(self) -> None:
        """End it for good."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._costs.look(self._etcd.pid)
        await self._etcd.stop()

    def usage(self) -> ProcessUsage:
        """All incarnations together."""
        self._costs.look(self._etcd.pid)
        return self._costs.total()

    async def _sample(self) -> None:
        while True:
            self._costs.look(self._etcd.pid)
            await asyncio.sleep(SAMPLE_S)

    async def _keep(self) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            await self._etcd.wait()
            self.healthy.clear()
            self._costs.ended()
            self._on_event("exit")
            while not self.healthy.is_set():
                if time.monotonic() - started >= STABLE_S:
                    failures = 0
                failures += 1
                await asyncio.sleep(backoff_s(failures, first_s=FIRST_BACKOFF_S, most_s=MAX_BACKOFF_S))
                with contextlib.suppress(ConfigError):
                    await self._etcd.start()
                    self.healthy.set()
            self.restarts += 1
            self._on_event("ready")
