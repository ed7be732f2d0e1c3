"""A real etcd for tests, driven from outside any test's event loop, so that one process serves many tests."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from shared.errors import ConfigError
from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings, find_etcd
from tests.patience import PATIENCE_S
from tests.ports import free_port

T = TypeVar("T")
QUICK = {"fsync": False, "progress_interval_s": 0.2, "die_with_parent": True, "start_timeout_s": PATIENCE_S / 2}
"""Less than whoever asked is waited for: what is told of a start that fails is etcd's own last line."""


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The loop of every etcd of this process, in one thread that lives as long as the process does.

    Two threads must not start children at once: CPython switches garbage collection off while it forks for a
    ``preexec_fn``, and the first one to be done switches it on again for the other, whose child may then finalise a
    gRPC channel and wait for a thread that it does not have.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="etcd", daemon=True).start()
    return loop


class EtcdProcess:
    """``EmbeddedEtcd`` behind blocking calls."""

    def __init__(self, data_dir: Path, **settings: Any) -> None:
        try:
            find_etcd()
        except ConfigError as error:
            pytest.skip(str(error))
        chosen = {"data_dir": data_dir, "client_port": free_port(), **QUICK, **settings}
        self._etcd = self._run(self._make(EmbeddedEtcdSettings(**chosen)))

    @staticmethod
    async def _make(settings: EmbeddedEtcdSettings) -> EmbeddedEtcd:
        return EmbeddedEtcd(settings)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, _loop()).result(timeout=PATIENCE_S)

    @property
    def endpoint(self) -> str:
        return self._etcd.endpoint

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])

    def start(self) -> None:
        self._run(self._etcd.start())

    def kill(self) -> None:
        self._run(self._etcd.kill())

    def pause(self) -> None:
        """Return once it stands: a signal is on its way for a moment, in which etcd may still answer."""
        self._etcd.pause()
        # our child; its status is left for whoever waits for its end
        os.waitid(os.P_PID, self._etcd.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        self._etcd.resume()

    def close(self) -> None:
        self._run(self._etcd.stop())
