"""A mesh worth looking at, for figures and pictures of the dashboard: nodes of several sizes, in zones and pools, some
with GPUs, two of them unwell; pods that keep coming, and pods that fit nowhere."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.dashboard.tenants import QUEUES_KIND
from lab.traces.workload import node_json, pod_json
from tests.process.mesh import Mesh

TOKEN = "operator-token-for-the-bench"
SIZES = (("16", "64Gi"), ("32", "128Gi"), ("32", "256Gi"), ("64", "256Gi"))
ZONES = ("eu-1a", "eu-1b", "eu-1c")
GPU_EVERY = 10
UNWELL = (("Ready", "False", "KubeletNotReady"), ("MemoryPressure", "True", "KubeletHasInsufficientMemory"))
NAMESPACES = ("vision", "billing", "research")
URGENT = "urgent"
APPS = ("checkout", "search", "images", "ingest", "reports", "mail")
REQUESTS = (("250m", "256Mi"), ("500m", "1Gi"), ("1", "4Gi"), ("2", "4Gi"), ("4", "16Gi"))
AT_ONCE = 16
"""Requests in flight to the twin's API server."""


class DashboardWorld:
    """What runs. ``names`` of pods created so far."""

    def __init__(self, mesh: Mesh, seed: int) -> None:
        self.mesh = mesh
        self.rng = random.Random(seed)
        self.created = 0

    def coordinators(self, leader: str) -> tuple[str, str]:
        """(admin URL of the leader, of a standby)."""
        names = [name for name in self.mesh.services if name.startswith("coordinator")]
        standby = next((name for name in names if name != leader), leader)
        return self.mesh.services[leader].admin_url, self.mesh.services[standby].admin_url

    async def add_nodes(self, count: int) -> None:
        """Nodes of mixed sizes: all ready but the last two."""

        async def add(number: int) -> None:
            cpu, memory = self.rng.choice(SIZES)
            gpus = {"nvidia.com/gpu": "8"} if number % GPU_EVERY == 0 else {}
            labels = {
                "topology.kubernetes.io/zone": ZONES[number % len(ZONES)],
                "node.kubernetes.io/instance-type": "gpu" if gpus else f"general-{cpu}",
            }
            body = node_json(f"node-{number:04d}", {"cpu": cpu, "memory": memory, "pods": "110", **gpus}, labels=labels)
            unwell = number - (count - len(UNWELL))
            if count > GPU_EVERY and unwell >= 0:
                _make_unwell(body, *UNWELL[unwell])
            await self.mesh.create("/api/v1/nodes", body)

        await self._all([partial(add, number) for number in range(count)])

    async def add_misfits(self, count: int) -> None:
        """So many pods of each kind that find no room, or find none soon: for GPUs, for a disk that no node has, for
        more than a node offers; in several namespaces, and some of them urgent."""
        for name in NAMESPACES:
            await self.mesh.create("/api/v1/namespaces", {"metadata": {"name": name}})
        await self.mesh.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": URGENT}, "value": 1000}
        )
        kinds: tuple[tuple[str, str, dict[str, str], dict[str, Any]], ...] = (
            ("vision", "train", {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "4"}, {}),
            ("research", "sweep", {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "8"}, {"priorityClassName": URGENT}),
            ("billing", "ledger", {"cpu": "1", "memory": "4Gi"}, {"nodeSelector": {"disk": "nvme"}}),
            ("research", "fold", {"cpu": "72", "memory": "32Gi"}, {}),
        )
        await self._all([partial(self._misfit, *kind, number) for kind in kinds for number in range(count)])

    async def _misfit(
        self, namespace: str, name: str, requests: dict[str, str], more: dict[str, Any], number: int
    ) -> None:
        body = pod_json(f"{name}-{number:04d}", requests, scheduler_name="conclave", namespace=namespace)
        body["spec"].update(more)
        await self.mesh.create(f"/api/v1/namespaces/{namespace}/pods", body)

    async def add_pods(self, count: int) -> None:
        """Pods of mixed sizes, all at once."""
        await self._all([self._pod] * count)

    @asynccontextmanager
    async def traffic(self, pods_per_s: float, *, batch: int = 0, every: int = 400) -> AsyncIterator[None]:
        """So many pods a second for as long as it is held; after each ``every`` of them ``batch`` at once."""

        async def come() -> None:
            loop = asyncio.get_running_loop()
            due = loop.time()
            for number in itertools.count(1):
                await self._pod()
                if batch and number % every == 0:
                    await self.add_pods(batch)
                due += self.rng.expovariate(pods_per_s)
                await asyncio.sleep(max(0.0, due - loop.time()))

        coming = asyncio.create_task(come())
        try:
            yield
        finally:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await coming

    async def _pod(self) -> None:
        self.created += 1
        number = self.created
        cpu, memory = self.rng.choice(REQUESTS) if number % 400 else ("500", "64Gi")
        body: dict[str, Any] = pod_json(
            f"{self.rng.choice(APPS)}-{number:05d}", {"cpu": cpu, "memory": memory}, scheduler_name="conclave"
        )
        await self.mesh.create("/api/v1/namespaces/default/pods", body)

    async def _all(self, calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def one(call: Callable[[], Awaitable[None]]) -> None:
            async with places:
                await call()

        await asyncio.gather(*(one(call) for call in calls))


def _make_unwell(body: dict[str, Any], condition: str, status: str, reason: str) -> None:
    """A node whose kubelet says so; nobody of the cluster model speaks for it."""
    body["metadata"].pop("annotations")
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    told = {"type": condition, "status": status, "reason": reason}
    body["status"]["conditions"] = [told] if condition == "Ready" else [ready, told]


@asynccontextmanager
async def world(folder: Path, *, nodes: int, seed: int = 1) -> AsyncIterator[DashboardWorld]:
    """Two coordinators with an admin API, four agents, two binders, so many nodes; Queues and pod groups are served."""
    tokens = folder / "admin-tokens"
    tokens.write_text(f"{TOKEN} operator olga\n")
    tokens.chmod(0o600)
    admin = ["--admin-listen", "127.0.0.1:0", "--admin-token-file", str(tokens), "--rollout-window-s", "20"]
    async with Mesh(
        folder, coordinators=2, agents=4, binders=2, flags={"coordinator": admin},
        twin_flags=["--simulate", "--kubernetes", "1.37"], kinds=[QUEUES_KIND],
    ) as mesh:  # fmt: skip
        found = DashboardWorld(mesh, seed)
        await found.add_nodes(nodes)
        yield found
