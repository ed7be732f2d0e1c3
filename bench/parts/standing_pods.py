"""What a standing pod costs a service that accounts for the whole cluster: memory, and the collector's pauses.

    .venv/bin/python -m bench.parts.standing_pods [--pods 50000] [--nodes 1000] [--mirror]

Pods come as the API server sends them, decoded and taken in as coordinator and binder do it. ``tracked``: objects that
a full collection of the garbage collector visits; ``pause``: its CPU time, which stops everything. ``--mirror``: what a
warm standby keeps, and what a takeover costs then, per pod that stands: by a core that has learned along, and by an
empty one, which the mirror is told to. No I/O.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random
from typing import Any

import msgspec

from services.binder.core.core import BinderCore
from services.binder.core.state import BinderCoreSettings
from services.coordinator.core.core import Core
from services.coordinator.core.state import CoreSettings as CoordinatorSettings
from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.kube.resources import ObjectList
from shared.model.cluster_events import Listed
from shared.runtime.kube.reflector import Batch
from shared.runtime.kube.shared_watches import SharedWatch
from shared.runtime.kube.watches import pod_events, pod_reflector
from shared.scheduling.state.cluster_state import ClusterState
from shared.wire.keys import Keys

BINDER, COORDINATOR = "binder", "coordinator"


def node(number: int) -> dict[str, Any]:
    """As the API server shows it."""
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    metadata = {"name": f"node-{number}", "uid": f"n{number}", "resourceVersion": "1"}
    status = {"allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": metadata, "spec": {}, "status": status}


def pod(number: int, nodes: int) -> dict[str, Any]:
    """Bound, a copy of one of twenty workloads."""
    requests = {"cpu": f"{10 + number % 20}m", "memory": "8Mi"}
    labels = {"app": f"app-{number % 20}", "tier": "web"}
    metadata = {
        "name": f"app-{number % 20}-7f9c6d5b8-{number:05}", "namespace": "default",
        "uid": f"0f3b2a9c-5d7e-4c11-8a2f-{number:012}", "resourceVersion": str(100_000 + number),
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
    }  # fmt: skip
    return {
        "metadata": metadata,
        "spec": {
            "nodeName": f"node-{number % nodes}",
            "schedulerName": "conclave",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running"},
    }


def resident_mb() -> float:
    """Greatest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class PodListServer:
    """Lists pods page by page and has no news."""

    def __init__(self, pods: int, nodes: int) -> None:
        self._pods, self._nodes = pods, nodes
        self._decode = msgspec.json.Decoder(api.KubePod).decode

    async def pages(self, _resource: Any, *, timeout_s: float) -> AsyncGenerator[ObjectList[Any], None]:  # noqa: ARG002
        """500 a page."""
        for start in range(0, self._pods, 500):
            numbers = range(start, min(start + 500, self._pods))
            yield ObjectList(tuple(self._decode(json.dumps(pod(number, self._nodes))) for number in numbers), "1000000")

    async def revision(self, _resource: Any) -> str:
        """Nothing has changed."""
        return "1000000"

    async def watch_batches(self, _resource: Any, **_options: Any) -> AsyncGenerator[list[Any], None]:
        """Silence."""
        await asyncio.Event().wait()
        yield []


def core_of(role: str) -> Core | BinderCore:
    """An empty one."""
    if role == BINDER:
        return BinderCore(1, BinderCoreSettings(), Keys())
    return Core(term=1, scheduler_name="conclave", policy="kube-default", rng=Random(0), settings=CoordinatorSettings())


def mirror(pods: int, nodes: int, role: str, *, learns: bool) -> dict[str, float]:
    """Keep them, then take over."""
    return asyncio.run(_mirror(pods, nodes, role, learns=learns))


async def _mirror(pods: int, nodes: int, role: str, *, learns: bool) -> dict[str, float]:
    server: Any = PodListServer(pods, nodes)
    watch, core = SharedWatch(pod_reflector(server), pod_from_api, followers=1), core_of(role)
    handle = core.handle_all if isinstance(core, BinderCore) else core.handle
    if learns:
        watch.attend(lambda batch: core.learn(pod_events(batch, read=lambda item: item), 0.0))
    gc.collect()
    gc.freeze()
    before_mb = resident_mb()
    mirroring = asyncio.create_task(watch.mirror())
    while not watch.is_warm():  # noqa: ASYNC110  it takes turns of the loop, and nothing else
        await asyncio.sleep(0)
    kept_mb = resident_mb() - before_mb
    took_s = await told(watch, handle, attended=learns)
    mirroring.cancel()
    return {"bytes_per_pod": round(kept_mb * 2**20 / pods), "takeover_cpu_us_per_pod": round(took_s / pods * 1e6, 2)}


async def told(watch: SharedWatch, handle: Callable[[Any, float], Any], *, attended: bool) -> float:
    """CPU seconds until a core knows all that the mirror shows."""
    all_told, began_s = asyncio.Event(), time.process_time()

    def take(batch: Batch[Any]) -> None:
        events = pod_events(batch, read=lambda item: item)
        handle(events, 0.0)
        if any(isinstance(event, Listed) for event in events):
            all_told.set()

    following = asyncio.create_task(watch.follow(take, attended=attended))
    await all_told.wait()
    took_s = time.process_time() - began_s
    following.cancel()
    return took_s


def main() -> None:
    """Take pods in, then collect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--mirror", action="store_true", help="of a warm standby")
    options = parser.parse_args()
    if options.mirror:
        for role, learns in ((role, learns) for role in (BINDER, COORDINATOR) for learns in (True, False)):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:  # memory is a process's greatest
                found = apart.submit(mirror, options.pods, options.nodes, role, learns=learns).result()
            print(json.dumps({"role": role, "learns": learns, "pods": options.pods} | found))
        return
    state = ClusterState()
    nodes, pods = msgspec.json.Decoder(api.KubeNode), msgspec.json.Decoder(api.KubePod)
    for number in range(options.nodes):
        state.upsert_node(node_from_api(nodes.decode(json.dumps(node(number)))))
    gc.collect()
    gc.freeze()
    before_mb, before_s = resident_mb(), time.process_time()
    for number in range(options.pods):
        state.observe(pod_from_api(pods.decode(json.dumps(pod(number, options.nodes)))))
    took_s = time.process_time() - before_s
    gc.collect()
    tracked, started_s = len(gc.get_objects()), time.process_time()
    gc.collect()
    figures = {
        "pods": options.pods,
        "tracked": tracked,
        "pause_cpu_ms": round((time.process_time() - started_s) * 1000, 2),
        "bytes_per_pod": round((resident_mb() - before_mb) * 2**20 / options.pods),
        "take_in_cpu_us_per_pod": round(took_s / options.pods * 1e6, 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
