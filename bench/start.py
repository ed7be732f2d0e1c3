"""How long a mesh takes from its start to the first Binding, where nodes and pods wait for it already.

    .venv/bin/python -m bench.start --times 5 --nodes 1000 --pods 200

An etcd and the twin run and hold the cluster; then one coordinator, one agent and one binder are started at once.
Prints medians of the seconds from there: until each is ready, until the first and the last pod is bound; of CPU and
memory (RSS) of each process when the last is bound. The machine's load stands beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.stand.ending import run_to_its_end
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.kube.resources import PODS, Upserted
from tests.process.mesh import Mesh

PATIENCE_S = 120.0
SERVICES = ("coordinator", "agent", "binder")
AT_ONCE = 32


async def bound_times(client: KubeClient, revision: str, count: int) -> list[float]:
    """When each of ``count`` pods was seen on a node (monotonic seconds)."""
    seen: dict[str, float] = {}
    async with contextlib.aclosing(client.watch(PODS, resource_version=revision)) as events:
        async for event in events:
            if isinstance(event, Upserted) and event.object.spec.node_name:
                seen.setdefault(event.object.metadata.uid, time.monotonic())
            if len(seen) == count:
                return sorted(seen.values())
    raise AssertionError


async def measure(nodes: int, pods: int) -> dict[str, float]:
    """One start."""
    found: dict[str, float] = {"load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder:
        async with Mesh(Path(folder), coordinators=0, agents=0, binders=0) as mesh:
            await mesh.add_nodes(nodes, cpu="64", memory="256Gi", pods="500")
            gate = asyncio.Semaphore(AT_ONCE)

            async def create(name: str) -> None:
                async with gate:
                    await mesh.add_pod(name)

            await asyncio.gather(*(create(f"p{number}") for number in range(pods)))
            client = KubeClient(await KubeConfig.load(mesh.kubeconfig))
            revision = (await client.list(PODS)).resource_version
            watching = asyncio.create_task(bound_times(client, revision, pods))
            began = time.monotonic()

            async def start(service: str) -> None:
                await mesh.add(service, 0)
                found[f"{service} ready s"] = time.monotonic() - began

            await asyncio.gather(*(start(service) for service in SERVICES))
            async with asyncio.timeout(PATIENCE_S):
                times = await watching
            found["first bound s"], found["last bound s"] = times[0] - began, times[-1] - began
            for service in SERVICES:
                running = mesh.services[f"{service}-0"].process
                assert running is not None
                process = psutil.Process(running.pid)
                found[f"{service} CPU s"] = sum(process.cpu_times()[:4])
                found[f"{service} RSS MB"] = process.memory_info().rss / 1e6
            await client.close()
    return found


def main() -> int:
    """Read the arguments, start some times, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=200)
    options = parser.parse_args()
    runs = [run_to_its_end(measure(options.nodes, options.pods)) for _ in range(options.times)]
    for name in runs[0]:
        values = sorted(run[name] for run in runs)
        print(f"{name:<20} {statistics.median(values):8.2f}  ({values[0]:.2f}..{values[-1]:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
