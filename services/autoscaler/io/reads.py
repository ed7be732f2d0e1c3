"""Reads what one decision needs: the workloads, the HPAs, the last record in etcd, the metrics.

Every read has a deadline of its own, and none fails the round: what could not be read is said in its place, and the
core holds. Workloads are read from the API server at the moment of the decision and not from a watch: what is written
then names the resourceVersion that was read here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar
from urllib.parse import quote

import msgspec
import structlog

from services.autoscaler.core.events import Answered, HpaFact, RoundRead, TargetFact
from services.autoscaler.core.instructions import ReadRound
from services.autoscaler.io.follow import OURS, hpa_fact
from shared.adapters.prometheus import PrometheusClient
from shared.autoscaling.hpa.model import CustomSeries, ExternalSeries, HpaMetric, MetricSource, ObjectRef, PodUsage
from shared.autoscaling.safety.readings import SignalReading
from shared.errors import KubeError, KubeRejected, StoreError
from shared.kube.decoding import UNREADABLE
from shared.kube.resources import Resource
from shared.kube.scaling.scaled_objects import (
    HPAS,
    WORKLOADS,
    RollingUpdate,
    ScaledObject,
    UpdateStrategy,
    last_writer,
    selector_text,
)
from shared.model.controllers.autoscaler import Autoscaler, ScalingSignal, SourceKind, TargetRef
from shared.ports import KubeApi, Store
from shared.runtime.kube.metric_reads import BRIEF, MetricReads, RawReads
from shared.wire.keys import Keys
from shared.wire.records import AutoscaleRecord, decode_record

log = structlog.get_logger()

T = TypeVar("T")


ASKED = (MetricSource.PODS, MetricSource.OBJECT, MetricSource.EXTERNAL)
"""Metrics with a question of their own; cpu and memory of all pods come with one list."""
Answer = tuple[CustomSeries, ...] | tuple[ExternalSeries, ...] | str


class ReadingApi(KubeApi, RawReads, Protocol):
    """The API server, and its paths that are no objects."""


class _Served(msgspec.Struct):
    name: str = ""
    kind: str = ""
    namespaced: bool = True


class _Discovery(msgspec.Struct):
    resources: list[_Served] = []


class _Version(msgspec.Struct, rename="camel"):
    version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    preferred_version: _Version = msgspec.field(default_factory=_Version)


class ServedKinds:
    """Where each kind is served: the well-known workloads, others by discovery, once each."""

    def __init__(self, api: ReadingApi, timeout_s: float) -> None:
        self._api = api
        self._timeout_s = timeout_s
        self._found: dict[tuple[str, str], Resource[ScaledObject]] = dict(WORKLOADS)
        self._plurals: dict[tuple[str, str], str] = {("", "Service"): "services", ("", "Namespace"): "namespaces"}

    async def resource(self, ref: TargetRef) -> Resource[ScaledObject] | None:
        """The kind, None where it is not served. ``KubeError``: it could not be asked."""
        known = self._found.get((ref.api_version, ref.kind))
        if known is not None:
            return known
        group, _, version = ref.api_version.rpartition("/")
        for one in await self._served(group, version):
            if one.kind == ref.kind and one.namespaced and "/" not in one.name:
                found = Resource(ref.kind, group, version, one.name, True, ScaledObject)
                self._found[ref.api_version, ref.kind] = found
                return found
        return None

    async def plural(self, group: str, kind: str) -> str:
        """How the API names a kind of any version; "" where it is not served. ``KubeError``: it could not be asked."""
        known = self._plurals.get((group, kind))
        if known is not None:
            return known
        version = "v1"
        if group:
            answer = await self._asked(f"/apis/{quote(group)}", _Group)
            version = answer.preferred_version.version if answer is not None else ""
        for one in await self._served(group, version) if version else ():
            if one.kind == kind and "/" not in one.name:
                self._plurals[group, kind] = one.name
                return one.name
        return ""

    async def _served(self, group: str, version: str) -> list[_Served]:
        path = f"/apis/{quote(group)}/{quote(version)}" if group else f"/api/{quote(version)}"
        found = await self._asked(path, _Discovery)
        return found.resources if found is not None else []

    async def _asked(self, path: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode(await self._api.read("discover", path, timeout_s=self._timeout_s), type=kind)
        except KubeRejected as error:
            if error.status == 404:
                return None
            raise
        except UNREADABLE:
            return None


class Reads:
    """Carries out ``ReadRound``."""

    def __init__(
        self,
        api: ReadingApi,
        store: Store,
        keys: Keys,
        *,
        kinds: ServedKinds,
        prometheus: PrometheusClient | None,
        timeout_s: float,
        wall: Callable[[], float],
        silences: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._api = api
        self._store = store
        self._keys = keys
        self._kinds = kinds
        self._metrics = MetricReads(api, prometheus, timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._wall = wall
        self.silences = silences

    async def round(self, work: ReadRound) -> RoundRead:
        """Everything, at once; never raises for what others do."""
        scaler, wall_s = work.scaler, self._wall()
        (last, revision, problem), hpas, targets, pod_metrics = await asyncio.gather(
            self._last(scaler.key),
            self._hpas(scaler, work.hpas),
            self._targets(scaler),
            self._pod_metrics(scaler, work.metrics),
        )
        readings, series = await asyncio.gather(
            self._readings(scaler, targets), self._series(scaler, targets, work.metrics)
        )
        return RoundRead(
            key=scaler.key, number=work.number, wall_s=wall_s, targets=targets, hpas=hpas, readings=readings,
            pod_metrics=pod_metrics, series=series, last=last, last_revision=revision, store_problem=problem,
            silent_s=self.silences(),
        )  # fmt: skip

    async def _last(self, key: str) -> tuple[AutoscaleRecord | None, int, str]:
        """(record, its revision, why it could not be read). One that does not decode counts as none."""
        try:
            kv = await self._store.get(self._keys.autoscaler_last(key), timeout_s=self._timeout_s)
        except StoreError as error:
            return None, 0, str(error)[:BRIEF]
        if kv is None:
            return None, 0, ""
        record = decode_record(kv.value, AutoscaleRecord)
        if record is None:
            log.warning("record_unreadable", key=kv.key)
        return record, kv.mod_revision, ""

    async def _targets(self, scaler: Autoscaler) -> dict[str, TargetFact | str]:
        found = await asyncio.gather(*(self._target(scaler.namespace, one.ref) for one in scaler.targets))
        return {target.name: fact for target, fact in zip(scaler.targets, found, strict=True)}

    async def _target(self, namespace: str, ref: TargetRef) -> TargetFact | str:
        try:
            resource = await self._kinds.resource(ref)
            if resource is None:
                return f"!no kind {ref.kind} is served in {ref.api_version}"
            whole = (ref.api_version, ref.kind) in WORKLOADS
            path = resource.path(quote(namespace, safe=""), quote(ref.name, safe=""), "" if whole else "scale")
            body = await self._api.read(f"get {resource.plural}", path, timeout_s=self._timeout_s)
            found = msgspec.json.decode(body, type=ScaledObject)
        except KubeRejected as error:
            return f"!there is none in {namespace}" if error.status == 404 else str(error)[:BRIEF]
        except KubeError as error:
            return str(error)[:BRIEF]
        except UNREADABLE as error:
            return f"its answer cannot be read: {str(error)[:BRIEF]}"
        return target_fact(ref, found)

    async def _hpas(self, scaler: Autoscaler, names: Mapping[str, str]) -> dict[str, HpaFact | str]:
        async def read(name: str) -> HpaFact | str:
            try:
                hpa = await self._api.get(HPAS, namespace=scaler.namespace, name=name, timeout_s=self._timeout_s)
            except KubeError as error:
                return str(error)[:BRIEF]
            return f"!there is no HPA {name}" if hpa is None else hpa_fact(hpa)

        found = await asyncio.gather(*(read(name) for name in names.values()))
        return dict(zip(names, found, strict=True))

    # --- metrics ------------------------------------------------------------------------------------------------------

    async def _pod_metrics(self, scaler: Autoscaler, metrics: tuple[HpaMetric, ...]) -> dict[str, PodUsage] | str:
        wanted = any(one.source not in ASKED for one in metrics) or any(
            source.kind is SourceKind.RESOURCE for target in scaler.targets for source in target.sources.values()
        )
        return await self._metrics.pod_metrics(scaler.namespace) if wanted else {}

    async def _series(
        self, scaler: Autoscaler, targets: Mapping[str, TargetFact | str], metrics: tuple[HpaMetric, ...]
    ) -> dict[str, Answered]:
        """What the rule asks beside cpu and memory; the same question of several services is asked once."""
        asked: dict[tuple[str, ...], HpaMetric] = {one.question: one for one in metrics if one.source in ASKED}
        if not asked:
            return {}
        calls: dict[tuple[tuple[str, ...], str], asyncio.Task[Answer]] = {}
        async with asyncio.TaskGroup() as group:
            for target in scaler.targets:
                for question, metric in asked.items():
                    key = (question, self._of_pods(targets[target.name], metric))
                    if key not in calls:
                        calls[key] = group.create_task(self._answer(scaler.namespace, metric, key[1]))
        return {
            target.name: {
                question: calls[question, self._of_pods(targets[target.name], metric)].result()
                for question, metric in asked.items()
            }
            for target in scaler.targets
        }

    @staticmethod
    def _of_pods(fact: TargetFact | str, metric: HpaMetric) -> str:
        """The selector of the target's pods, for a metric that is asked of them."""
        return fact.selector if metric.source is MetricSource.PODS and isinstance(fact, TargetFact) else ""

    async def _answer(self, namespace: str, metric: HpaMetric, selector: str) -> Answer:
        resource = ""
        if metric.described is not None:
            try:
                resource = await self._described(metric.described)
            except KubeError as error:
                return str(error)[:BRIEF]
            if not resource:
                return f"no kind {metric.described.kind} is served in {metric.described.group or 'v1'}"
        return await self._metrics.series(namespace, metric, selector, resource)

    async def _described(self, ref: ObjectRef) -> str:
        """Plural and group of an object that a metric describes, as the custom metrics API names it."""
        plural = await self._kinds.plural(ref.group, ref.kind)
        return f"{plural}.{ref.group}" if plural and ref.group else plural

    async def _readings(
        self, scaler: Autoscaler, targets: Mapping[str, TargetFact | str]
    ) -> dict[str, dict[ScalingSignal, SignalReading]]:
        asked: list[tuple[str, ScalingSignal]] = []
        calls: list[Awaitable[SignalReading]] = []
        for target in scaler.targets:
            fact = targets[target.name]
            for signal, source in target.sources.items():
                if source.kind is not SourceKind.RESOURCE:
                    asked.append((target.name, signal))
                    selector = fact.selector if isinstance(fact, TargetFact) else ""
                    calls.append(self._metrics.reading(scaler.namespace, signal, source, selector))
        found: dict[str, dict[ScalingSignal, SignalReading]] = {}
        for (name, signal), reading in zip(asked, await asyncio.gather(*calls), strict=True):
            found.setdefault(name, {})[signal] = reading
        return found


