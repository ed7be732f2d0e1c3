"""Records the series of a live service graph: what ``conclave train services-twin`` and ``twin lost`` read.

Which services, and where their readings are, is said by a ``ResilientAutoscaler``: the object in the cluster, or its
manifest, so that a graph can be watched before any autoscaler is told of it. Nothing in the cluster is changed. Rows
are appended moment by moment, so what is there is whole up to its last line; a file that is there already is gone on
with. A moment that could not be read is left out and told; the series have a gap there.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import msgspec
import yaml

from lab.cli.twin.capture import CHECK_S, Tell, interrupted
from lab.worlds.learned.captured import SeenPod, ServicePods, counted
from lab.worlds.learned.series import HEADER, TROUBLE, Writer
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.adapters.prometheus import PrometheusClient
from shared.autoscaling.hpa.model import PodUsage
from shared.autoscaling.observation import Bounds, ScalingObservation, ServiceObservation
from shared.autoscaling.safety.readings import checked
from shared.errors import ConfigError, KubeError, KubeUnknown
from shared.kube.decoding import UNREADABLE
from shared.kube.resources import PODS
from shared.kube.scaling.autoscaling import AUTOSCALERS, AutoscalerObject, autoscaler_from_api
from shared.kube.scaling.scaled_objects import WORKLOADS, ScaledObject, selector_text
from shared.model.controllers.autoscaler import Autoscaler, ScalingSignal, ScalingTarget, SourceKind
from shared.runtime.kube.metric_reads import MetricReads

READ_S = 5.0
MOST_MANIFEST = 1 << 20


class _PodList(msgspec.Struct):
    items: list[SeenPod] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSettings:
    """What was asked for. ``services``: NAMESPACE/NAME of a ResilientAutoscaler, or a file with one; ``duration_s`` 0:
    until it is interrupted."""

    kubeconfig: Path
    context: str | None
    services: str
    prometheus: str | None
    token: str
    ca: Path | None
    duration_s: float
    step_s: float
    scenario: str


@dataclass(frozen=True, slots=True)
class ServiceCapture:
    """What came of it. ``missed``: moments that could not be read, and ``why`` the last of them."""

    moments: int
    missed: int
    why: str


async def capture_services(settings: SeriesSettings, out: Path, tell: Tell) -> ServiceCapture:
    """Append to ``out`` until the time is up. ``ConfigError``: the cluster, the object or the file cannot be used."""
    client = KubeClient(await KubeConfig.load(settings.kubeconfig, context=settings.context))
    try:
        await client.check(timeout_s=CHECK_S)
        scaler = await _scaler(client, settings.services)
        async with contextlib.AsyncExitStack() as stack:
            prometheus = None
            if settings.prometheus:
                client_of = PrometheusClient(settings.prometheus, token=settings.token, ca_file=settings.ca)
                prometheus = await stack.enter_async_context(client_of)
            eyes = _Eyes(client, scaler, MetricReads(client, prometheus, timeout_s=READ_S))
            try:
                first = await eyes.look()  # what cannot be read at all is told before a file is made
            except KubeError as error:
                raise ConfigError(
                    f"--services: {scaler.key}: {error}; check that its workloads are there and that we may read them"
                ) from None
            with appended(out) as file, interrupted() as stop:
                return await _record(eyes, first, settings, file, stop, tell)
    except KubeError as error:
        raise ConfigError(f"--kubeconfig: {error}; check that the server runs and that we may read") from None
    finally:
        await client.close()


Look = tuple[ScalingObservation, Mapping[str, Mapping[str, int]]]


async def _record(
    eyes: _Eyes, first: Look, settings: SeriesSettings, file: IO[bytes], stop: asyncio.Event, tell: Tell
) -> ServiceCapture:
    writer, episode = Writer(), datetime.now(UTC).isoformat(timespec="seconds")
    if not file.tell():
        writer.header()
    began_s, moments, missed, why = time.monotonic(), 0, 0, ""
    found: Look | None = first
    turn = 0
    while True:
        if found is not None:
            writer.moment(settings.scenario, episode, found[0], beside=found[1])
            file.write(writer.take().encode())
            file.flush()
            moments += 1
        turn += 1
        due_s = began_s + turn * settings.step_s
        total = int(settings.duration_s / settings.step_s) + 1 if settings.duration_s else moments + 1
        tell(
            min(turn, total),
            max(total, turn),
            f"{moments} moments of {len(eyes.scaler.targets)} services, {missed} missed",
        )
        if settings.duration_s and turn * settings.step_s > settings.duration_s:
            break
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), max(due_s - time.monotonic(), 0.0))
        if stop.is_set():
            break
        try:
            found = await eyes.look()
        except KubeError as error:
            found, missed, why = None, missed + 1, str(error)[:200]
    os.fsync(file.fileno())
    return ServiceCapture(moments, missed, why)


class _Eyes:
    """Looks at every service of one object."""

    def __init__(self, client: KubeClient, scaler: Autoscaler, metrics: MetricReads) -> None:
        self._client, self.scaler, self._metrics = client, scaler, metrics

    async def look(self) -> Look:
        """All services at one moment. ``KubeError``: a workload or its pods cannot be read."""
        scaler = self.scaler
        now_s = time.time()
        used = await self._metrics.pod_metrics(scaler.namespace)
        of_pods = used if isinstance(used, dict) else {}
        seen = await asyncio.gather(*(self._service(target, of_pods, now_s) for target in scaler.targets))
        names = [target.name for target in scaler.targets]
        observation = ScalingObservation(
            now=now_s,
            services={name: one for name, (one, _) in zip(names, seen, strict=True)},
            calls=scaler.calls,
            latency_objective_s=scaler.latency_objective_s,
            success_objective=scaler.success_objective,
            cost_limit=scaler.cost_limit,
        )
        trouble = {
            name: {column: getattr(pods, column) for column in TROUBLE}
            for name, (_, pods) in zip(names, seen, strict=True)
        }
        return observation, trouble

    async def _service(
        self, target: ScalingTarget, metrics: Mapping[str, PodUsage], now_s: float
    ) -> tuple[ServiceObservation, ServicePods]:
        scaler = self.scaler
        resource = WORKLOADS[target.ref.api_version, target.ref.kind]
        space = quote(scaler.namespace, safe="")
        workload = await self._read(
            f"get {resource.plural}", resource.path(space, quote(target.ref.name, safe="")), {}, ScaledObject
        )
        selector = selector_text(workload.spec.selector)
        if not selector:
            raise KubeUnknown(f"{target.ref} of {scaler.namespace} has no selector that can be asked for")
        listed = await self._read("list pods", PODS.path(space), {"labelSelector": selector}, _PodList)
        pods = counted(listed.items, metrics, now_s=now_s)
        values, age_s = await self._signals(target, selector, now_s)
        measured_s = pods.measured_s
        ages = [age_s, *([max(now_s - measured_s, 0.0)] if measured_s is not None else [])]
        cpu, memory = values.get(ScalingSignal.CPU, pods.cpu), values.get(ScalingSignal.MEMORY, pods.memory)
        observation = ServiceObservation(
            replicas=1 if workload.spec.replicas is None else workload.spec.replicas,
            ready=pods.ready, starting=pods.starting, pending=pods.pending,
            bounds=Bounds(target.minimum, target.maximum), requests=pods.requests,
            usage={"cpu": cpu, "memory": memory}, age_s=max(ages),
arrivals=values.get(ScalingSignal.ARRIVALS), served=values.get(ScalingSignal.SERVED),
            failed=values.get(ScalingSignal.FAILED),
            latency_s=values.get(ScalingSignal.LATENCY), queue=values.get(ScalingSignal.QUEUE),
        )  # fmt: skip
        return observation, pods

    async def _signals(
        self, target: ScalingTarget, selector: str, now_s: float
    ) -> tuple[dict[ScalingSignal, float], float]:
        """(what can be relied on, age of the oldest of it)."""
        asked = {signal: one for signal, one in target.sources.items() if one.kind is not SourceKind.RESOURCE}
        found = await asyncio.gather(
            *(self._metrics.reading(self.scaler.namespace, signal, one, selector) for signal, one in asked.items())
        )
        good, _, age_s = checked(
            dict(zip(asked, found, strict=True)), wall_s=now_s, stale_after_s=self.scaler.limits.stale_after_s
        )
        return good, age_s

    async def _read(self, route: str, path: str, query: Mapping[str, str], kind: type[Any]) -> Any:
        body = await self._client.read(route, path, query=query, timeout_s=READ_S)
        try:
            return msgspec.json.decode(body, type=kind)
        except UNREADABLE as error:
            raise KubeUnknown(f"{route}: its answer cannot be read ({error!s:.120})") from None


@contextlib.contextmanager
def appended(out: Path) -> Iterator[IO[bytes]]:
    """The file, at its end; a line that was cut short is taken off. ``ConfigError``: it is no file of series, cannot be
    written, or another capture writes it."""
    try:
        with out.open("a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"--out: another capture writes {out}; end that, or give another file") from None
            file.seek(0)
            header, wanted = file.readline(), (",".join(HEADER) + "\n").encode()
            if header and header != wanted:
                raise ConfigError(f"--out: {out} is there and holds no series of this version; give another file")
            file.truncate(_whole(file))
            file.seek(0, os.SEEK_END)
            yield file
    except OSError as error:
        raise ConfigError(f"--out: {out}: {error.strerror}; give a file that can be written") from None


def _whole(file: IO[bytes]) -> int:
    """How many bytes of the file are whole lines."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(end - 65_536, 0)
        file.seek(begin)
        at = file.read(end - begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


async def _scaler(client: KubeClient, services: str) -> Autoscaler:
    """The object that ``--services`` names. ``ConfigError``: there is none, or it cannot be used."""
    manifest = _manifest(Path(services))
    if manifest is not None:
        scaler = autoscaler_from_api(manifest)
    else:
        namespace, slash, name = services.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise ConfigError(
                f"--services: {services!r} is neither a file nor NAMESPACE/NAME of a ResilientAutoscaler; give one"
            )
        found = await client.get(AUTOSCALERS, namespace=namespace, name=name, timeout_s=READ_S)
        if found is None:
            raise ConfigError(f"--services: there is no ResilientAutoscaler {services}; apply it, or give its manifest")
        scaler = autoscaler_from_api(found)
    if scaler.problems:
        raise ConfigError(f"--services: {services}: {scaler.problems[0]}")
    for target in scaler.targets:
        if (target.ref.api_version, target.ref.kind) not in WORKLOADS:
            raise ConfigError(
                f"--services: {services}: {target.ref} of {target.ref.api_version} cannot be watched; name Deployments,"
                " StatefulSets or ReplicaSets"
            )
    return scaler


def _manifest(path: Path) -> AutoscalerObject | None:
    """The object in a file; None: there is no such file."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as opened:
            data = opened.read(MOST_MANIFEST + 1)
        documents = list(yaml.safe_load_all(data.decode())) if len(data) <= MOST_MANIFEST else []
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"--services: {path}: {' '.join(str(error).split())[:160]}; give a manifest") from None
    chosen = [one for one in documents if isinstance(one, dict) and one.get("kind") == AUTOSCALERS.kind]
    if len(chosen) != 1:
        raise ConfigError(f"--services: {path} holds {len(chosen)} ResilientAutoscalers; give a manifest with one")
    try:
        found = msgspec.convert(chosen[0], AutoscalerObject)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--services: {path}: {error}; correct the manifest") from None
    if found.metadata.namespace:
        return found
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, namespace="default"))
