"""Both controllers in one process: two of them on a real etcd and the twin's API server, killed, robbed of one key, and
told to stop. Whoever leads next goes on with training jobs and with replicas alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.jobs.domain import JOBS as DOMAIN
from shared.ports import DeleteKey
from shared.wire.keys import Keys
from tests.patience import PATIENCE_S
from tests.process import test_autoscaler_process as scaling
from tests.process.mesh import ROOT, Mesh

pytestmark = [pytest.mark.process, pytest.mark.etcd]

ROLES = ("jobs", "autoscaler")
KEYS = {"jobs": Keys().leader(DOMAIN.name), "autoscaler": Keys().autoscaler_leader}
JOBS = "/apis/conclave.io/v1alpha1/namespaces/default/trainingjobs"
FAST = ("--decide-every-s", "1", "--decide-least-s", "0.1", "--status-every-s", "1", "--autoscale-every-s", "0.3")


class Cluster(scaling.Cluster):
    """What the tests ask of both controllers."""

    async def add_gpus(self) -> None:
        """A node with four."""
        room = {"cpu": "16", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "4"}
        node = {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-0", "annotations": {"conclave.io/twin-node": "true"}},
            "status": {
                "allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]
            },
        }  # fmt: skip
        await self.mesh.create("/api/v1/nodes", node)

    async def train(self, name: str) -> None:
        """A new training job is decided for: it gets pods of its own."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
        container["resources"]["limits"] = container["resources"]["requests"]  # type: ignore[index]
        workers = {"minimum": 1, "maximum": 1, "requested": 1}
        job = {
            "apiVersion": "conclave.io/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"workers": workers, "template": {"spec": {"containers": [container]}}},
        }  # fmt: skip
        await self.mesh.create(JOBS, job)

        async def made() -> bool:
            return any(pod["metadata"]["name"].startswith(f"{name}-") for pod in await self.mesh.pods())

        await self.until(made)

    async def scale(self, wanted: int) -> None:
        """Bounds that leave one number alone: the autoscaler sets it."""
        found = await self.call("GET", f"{scaling.OBJECTS}/graph")
        [target] = found["spec"]["targets"]
        target = {**target, "minReplicas": wanted, "maxReplicas": wanted}
        await self.call("PATCH", f"{scaling.OBJECTS}/graph", {"spec": {"targets": [target]}})
        await self.go()
        await self.until_replicas(wanted)

    async def leads(self, name: str) -> None:
        """Return once the process leads in both roles."""

        async def both() -> bool:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                told: dict[str, Any] = await self.mesh.get(name, "/v1/stats")
                return all(told[role]["leading"] for role in ROLES)
            return False

        await self.until(both)

    async def ended(self, name: str) -> int:
        """The exit code of its first life."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.mesh.services[name].codes:
                await self.mesh.services[name].ended.wait()
        return self.mesh.services[name].codes[0]


@asynccontextmanager
async def controllers(folder: Path) -> AsyncIterator[Cluster]:
    """``controllers-0`` leads in both roles and has work of both kinds, ``controllers-1`` stands by."""
    definitions = (scaling.CRD, ROOT / "k8s/components/jobs/training-jobs-crd.yaml")
    twin = ["--simulate", "--speed", "50", "--kubernetes", "1.37"]
    async with Mesh(folder, coordinators=0, agents=0, binders=0, kinds=definitions, twin_flags=twin) as mesh:
        cluster = Cluster(mesh)
        await cluster.add_gpus()
        await mesh.create(scaling.DEPLOYMENTS, scaling.deployment("front", 2))
        common = ["--etcd", mesh.etcd.endpoint, "--kubeconfig", str(mesh.kubeconfig), "--validate", "true", *FAST]
        await mesh.start("controllers-0", "controllers", [*common, "--id", "controllers-0"])
        await cluster.leads("controllers-0")
        await mesh.start("controllers-1", "controllers", [*common, "--id", "controllers-1"])
        await cluster.until_ready(2)
        await cluster.load("50m")
        await mesh.create(scaling.OBJECTS, scaling.scaler())
        await cluster.scale(3)
        await cluster.train("before")
        yield cluster


async def test_one_killed_is_succeeded_in_both_roles_which_go_on(tmp_path: Path) -> None:
    async with controllers(tmp_path) as cluster:
        mesh = cluster.mesh
        status = await mesh.get("controllers-0", "/v1/status")
        assert (status["leading"], status["jobs"]) == (True, 1)
        assert (status["autoscaler"]["leading"], status["autoscaler"]["objects"]) == (True, 1)
        mesh.services["controllers-0"].may_start.clear()  # else it may be back in time to win one of the two keys
        mesh.kill("controllers-0")
        await cluster.leads("controllers-1")
        await cluster.train("after")
        await cluster.scale(5)
        assert await cluster.ended("controllers-0") == -signal.SIGKILL


@pytest.mark.parametrize("role", ROLES)
async def test_one_that_loses_either_role_ends_and_another_takes_both(tmp_path: Path, role: str) -> None:
    async with controllers(tmp_path) as cluster:
        mesh = cluster.mesh
        mesh.services["controllers-0"].may_start.clear()
        store = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,)))
        try:
            await store.txn([], [DeleteKey(KEYS[role])])
        finally:
            await store.close()
        assert await cluster.ended("controllers-0") == 3
        await cluster.leads("controllers-1")
        await cluster.train("after")
        await cluster.scale(5)


async def test_one_told_to_stop_ends_in_order_and_is_succeeded(tmp_path: Path) -> None:
    async with controllers(tmp_path) as cluster:
        mesh = cluster.mesh
        mesh.services["controllers-0"].may_start.clear()
        mesh.kill("controllers-0", signal.SIGTERM)
        assert await cluster.ended("controllers-0") == 0
        await cluster.leads("controllers-1")
        await cluster.train("after")
        await cluster.scale(4)
