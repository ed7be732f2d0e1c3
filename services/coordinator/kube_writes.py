"""What the coordinator writes to the API server, and its single reads: conditions, events, lookups.

A few workers over one bounded queue. These are hints for people and late checks; placing pods never waits for them.
What does not get through is reported to the core where it matters (conditions, lookups) and dropped where not (events).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog

from services.coordinator.events import ConditionFailed, Event, NominationStored, PodFetched
from services.coordinator.instructions import EmitEvent, FetchPod, PatchCondition
from shared.errors import KubeError, KubeRejected
from shared.kube.convert import pod_from_api
from shared.kube.resources import EVENTS, PODS
from shared.model.pod import CAUSE_ANNOTATION
from shared.ports import KubeApi

log = structlog.get_logger()

QUEUE_LIMIT = 20_000
Work = PatchCondition | EmitEvent | FetchPod


class KubeWrites:
    """Carries out ``PatchCondition``, ``EmitEvent`` and ``FetchPod``."""

    def __init__(self, api: KubeApi, post: Callable[[Event], None], *, controller: str, instance: str) -> None:
        self._api = api
        self._post = post
        self._controller = controller
        self._instance = instance
        self._queue: asyncio.Queue[tuple[float, Work]] = asyncio.Queue(QUEUE_LIMIT)
        self._taken: dict[int, float] = {}
        self.dropped = 0

    def submit(self, work: Work) -> None:
        """Queue it; when the queue is full it counts as failed."""
        try:
            self._queue.put_nowait((time.monotonic(), work))
        except asyncio.QueueFull:
            self.dropped += 1
            self._failed(work)

    async def run(self) -> None:
        """One worker; eternal."""
        while True:
            since, work = await self._queue.get()
            self._taken[id(work)] = since
            try:
                await self._do(work)
            except KubeError as error:
                log.info("api_write_failed", work=type(work).__name__, pod_uid=work.uid, error=error)
                self._failed(work)
            finally:
                del self._taken[id(work)]

    def backlog(self) -> tuple[int, float]:
        """(writes that are not out yet, seconds for which the oldest of them has waited)."""
        # the workers' own are the oldest: the queue is in order
        since = min(self._taken.values(), default=None)
        return self._queue.qsize() + len(self._taken), time.monotonic() - since if since is not None else 0.0

    def _failed(self, work: Work) -> None:
        match work:
            case PatchCondition():
                self._post(ConditionFailed(work.uid))
            case FetchPod():
                self._post(PodFetched(work.uid, None, failed=True))
            case EmitEvent():
                pass

    async def _do(self, work: Work) -> None:
        match work:
            case PatchCondition():
                await self._patch(work)
            case EmitEvent():
                await self._api.create(EVENTS, namespace=work.namespace, body=self._event(work))
            case FetchPod():
                found = await self._api.get(PODS, namespace=work.namespace, name=work.name)
                same = found is not None and found.metadata.uid == work.uid
                self._post(PodFetched(work.uid, pod_from_api(found) if found is not None and same else None))

    async def _patch(self, work: PatchCondition) -> None:
        condition: dict[str, Any] = {
            "type": "PodScheduled", "status": "False", "reason": work.reason, "message": work.message,
        }  # fmt: skip
        if work.transition:
            condition["lastTransitionTime"] = _now("seconds")
        status: dict[str, Any] = {"conditions": [condition]}
        if work.nominated is not None:
            status["nominatedNodeName"] = work.nominated or None
        patch = {"metadata": {"resourceVersion": work.resource_version}, "status": status}
        try:
            await self._api.patch(PODS, namespace=work.namespace, name=work.name, patch=patch, subresource="status")
        except KubeRejected as error:
            if error.status != 404:
                raise
            return
        if work.nominated:
            self._post(NominationStored(work.uid, work.nominated))

    def _event(self, work: EmitEvent) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": f"{work.name[:220]}.{time.time_ns():x}", "namespace": work.namespace}
        if work.cause_id:
            metadata["annotations"] = {CAUSE_ANNOTATION: work.cause_id}
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": metadata,
            "eventTime": _now("microseconds"),
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
            "type": work.type,
            "reason": work.reason,
            "action": work.action,
            "note": work.note,
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": work.namespace,
                "name": work.name,
                "uid": work.uid,
                "resourceVersion": work.resource_version,
            },
        }


def _now(precision: str) -> str:
    return datetime.now(UTC).isoformat(timespec=precision).replace("+00:00", "Z")
