"""The twin's ``metrics.k8s.io``, read by our own client: what simulated pods use; not there where none are played."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from lab.traces.workload import node_json, pod_json
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.errors import KubeRejected
from shared.kube.nodes.node_metrics import NodeMetric
from shared.kube.resources import NODES, PODS
from shared.ports import BindRequest
from tests.patience import PATIENCE_S
from tests.process.twin_process import running_twin
from twin.model.usage import USAGE_ANNOTATION

pytestmark = pytest.mark.process

CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "110"}
PROFILE = '{"u":[[0,300,41943040,0,0]]}'


@contextlib.asynccontextmanager
async def client_of(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    client = KubeClient(await KubeConfig.load(kubeconfig))
    try:
        yield client
    finally:
        await client.close()


async def test_a_running_pods_use_shows_and_an_idle_node_uses_nothing(tmp_path: Path) -> None:
    with running_twin(tmp_path, "--simulate", "--speed", "10") as twin:
        async with client_of(twin.kubeconfig) as client:
            for name in ("worker-1", "worker-2"):
                await client.create(NODES, namespace="", body=node_json(name, CAPACITY))
            pod = pod_json("p", {"cpu": "100m"}, annotations={USAGE_ANNOTATION: PROFILE})
            await client.create(PODS, namespace="default", body=pod)
            seen = await client.get(PODS, namespace="default", name="p")
            assert seen is not None
            meta = seen.metadata
            await client.bind(BindRequest("default", "p", meta.uid, meta.resource_version, "worker-1"))
            found = await until_used(client, "worker-1")
            assert (found["worker-1"].cpu_millis, found["worker-1"].memory_bytes) == (300, 41943040)
            assert (found["worker-2"].cpu_millis, found["worker-2"].memory_bytes) == (0, 0)


async def until_used(client: KubeClient, node: str) -> dict[str, NodeMetric]:
    """The metrics once the node uses something: its pod has started."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            metrics: Sequence[NodeMetric] = await client.node_metrics()
            found = {metric.node: metric for metric in metrics}
            if node in found and found[node].cpu_millis:
                return found
            await asyncio.sleep(0.05)


async def test_a_twin_that_plays_no_nodes_serves_no_metrics(tmp_path: Path) -> None:
    with running_twin(tmp_path) as twin:
        async with client_of(twin.kubeconfig) as client:
            with pytest.raises(KubeRejected) as refused:
                await client.node_metrics()
            assert refused.value.status == 404