def target_fact(ref: TargetRef, found: ScaledObject) -> TargetFact:
    """The workload as the core sees it."""
    meta, status = found.metadata, found.status
    whole = (ref.api_version, ref.kind) in WORKLOADS
    unsaid = 1 if whole else 0  # a Scale leaves zero out
    return TargetFact(
        uid=meta.uid,
        resource_version=meta.resource_version,
        replicas=unsaid if found.spec.replicas is None else found.spec.replicas,
        there=status.replicas,
        selector=status.selector or selector_text(found.spec.selector),
        rollout=rollout_of(ref, found),
        writer=last_writer(meta, but=OURS),
    )


def rollout_of(ref: TargetRef, found: ScaledObject) -> str:
    """What goes on with a workload, in words; "" for nothing.

    A growing one is no rollout, nor is one that rests with pods of two templates, since nobody rolls it on: a paused
    Deployment, a StatefulSet whose pods people delete themselves (OnDelete), or that is rolled out to its partition.
    """
    spec, status = found.spec, found.status
    updated = status.updated_replicas or 0
    if ref.kind == "Deployment" and not spec.paused and updated < status.replicas:
        return f"a rollout: {updated} of {status.replicas} pods are of the new template"
    if ref.kind == "StatefulSet" and status.update_revision and status.update_revision != status.current_revision:
        strategy = spec.update_strategy or UpdateStrategy()
        rolling = strategy.rolling_update or RollingUpdate()
        begins = (rolling.partition or 0) - (spec.ordinals.start if spec.ordinals is not None else 0)
        rolled = status.replicas - max(begins, 0)  # so many of its pods are at or above the partition
        if strategy.type != "OnDelete" and updated < rolled:
            return f"a rollout: {updated} of {rolled} pods are of the new template"
    return ""
