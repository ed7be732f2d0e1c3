"""``conclave rebalance`` on a real API server: controllers make the replacements, kubelets (hollow ones) run them."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.manifests.rendering import ROOT
from tests.real.conftest import RunningPlane, mesh_of
from tests.real.scene import PATIENCE_S, SLOT, Json, Scene
from tests.real.test_reservations import KIND

REPLICAS = 4


async def rebalance(plane: RunningPlane, *arguments: str) -> tuple[int, str]:
    """(exit code, what it said)."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "rebalance", "--kubeconfig", str(plane.kubeconfig), *arguments,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(2 * PATIENCE_S):
        out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def ready_on(scene: Scene) -> list[str]:
    """The nodes of the workload's pods, once all of them are Ready."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            items = (await scene.call("GET", f"{scene.path}/pods"))["items"]
            nodes = [one["spec"]["nodeName"] for one in items if _ready(one)]
            if len(nodes) == len(items) == REPLICAS:
                return nodes
            await asyncio.sleep(0.2)


def _ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", ())
    return "deletionTimestamp" not in pod["metadata"] and any(
        one["type"] == "Ready" and one["status"] == "True" for one in conditions
    )


async def test_a_node_is_emptied_within_a_budget_and_a_second_run_moves_nobody(
    plane: RunningPlane, tmp_path: Path
) -> None:
    plane.kubectl("apply", "--server-side", "-f", str(KIND))
    plane.kubectl("wait", "--for=condition=Established", "crd/reservations.conclave.io", "--timeout=60s")
    with mesh_of(plane, tmp_path, "--agents", "1"):
        async with Scene(plane, "rebalance") as scene:
            nodes = {await scene.node(name, slots=REPLICAS) for name in "ab"}
            amounts = {SLOT: "1"}
            container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
            labels = {"matchLabels": {"app": "web"}}
            template = {
                "metadata": {"labels": labels["matchLabels"]},
                "spec": {
                    "schedulerName": "conclave", "nodeSelector": {"scene": scene.name}, "containers": [container],
                },
            }  # fmt: skip
            budget = {"metadata": {"name": "web"}, "spec": {"maxUnavailable": 1, "selector": labels}}
            await scene.call("POST", f"/apis/policy/v1/namespaces/{scene.name}/poddisruptionbudgets", budget)
            spec = {"replicas": REPLICAS, "selector": labels, "template": template}
            path = f"/apis/apps/v1/namespaces/{scene.name}/deployments"
            await scene.call("POST", path, {"metadata": {"name": "web"}, "spec": spec})
            assert set(await ready_on(scene)) == nodes
            wait = "--for=jsonpath={.status.disruptionsAllowed}=1"  # its controller counts
            plane.kubectl("wait", "-n", scene.name, wait, "pdb/web", "--timeout=100s")

            code, told = await rebalance(plane, "--goal", "empty-nodes", "-n", scene.name)

            assert code == 0, told
            assert "2 of 2 moves made" in told
            assert len(set(await ready_on(scene))) == 1
            reservations = f"/apis/conclave.io/v1alpha1/namespaces/{scene.name}/reservations"
            left = (await scene.call("GET", reservations))["items"]
            assert {one["status"]["phase"] for one in left} == {"Succeeded"}
            code, told = await rebalance(plane, "--goal", "empty-nodes", "-n", scene.name, "--dry-run")
            assert (code, "no moves" in told) == (0, True), told
            await scene.call("DELETE", f"{path}/web", {"propagationPolicy": "Foreground"})
