"""What is written: the record in etcd first, then scales and HPAs' bounds, and statuses beside.

Each ends in an event. A write names the uid and the resourceVersion that the decision saw (409 otherwise), and is only
sent while this process leads by its own clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from services.autoscaler.core import telling
from services.autoscaler.core.events import Event, Fenced, RecordCommitted, ReplicasWrote, StatusTold
from services.autoscaler.core.instructions import (
    Announce,
    CommitRecord,
    Forget,
    ScaleTo,
    SetBounds,
    Sweep,
    TellStatus,
    Write,
)
from services.autoscaler.io.reads import ServedKinds
from shared.errors import KubeError, KubeRejected, StoreError, StoreRejected
from shared.kube.events import event_body, event_name
from shared.kube.resources import EVENTS, Resource
from shared.kube.scaling.autoscaling import AUTOSCALERS
from shared.kube.scaling.scaled_objects import HPAS
from shared.ports import MAX_TXN_OPS, Compare, CreateRevisionIs, DeleteKey, KubeApi, ModRevisionIs, Op, Put, Store
from shared.runtime.leader_shell import Validity
from shared.wire.keys import Keys
from shared.wire.records import AutoscaleRecord, decode_record

log = structlog.get_logger()

Post = Callable[[Event], None]
CONTROLLER = "conclave.io/autoscaler"
EVENTS_AT_ONCE = 4
"""Writes of events that are under way."""


class StoreWrites:
    """Commits decisions under the term, and forgets objects that are gone."""

    def __init__(self, store: Store, keys: Keys, post: Post, *, term: int, timeout_s: float, history: int) -> None:
        self._store, self._keys, self._post = store, keys, post
        self._term, self._timeout_s, self._history = term, timeout_s, history

    async def commit(self, work: CommitRecord) -> None:
        """One transaction: we lead, and the record is as it was read."""
        keys = self._keys
        last = keys.autoscaler_last(work.key)
        compares: list[Compare] = [
            CreateRevisionIs(keys.autoscaler_leader, self._term),
            ModRevisionIs(last, work.last_revision),
        ]
        puts = [
            Put(last, msgspec.json.encode(work.record)),
            Put(keys.autoscaler_decision(work.key, work.slot), msgspec.json.encode(work.decision)),
        ]
        try:
            done = await self._store.txn(compares, puts, timeout_s=self._timeout_s)
            if not done.succeeded and not await self._leads():
                self._post(Fenced("etcd names another autoscaler"))
                return
            outcome = "ok" if done.succeeded else "refused"
        except StoreRejected as error:
            log.warning("commit_rejected", object=work.key, error=error)
            outcome = "refused"
        except StoreError as error:
            log.warning("commit_unknown", object=work.key, error=error)
            outcome = "unknown"
        self._post(RecordCommitted(work.key, work.number, outcome))

    async def _leads(self) -> bool:
        kv = await self._store.get(self._keys.autoscaler_leader, timeout_s=self._timeout_s)
        return kv is not None and kv.create_revision == self._term

    async def forget(self, work: Forget) -> None:
        """Best effort: what stays is of a uid that no object has."""
        keys = self._keys
        slots = [DeleteKey(keys.autoscaler_decision(work.key, slot)) for slot in range(self._history)]
        ops: list[Op] = [DeleteKey(keys.autoscaler_last(work.key)), *slots]
        try:
            await self._store.txn(
                [CreateRevisionIs(keys.autoscaler_leader, self._term)], ops, timeout_s=self._timeout_s
            )
        except StoreError as error:
            log.info("forget_failed", object=work.key, error=error)

    async def sweep(self, work: Sweep) -> None:
        """Best effort, once per term. What this term recorded, or what changes meanwhile, is of a living object."""
        keys, swept = self._keys, 0
        try:
            listing = await self._store.list_prefix(keys.autoscaler_lasts_prefix, timeout_s=self._timeout_s)
            for kv in listing.items:
                key = keys.autoscaler_object_of(kv.key)
                record = decode_record(kv.value, AutoscaleRecord)
                if key in work.keep or (record is not None and record.term == self._term):
                    continue
                ring = await self._store.list_prefix(keys.autoscaler_history_prefix(key), timeout_s=self._timeout_s)
                compares: list[Compare] = [
                    CreateRevisionIs(keys.autoscaler_leader, self._term), ModRevisionIs(kv.key, kv.mod_revision),
                ]  # fmt: skip
                ops: list[Op] = [DeleteKey(kv.key), *(DeleteKey(slot.key) for slot in ring.items[: MAX_TXN_OPS - 1])]
                swept += (await self._store.txn(compares, ops, timeout_s=self._timeout_s)).succeeded
        except StoreError as error:
            log.info("sweep_failed", error=error)
        if swept:
            log.info("swept", objects=swept)


class ApiWrites:
    """Writes to the API server."""

    def __init__(
        self,
        api: KubeApi,
        post: Post,
        *,
        kinds: ServedKinds,
        leadership: Validity | None,
        timeout_s: float,
        instance: str,
    ) -> None:
        self._api, self._post, self._kinds = api, post, kinds
        self._leadership, self._timeout_s = leadership, timeout_s
        self._instance = instance
        self._event_places = asyncio.Semaphore(EVENTS_AT_ONCE)

    async def write(self, work: Write) -> None:
        """All writes of a decision, at once."""
        found = await asyncio.gather(*(self._one(write) for write in work.writes))
        self._post(
            ReplicasWrote(
                work.key, work.number, {one.service: end for one, end in zip(work.writes, found, strict=True)}
            )
        )

    async def _one(self, write: ScaleTo | SetBounds) -> tuple[str, str]:
        """(outcome, what was said)."""
        meta = {"resourceVersion": write.resource_version, "uid": write.uid}
        try:
            if isinstance(write, ScaleTo):
                resource = await self._kinds.resource(write.ref)
                if resource is None:
                    return "refused", f"no kind {write.ref.kind} is served"
                await self._patch(
                    resource, write.namespace, write.ref.name, "scale",
                    {"metadata": meta, "spec": {"replicas": write.replicas}},
                )  # fmt: skip
            else:
                spec = {"minReplicas": write.minimum, "maxReplicas": write.maximum}
                await self._patch(HPAS, write.namespace, write.name, "", {"metadata": meta, "spec": spec})
        except KubeRejected as error:
            return ("conflict" if error.status == 409 else "refused"), str(error)
        except KubeError as error:
            return "unknown", str(error)
        except _NotLeading:
            return "refused", "this process leads no more"
        return "ok", ""

    async def _patch(
        self, resource: Resource[Any], namespace: str, name: str, subresource: str, patch: dict[str, object]
    ) -> None:
        if self._leadership is not None and not self._leadership.is_valid():
            raise _NotLeading
        await self._api.patch(
            resource, namespace=namespace, name=name, patch=patch, subresource=subresource, strategy="merge",
            timeout_s=self._timeout_s, wait_when_busy=False,
        )  # fmt: skip

    async def tell(self, work: TellStatus) -> None:
        """The object's status; a failed one is asked for again by the core."""
        scaler, now, done = work.scaler, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), True
        try:
            await self._api.patch(
                AUTOSCALERS, namespace=scaler.namespace, name=scaler.name,
                patch=telling.patch(work.status, scaler, now), subresource="status", strategy="merge",
                timeout_s=self._timeout_s, wait_when_busy=False,
            )  # fmt: skip
        except KubeError as error:
            log.info("status_failed", object=scaler.key, error=error)
            done = False
        self._post(StatusTold(scaler.key, done))

    async def announce(self, work: Announce) -> None:
        """Best effort: the status has what an event tells, and has it for as long as it holds."""
        scaler = work.scaler
        about = {
            "apiVersion": AUTOSCALERS.api_version, "kind": AUTOSCALERS.kind, "namespace": scaler.namespace,
            "name": scaler.name, "uid": scaler.uid, "resourceVersion": scaler.resource_version,
        }  # fmt: skip
        body = event_body(
            about, name=event_name(scaler.name, time.time_ns()), at=datetime.now(UTC), controller=CONTROLLER,
            instance=self._instance, kind=work.kind, reason=work.reason, action=work.action, note=work.note,
        )  # fmt: skip
        try:
            async with self._event_places:
                await self._api.create(
                    EVENTS, namespace=scaler.namespace, body=body, timeout_s=self._timeout_s, wait_when_busy=False
                )
        except KubeError as error:
            log.info("event_failed", object=scaler.key, reason=work.reason, error=error)


class _NotLeading(Exception):
    """Our lease may have ended."""
