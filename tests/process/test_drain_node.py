"""``conclave drain NODE --evict`` on a running mesh: pods leave for room that was found before, within their budget."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT, Mesh
from tests.process.test_rebalance import RESERVATIONS, WEB, add_nodes, four_running, listed

pytestmark = [pytest.mark.process, pytest.mark.etcd]

BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1},
}


async def drain(mesh: Mesh, *arguments: str) -> tuple[int, str]:
    """(exit code, what it said)."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "drain", "--evict", "--kubeconfig", str(mesh.kubeconfig), *arguments,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_a_node_is_drained_to_room_that_was_found_before(tmp_path: Path) -> None:
    definitions = [ROOT / "k8s/base/reservations-crd.yaml"]
    async with Mesh(
        tmp_path, coordinators=1, agents=1, binders=1, twin_flags=["--simulate"], kinds=definitions
    ) as mesh:
        await add_nodes(mesh)
        await mesh.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", BUDGET)
        await mesh.create("/apis/apps/v1/namespaces/default/deployments", WEB)
        assert len(await four_running(mesh)) == 2

        code, out = await drain(mesh, "node-0", "--dry-run")
        assert code == 0, out
        assert "would leave to node-1 (budget web)" in out
        code, out = await drain(mesh, "node-0")
        assert code == 0, out
        assert "node-0: drained, 2 pods left it" in out
        assert await four_running(mesh) == {"node-1"}
        assert {one["status"].get("phase") for one in await listed(mesh, RESERVATIONS)} == {"Succeeded"}

        code, out = await drain(mesh, "node-1", "node-77")
        assert code == 2, out
        assert "cordon" not in out
