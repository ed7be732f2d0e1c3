"""What the coordinator writes on Queue objects: their status, the newest of each, one write of a queue at a time.

A write that fails is not made again here: the core compares what it wants with what the watch shows, and asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog

from services.coordinator.core.instructions import TellQueue
from shared.errors import KubeError
from shared.kube.queues import QUEUES, status_body
from shared.ports import KubeApi

log = structlog.get_logger()

IN_FLIGHT = 2


@dataclass(slots=True)
class QueueWrites:
    """Carries out ``TellQueue``. ``start`` runs a call beside everything else."""

    _api: KubeApi
    _start: Callable[[Coroutine[Any, Any, None]], None]
    written: int = 0
    _waiting: dict[str, TellQueue] = field(default_factory=dict)
    _out: set[str] = field(default_factory=set)

    def submit(self, work: TellQueue) -> None:
        """Write it when there is room; an older one of the same queue that waits is replaced."""
        self._waiting[work.queue.name] = work
        self._pump()

    def _pump(self) -> None:
        for name in list(self._waiting):
            if len(self._out) >= IN_FLIGHT:
                return
            if name not in self._out:
                self._out.add(name)
                self._start(self._write(self._waiting.pop(name)))

    async def _write(self, work: TellQueue) -> None:
        queue, now = work.queue, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        patch = status_body(work.status, queue.written, now, times=queue.times)
        if queue.uid:
            patch["metadata"] = {"uid": queue.uid}
        try:
            await self._api.patch(
                QUEUES, namespace="", name=queue.name, patch=patch, subresource="status", strategy="merge",
                wait_when_busy=False,
            )  # fmt: skip
        except KubeError as error:
            log.info("queue_status_failed", queue=queue.name, error=error)
        else:
            self.written += 1
        finally:
            self._out.discard(queue.name)
        self._pump()
