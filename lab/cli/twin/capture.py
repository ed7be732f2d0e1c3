"""Asks a cluster and a Prometheus for what a twin file holds. The file's form is ``twin.model.capture``'s.

It lists nodes and pods, watches pods for as long as it is told, then asks for the nodes' series over the same stretch.
Reading only: nothing in the cluster is changed. An interrupt ends the watching early, and what was seen is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from msgspec import field
from msgspec.structs import replace

from lab.traces.node_exporter import NAMES_QUERY, node_of, on_grid, query
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.adapters.prometheus import PrometheusClient, Series
from shared.errors import ConfigError, KubeError, KubeExpired
from shared.kube import objects as api
from shared.kube.resources import DeletedObject, Resource, Upserted
from twin.model.capture import PARTS, SCHEMA, Capture, CapturedPod, steps_of, trimmed
from twin.model.capture import Series as NodeSeries


class TimedContainer(api.Json, frozen=True):
    state: api.ContainerState | None = None


class TimedPodStatus(api.Json, frozen=True):
    phase: str | None = None
    start_time: str | None = None
    container_statuses: list[TimedContainer] | None = None


class TimedPod(api.Json, frozen=True):
    """A pod's object with the moments of its life."""

    metadata: api.ObjectMeta = field(default_factory=api.ObjectMeta)
    spec: api.PodSpec = field(default_factory=api.PodSpec)
    status: TimedPodStatus = field(default_factory=TimedPodStatus)


class Address(api.Json, frozen=True):
    type: str = ""
    address: str = ""


class AddressedStatus(api.Json, frozen=True):
    allocatable: api.Quantities | None = None
    addresses: list[Address] | None = None
    conditions: list[api.NodeCondition] | None = None
    declared_features: list[str] | None = None


