"""What a demo submits: nodes, and pods with the moments at which they are due; and how they are sent.

Nodes go first, then pods by schedule or as fast as the server takes them. Sending is idempotent: every object has a
name of its own, so a request whose answer was lost is sent again and ``AlreadyExists`` counts as success. Any other
refusal ends the run with the server's own words.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from lab.cli.demo import gangs, latency, tidal
from lab.traces.openb import parse_nodes, parse_pods
from lab.traces.workload import GAP_S, KINDS, Arrival, arrivals, pod_json, stress_pod, thesis_nodes
from services.cli.inputs import is_trace, packed_or_not, read_trace
from shared.adapters.kube.api import KubeClient
from shared.errors import ConfigError, KubeError, KubeRejected
from shared.kube.objects import PartialObject
from shared.kube.pod_groups import JOBS, PODGROUPS_V1ALPHA2
from shared.kube.resources import NODES, PODS, Resource

Json = dict[str, Any]

EXTRA_PREFIX = "more-"
"""Pods submitted beyond the workload, until the last kill has recovered; rates leave them out."""
NODE_LIST = "openb_node_list_gpu_node.csv"
POD_LIST = "openb_pod_list_default.csv"
REMEDY = "give the folder with the openb trace"
EXTRA_GAP_S = 0.1
EXTRA_RUN_S = 30.0


@dataclass(frozen=True, slots=True)
class DemoWorkload:
    """``timed``: pods arrive by schedule (virtual seconds) and finish; else as fast as possible, and none finishes."""

    name: str
    nodes: list[Json]
    pods: list[Arrival]
    timed: bool
    before: list[Json] = field(default_factory=list)
    """Objects that must be there before the pods: pod groups, queues."""
    kinds: list[Json] = field(default_factory=list)
    """Custom resources that must be served before the mesh starts."""
    weights: dict[str, int] = field(default_factory=dict)
    """Of the tenants, by the queue that their pods name."""
    phases: list[latency.LatencyPhase] = field(default_factory=list)
    """Delays between nodes and the users that pods serve; none: nobody measures any."""

    @property
    def expected(self) -> int:
        """Pods that come of it, those of Jobs included."""
        return len(self.pods) + sum(int(one["spec"]["parallelism"]) for one in self.before if one["kind"] == "Job")

    def extra(self) -> Iterator[Arrival]:
        """Further pods for as long as kills have not recovered; ``at_s`` is the gap before each."""
        number = 0
        kinds = sorted(KINDS)
        while True:
            name = f"{EXTRA_PREFIX}{number:04d}"
            if self.timed:
                yield Arrival(GAP_S, stress_pod(name, kinds[number % len(kinds)], EXTRA_RUN_S))
            else:
                yield Arrival(EXTRA_GAP_S, pod_json(name, {"cpu": "10m", "memory": "16Mi"}))
            number += 1


def load_workload(
    name: str, *, seed: int, nodes: int | None, trace_dir: Path | None, pod_list: str | None = None,
    many: int | None = None, largest: int | None = None,
) -> DemoWorkload:  # fmt: skip
    """The workload ``uniform``, ``random``, ``latency``, ``gangs``, ``tidal`` or ``openb``. ``ConfigError``: unknown or
    malformed.

    ``pod_list`` names a file of ``trace_dir``; without it the default list counts, or the only one there is. ``many``:
    so many gangs, of at most ``largest`` members.
    """
    if name != "gangs" and (many, largest) != (None, None):
        flag = "--gangs" if many is not None else "--largest"
        raise ConfigError(f"{flag}: the workload {name} has no gangs; add --workload gangs or leave it out")
    if name != "openb":
        given = "--trace-dir" if trace_dir is not None else "--pod-list" if pod_list is not None else ""
        if given:
            raise ConfigError(f"{given}: only the workload openb reads a trace; add --workload openb or leave it out")
        if name == "gangs":
            return gang_workload(seed, nodes, many=many or gangs.GANGS, largest=largest or gangs.LARGEST)
        if name == "latency":
            return latency_workload(seed, nodes)
        if name == "tidal":
            return tidal_workload(seed, nodes)
        return DemoWorkload(name, thesis_nodes(nodes or 4), arrivals(name, Random(seed)), timed=True)
    if trace_dir is None:
        raise ConfigError(f"--trace-dir: the workload openb needs the folder with {NODE_LIST} and a pod list")
    node_file = packed_or_not(trace_dir / NODE_LIST)
    node_list = parse_nodes(read_trace("--trace-dir", node_file, REMEDY), str(node_file))
    if nodes is not None and nodes > len(node_list):
        raise ConfigError(f"--nodes: {nodes} is more than the trace's {len(node_list)}")
    pod_file = trace_dir / pod_list if pod_list is not None else _pod_list(trace_dir)
    pods = parse_pods(read_trace("--trace-dir", pod_file, REMEDY), str(pod_file))
    return DemoWorkload(name, node_list[:nodes], [Arrival(0.0, pod) for pod in pods], timed=False)


def gang_workload(
    seed: int, nodes: int | None, *, many: int = gangs.GANGS, largest: int = gangs.LARGEST
) -> DemoWorkload:
    """So ``many`` gangs of two tenants. ``ConfigError``: the nodes could not hold the smallest gang in one rack."""
    count = nodes or gangs.NODES
    room = gangs.rack_room(count)
    if room < gangs.SMALLEST:
        raise ConfigError(
            f"--nodes: a rack of {count} nodes has room for {room} pods; the gangs need 8: give 2 or more"
        )
    groups, members = gangs.gangs(Random(seed), count=many, largest=min(largest, room))
    return DemoWorkload("gangs", gangs.gang_nodes(count), members, timed=True, before=[*gangs.queues(), *groups],
                    kinds=[gangs.QUEUE_KIND], weights=gangs.TENANTS)  # fmt: skip


def latency_workload(seed: int, nodes: int | None) -> DemoWorkload:
    """Pods that serve users near some of the nodes. ``ConfigError``: with one node there is no nearer one; each has an
    agent process of its own."""
    count = nodes or latency.NODES
    if not 2 <= count <= latency.MOST_NODES:
        raise ConfigError(f"--nodes: {count}; the workload latency takes 2 to {latency.MOST_NODES}, with an agent each")
    names = latency.node_names(count)
    return DemoWorkload("latency", latency.latency_nodes(names), latency.latency_pods(), timed=True,
                    kinds=[latency.LATENCY_TARGET_KIND], phases=latency.phases(Random(seed), names))  # fmt: skip


def tidal_workload(seed: int, nodes: int | None) -> DemoWorkload:
    """A day of services, and jobs on what they leave. ``ConfigError``: too few nodes for one with GPUs."""
    count = nodes or tidal.NODES
    if count < tidal.GPU_NODES_SHARE:
        raise ConfigError(f"--nodes: {count}; of the workload tidal every third node has GPUs: give 3 or more")
    return DemoWorkload(
        "tidal", tidal.tidal_nodes(count), tidal.tidal_pods(seed, count), timed=True,
        before=tidal.tidal_jobs(seed, count),
    )  # fmt: skip


def _pod_list(trace_dir: Path) -> Path:
    """The default list, or the only one there is. ``ConfigError``: several, none of which is the default."""
    default = packed_or_not(trace_dir / POD_LIST)
    if default.exists():
        return default
    found = sorted(file for file in trace_dir.glob("openb_pod_list_*") if is_trace(file))
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise ConfigError(f"--pod-list: {trace_dir} holds {names} and no {POD_LIST}; name one of them")
    return found[0] if found else default


WORKERS = 8
ATTEMPTS = 40
RETRY_S = 0.25
TIMEOUT_S = 10.0
RESOURCES: dict[str, Resource[Any]] = {
    "Node": NODES,
    "Pod": PODS,
    "Job": JOBS,
    "PodGroup": PODGROUPS_V1ALPHA2,
    "Queue": Resource("Queue", "conclave.io", "v1alpha1", "queues", False, PartialObject),
    "LatencyTarget": Resource("LatencyTarget", "conclave.io", "v1alpha1", "latencytargets", False, PartialObject),
    "CustomResourceDefinition": Resource(
        "CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions", False, PartialObject
    ),
}


async def submit(
    api: KubeClient, objects: AsyncIterator[Json], on_created: Callable[[str], None] = lambda _: None
) -> None:
    """Create nodes or pods as they come, ``WORKERS`` at a time; ``on_created(name)`` after each.

    ``ConfigError``: the server refuses one for good, or does not answer ``ATTEMPTS`` times.
    """
    queue: asyncio.Queue[Json | None] = asyncio.Queue(4 * WORKERS)

    async def work() -> None:
        while (body := await queue.get()) is not None:
            await _create(api, body)
            on_created(body["metadata"]["name"])

    async def fill() -> None:
        async for body in objects:
            await queue.put(body)
        for _ in range(WORKERS):
            await queue.put(None)

    async with asyncio.TaskGroup() as group:
        group.create_task(fill())
        for _ in range(WORKERS):
            group.create_task(work())


async def _create(api: KubeClient, body: Json) -> None:
    metadata, told = body["metadata"], ""
    for _ in range(ATTEMPTS):
        try:
            await api.create(
                RESOURCES[body["kind"]], namespace=metadata.get("namespace", ""), body=body, timeout_s=TIMEOUT_S
            )
        except KubeRejected as error:
            if error.reason == "AlreadyExists":
                return
            told = str(error)
            if error.status != 429:
                break
        except KubeError as error:
            told = str(error)
        else:
            return
        await asyncio.sleep(RETRY_S)
    raise ConfigError(f"the API server does not take {body['kind']} {metadata['name']}: {told}")
