"""``conclave rebalance`` on a running mesh: pods of a Deployment are moved to where room was reserved for them."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT, Mesh

pytestmark = [pytest.mark.process, pytest.mark.etcd]

RESERVATIONS = "/apis/conclave.io/v1alpha1/namespaces/default/reservations"
WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 4,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "schedulerName": "conclave",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}],
            },
        },
    },
}


async def rebalance(mesh: Mesh, *arguments: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr)."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "rebalance", "--kubeconfig", str(mesh.kubeconfig), *arguments,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def listed(mesh: Mesh, path: str) -> list[dict[str, Any]]:
    async with mesh.session.get(mesh.api_url + path) as response:
        items: list[dict[str, Any]] = (await response.json())["items"]
        return items


async def four_running(mesh: Mesh) -> set[str]:
    """The nodes of the Deployment's pods, once all four run."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            pods = [pod for pod in await mesh.pods() if not pod["metadata"].get("deletionTimestamp")]
            nodes = [pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running"]
            if len(nodes) == 4:
                return set(nodes)
            await asyncio.sleep(0.05)


async def add_nodes(mesh: Mesh, cpu: str = "8") -> None:
    """Two whose kubelets the twin plays."""
    await mesh.add_nodes(2, cpu=cpu)
    for name in ("node-0", "node-1"):
        patch = {"metadata": {"annotations": {"conclave.io/twin-node": "true"}}}
        headers = {"Content-Type": "application/merge-patch+json"}
        url = f"{mesh.api_url}/api/v1/nodes/{name}"
        async with mesh.session.patch(url, json=patch, headers=headers) as response:
            assert response.status == 200, await response.text()


async def test_nodes_are_emptied_by_moves_to_reserved_room(tmp_path: Path) -> None:
    definitions = [ROOT / "k8s/base/reservations-crd.yaml"]
    async with Mesh(
        tmp_path, coordinators=1, agents=1, binders=1, twin_flags=["--simulate"], kinds=definitions
    ) as mesh:
        await add_nodes(mesh)
        await mesh.create("/apis/apps/v1/namespaces/default/deployments", WEB)
        assert len(await four_running(mesh)) == 2

        code, out, err = await rebalance(mesh, "--goal", "empty-nodes")

        assert code == 0, out + err
        assert "2 of 2 moves made" in err, out + err
        assert len(await four_running(mesh)) == 1
        phases = {one["status"].get("phase") for one in await listed(mesh, RESERVATIONS)}
        assert phases <= {"Succeeded"}
        code, out, err = await rebalance(mesh, "--goal", "empty-nodes", "--dry-run")
        assert code == 0, err
        assert "no moves" in out