class AddressedNode(api.Json, frozen=True):
    """A node's object with its addresses."""

    metadata: api.ObjectMeta = field(default_factory=api.ObjectMeta)
    spec: api.NodeSpec = field(default_factory=api.NodeSpec)
    status: AddressedStatus = field(default_factory=AddressedStatus)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every address and host name it has."""
        return tuple(one.address for one in self.status.addresses or ())


TIMED_PODS = Resource("Pod", "", "v1", "pods", True, TimedPod)
ADDRESSED_NODES = Resource("Node", "", "v1", "nodes", False, AddressedNode)

FINISHED = ("Succeeded", "Failed")


def captured_node(node: AddressedNode) -> api.KubeNode:
    """What the file keeps of a node: no addresses, no images, no foreign annotations."""
    status = api.NodeStatus(
        allocatable=node.status.allocatable,
        conditions=node.status.conditions,
        declared_features=node.status.declared_features,
    )
    return api.KubeNode(trimmed(node.metadata), node.spec, status)


def captured_pod(pod: TimedPod, *, start_s: float, seen_s: float, gone: bool = False) -> CapturedPod:
    """The pod relative to the capture's start. ``seen_s``: when this state was seen; ends that are not told take it.

    Both in unix seconds. The API tells whole seconds, so a start may lie before the creation by less than one: it is
    moved there.
    """
    created = _unix(pod.metadata.creation_timestamp)
    arrived = (created if created is not None else seen_s) - start_s
    started = _unix(pod.status.start_time)
    began = None if started is None else max(started - start_s, arrived)
    ended = None
    if gone or pod.status.phase in FINISHED:
        last = max((at for at in map(_finished, pod.status.container_statuses or ()) if at is not None), default=None)
        ended = max((seen_s if last is None else last) - start_s, arrived, began if began is not None else arrived)
    # what needs objects that the file does not keep is left out: claims for volumes and devices, pod groups
    spec = replace(pod.spec, volumes=None, resource_claims=None, scheduling_group=None)
    kept = api.KubePod(trimmed(pod.metadata), spec)
    return CapturedPod(kept, round(arrived, 3), _rounded(began), _rounded(ended))


def _finished(container: TimedContainer) -> float | None:
    state = container.state
    return None if state is None or state.terminated is None else _unix(state.terminated.finished_at)


def _rounded(moment: float | None) -> float | None:
    return None if moment is None else round(moment, 3)


def _unix(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


CHECK_S = 5.0
TICK_S = 0.5
API_RESOLUTION_S = 1.0
"""The API cuts times to whole seconds, so what ended just after the start may look as if it had before."""
NO_METRICS = "no metrics: no Prometheus was asked; replay and estimates of usage need them"
PAST_PODS = "pods deleted before the capture began are missing: their use counts as the nodes' own"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """What ``conclave twin capture`` was asked for."""

    kubeconfig: Path
    context: str | None = None
    prometheus: str | None = None
    token: str = ""
    ca: Path | None = None
    duration_s: float = 0.0
    history_s: float = 3600.0
    """How far the series reach back, with a Prometheus only."""
    step_s: float = 15.0


Tell = Callable[[int, int, str], None]


async def capture_cluster(settings: CaptureSettings, tell: Tell) -> Capture:
    """The capture. ``ConfigError``: the cluster or the Prometheus cannot be read."""
    client = KubeClient(await KubeConfig.load(settings.kubeconfig, context=settings.context))
    try:
        await client.check(timeout_s=CHECK_S)
        await client.check_reads(ADDRESSED_NODES, TIMED_PODS, timeout_s=CHECK_S)
        start_s = time.time() - (settings.history_s if settings.prometheus else 0.0)
        pods: dict[str, CapturedPod] = {}
        nodes = {node.metadata.name: node for node in (await client.list(ADDRESSED_NODES)).items}
        with interrupted() as stop:
            await _follow_pods(client, settings, start_s, pods, stop, tell)
        nodes |= {node.metadata.name: node for node in (await client.list(ADDRESSED_NODES)).items}
    except KubeError as error:
        raise ConfigError(f"--kubeconfig: {error}; check that the server runs and that we may read") from None
    finally:
        await client.close()
    if not nodes:
        raise ConfigError("--kubeconfig: the cluster has no node; there is nothing to capture")
    length_s = round(max(time.time() - start_s, 0.001), 3)  # as it is written: the number of steps follows from it
    series: dict[str, NodeSeries] = {}
    step_s, notes = 0.0, [NO_METRICS]
    if settings.prometheus:
        step_s, notes = steps_of(length_s, settings.step_s), [PAST_PODS]
        series = await _series(settings, nodes, start_s, length_s, step_s, tell)
    return Capture(
        SCHEMA,
        datetime.fromtimestamp(start_s, UTC).isoformat(timespec="milliseconds"),
        length_s,
        [captured_node(nodes[name]) for name in sorted(nodes)],
        [pod for _, pod in sorted(pods.items()) if pod.ended_s is None or pod.ended_s > -API_RESOLUTION_S],
        step_s,
        series,
        notes,
    )


async def _follow_pods(
    client: KubeClient,
    settings: CaptureSettings,
    start_s: float,
    pods: dict[str, CapturedPod],
    stop: asyncio.Event,
    tell: Tell,
) -> None:
    """List pods, then watch them until the time is up or ``stop`` is set."""
    revision = await _list_pods(client, start_s, pods)
    if settings.duration_s <= 0:
        return
    watching = asyncio.create_task(_watch_pods(client, revision, start_s, pods))
    stopping = asyncio.create_task(stop.wait())
    began_s = time.monotonic()
    try:
        while (left_s := settings.duration_s - (time.monotonic() - began_s)) > 0:
            tell(int(settings.duration_s - left_s), int(settings.duration_s) + 1, f"watching {len(pods)} pods")
            done, _ = await asyncio.wait(
                {watching, stopping}, timeout=min(TICK_S, left_s), return_when=asyncio.FIRST_COMPLETED
            )
            if stopping in done:
                return
            if watching in done:
                watching.result()
    finally:
        for task in (watching, stopping):
            task.cancel()
        await asyncio.gather(watching, stopping, return_exceptions=True)


async def _list_pods(client: KubeClient, start_s: float, pods: dict[str, CapturedPod]) -> str:
    """Take over every pod there is; those that are gone by now ended unseen. Returns the revision to watch from."""
    found = await client.list(TIMED_PODS)
    now_s = time.time()
    there = {pod.metadata.uid: captured_pod(pod, start_s=start_s, seen_s=now_s) for pod in found.items}
    for uid, pod in pods.items():
        if uid not in there and pod.ended_s is None:
            there[uid] = CapturedPod(pod.pod, pod.arrived_s, pod.started_s, round(now_s - start_s, 3))
    pods.update(there)
    return found.resource_version


async def _watch_pods(client: KubeClient, revision: str, start_s: float, pods: dict[str, CapturedPod]) -> None:
    while True:
        try:
            async with contextlib.aclosing(client.watch(TIMED_PODS, resource_version=revision)) as events:
                async for event in events:
                    if isinstance(event, Upserted | DeletedObject):
                        pod = event.object
                        gone = isinstance(event, DeletedObject)
                        known = pods.get(pod.metadata.uid)
                        if known is None or known.ended_s is None:
                            pods[pod.metadata.uid] = captured_pod(pod, start_s=start_s, seen_s=time.time(), gone=gone)
        except KubeExpired:
            revision = await _list_pods(client, start_s, pods)


async def _series(
    settings: CaptureSettings,
    nodes: dict[str, AddressedNode],
    start_s: float,
    length_s: float,
    step_s: float,
    tell: Tell,
) -> dict[str, NodeSeries]:
    """The nodes' series. ``ConfigError``: the Prometheus answers, but knows none of the nodes."""
    assert settings.prometheus is not None
    steps = int(length_s // step_s) + 1
    end_s = start_s + (steps - 1) * step_s
    addresses = {name: node.addresses for name, node in nodes.items()}
    found: dict[str, NodeSeries] = {}
    strangers: set[str] = set()
    async with PrometheusClient(settings.prometheus, token=settings.token, ca_file=settings.ca) as client:

        async def ask(text: str) -> list[Series]:
            return await client.query_range(text, start_s=start_s, end_s=end_s, step_s=step_s)

        names = {one.labels.get("instance", ""): one.labels.get("nodename", "") for one in await ask(NAMES_QUERY)}
        for done, part in enumerate(PARTS):
            tell(done, len(PARTS), f"{part} of {len(nodes)} nodes from {settings.prometheus}")
            for one in await ask(query(part, step_s)):
                node = node_of(one.labels, nodes=addresses, host_names=names)
                if node:
                    values = on_grid(one.samples, start_s=start_s, step_s=step_s, steps=steps)
                    found.setdefault(node, {})[part] = values
                else:
                    strangers.add(one.labels.get("instance", "?"))
    if not found:
        seen = f"it knows {', '.join(sorted(strangers)[:3])}" if strangers else "it has no node-exporter series"
        raise ConfigError(
            f"--prometheus: {settings.prometheus}: no series of any of the {len(nodes)} nodes ({seen}); give the one"
            " that scrapes this cluster's node-exporters"
        )
    return found


@contextlib.contextmanager
def interrupted() -> Iterator[asyncio.Event]:
    """An event that the first SIGINT or SIGTERM sets; the second one acts as ever."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def first() -> None:
        event.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, first)
    try:
        yield event
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
