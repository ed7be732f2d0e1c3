"""What the jobs service writes to the API server. Each write is answered by ``WriteAnswered``, once, whatever became of
it.

Leadership is asked for right before each call: nothing but the object's own uid or resourceVersion fences it. So a busy
server (429) is not waited for within the call: the core decides anew when it is time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import structlog

from services.jobs.core.events import Event, WriteAnswered, WriteOutcome
from services.jobs.core.instructions import CreateObject, DeleteObject, PatchMinimum, TellEvent, Write, WriteStatus
from shared.errors import KubeError, KubeRejected
from shared.kube.events import event_body, event_name
from shared.kube.resources import EVENTS
from shared.kube.training.training_jobs import TRAINING_JOBS
from shared.kube.training.training_pods import group_patch
from shared.kube.training.training_status import status_patch
from shared.ports import KubeApi
from shared.runtime.leader_shell import Validity

log = structlog.get_logger()

IN_FLIGHT = 16
EVENTS_IN_FLIGHT = 4
EVENTS_WAITING = 256
CONTROLLER = "conclave.io/jobs"


class ObjectWrites:
    """Carries out ``Write`` and ``TellEvent``. ``start``: runs a call beside everything else."""

    def __init__(
        self, api: KubeApi, post: Callable[[Event], None], start: Callable[[Coroutine[Any, Any, None]], None], *,
        leadership: Validity, instance: str,
    ) -> None:  # fmt: skip
        self._api = api
        self._post = post
        self._start = start
        self._leadership = leadership
        self._instance = instance
        self._places = asyncio.Semaphore(IN_FLIGHT)
        self._event_places = asyncio.Semaphore(EVENTS_IN_FLIGHT)
        self._events_waiting = 0
        self.made = 0

    def submit(self, write: Write) -> None:
        """Make it; answered by ``WriteAnswered``."""
        self._start(self._write(write))

    def tell(self, news: TellEvent) -> None:
        """Best effort: people are told, nothing rests on it."""
        if self._events_waiting < EVENTS_WAITING:
            self._events_waiting += 1
            self._start(self._tell(news))

    async def _write(self, write: Write) -> None:
        async with self._places:
            if not self._leadership.is_valid():
                return  # the term is over; its shell says so
            try:
                await self._call(write)
            except KubeRejected as error:
                self._post(WriteAnswered(write.write, outcome_of(write, error), str(error)[:256]))
            except KubeError as error:
                self._post(WriteAnswered(write.write, WriteOutcome.UNKNOWN, str(error)[:256]))
            else:
                self.made += 1
                self._post(WriteAnswered(write.write, WriteOutcome.DONE))

    async def _call(self, write: Write) -> None:
        api = self._api
        match write:
            case CreateObject(_, resource, namespace, _, body, dry_run):
                await api.create(resource, namespace=namespace, body=body, wait_when_busy=False, dry_run=dry_run)
            case DeleteObject(_, resource, namespace, name, uid):
                await api.delete(resource, namespace=namespace, name=name, uid=uid)
            case PatchMinimum(_, resource, namespace, name, uid, minimum):
                patch = {"metadata": {"uid": uid}, **group_patch(minimum, resource)}
                await api.patch(
                    resource, namespace=namespace, name=name, patch=patch, strategy="merge", wait_when_busy=False
                )
            case WriteStatus(_, job, status):
                patch = status_patch(job, status, _now())
                await api.patch(
                    TRAINING_JOBS, namespace=job.namespace, name=job.name, patch=patch, subresource="status",
                    strategy="merge", wait_when_busy=False,
                )  # fmt: skip

    async def _tell(self, news: TellEvent) -> None:
        job = news.job
        about = {
            "apiVersion": TRAINING_JOBS.api_version, "kind": TRAINING_JOBS.kind, "namespace": job.namespace,
            "name": job.name, "uid": job.uid, "resourceVersion": job.resource_version,
        }  # fmt: skip
        body = event_body(
            about, name=event_name(job.name, time.time_ns()), at=datetime.now(UTC), controller=CONTROLLER,
            instance=self._instance, kind=news.type, reason=news.reason, action="Reconcile", note=news.note,
        )  # fmt: skip
        try:
            async with self._event_places:
                await self._api.create(EVENTS, namespace=job.namespace, body=body, wait_when_busy=False)
        except KubeError as error:
            log.info("event_failed", job=job.key, reason=news.reason, error=error)
        finally:
            self._events_waiting -= 1


def outcome_of(write: Write, error: KubeRejected) -> WriteOutcome:
    """What a refusal means for the core."""
    if error.status == 409 and error.reason == "AlreadyExists" and isinstance(write, CreateObject):
        return WriteOutcome.EXISTS
    if error.status in (404, 409) and not isinstance(write, CreateObject):
        return WriteOutcome.STALE
    if error.status in (409, 429):
        return WriteOutcome.UNKNOWN  # not now: the server is busy, or somebody changed a quota at the same moment
    return WriteOutcome.REFUSED


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
