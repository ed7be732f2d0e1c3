"""Whoever moves pods is killed at each of its steps: nobody is lost, no room stays kept, no node stays marked.

One mesh. ``conclave rebalance`` is run and killed at each failpoint in turn, then a rebalancer after the other is, whom
an operator has led through shadow and canary; the last one ends what all began.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.rbac_rules import grants, mismatches
from tests.manifests.rendering import NAMESPACE
from tests.patience import PATIENCE_S
from tests.process.fork_server import CLI, fork_server
from tests.process.mesh import ROOT, Mesh
from tests.process.test_rbac_of_a_run import OPEN, account_kubeconfig, asked_in
from tests.process.test_rebalance import RESERVATIONS, WEB, add_nodes, listed
from tests.scenarios.world import World

pytestmark = [pytest.mark.process, pytest.mark.etcd]

SECRET = "a-token-for-this-test"
POINTS = ("before_move_batch", "after_move_reserve", "before_move_evict", "after_move_evict", "after_move_taken")
REPLICAS = 12
CONFIG = "/api/v1/namespaces/kube-system/configmaps/conclave-rebalance"
RBAC = ROOT / "k8s/components/rebalancer/rbac.yaml"
PLACES = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
}


class Watcher:
    """Who asks what stands, what is kept, and what the rebalancer tells."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.url = mesh.services["coordinator-0"].admin_url

    async def until(self, reached: Any, what: str) -> None:
        """(Several objects are asked: there is nothing to await but time.)"""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    if await reached():
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"not {what}: {await self.rest('GET', '/v1/rebalance')}") from None

    async def rest(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {SECRET}"}
        async with self.mesh.session.request(method, self.url + path, json=body, headers=headers) as answer:
            return await answer.json()

    async def nodes(self) -> list[str]:
        """Of the pods that run; each of the workload's, once all do."""
        pods = [pod for pod in await self.mesh.pods() if not pod["metadata"].get("deletionTimestamp")]
        return [pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running"]

    async def all_run(self) -> bool:
        return len(await self.nodes()) == REPLICAS

    async def kept(self) -> list[str]:
        """Reservations that keep room, or would."""
        found = await listed(self.mesh, RESERVATIONS)
        over = ("Succeeded", "Failed", "Expired")
        return [one["metadata"]["name"] for one in found if one.get("status", {}).get("phase") not in over]

    async def marked(self) -> list[str]:
        nodes = await listed(self.mesh, "/api/v1/nodes")
        marks = ("conclave.io/reserved-annotations", "cluster-autoscaler.kubernetes.io/scale-down-disabled")
        return [
            one["metadata"]["name"] for one in nodes if any(m in one["metadata"].get("annotations", {}) for m in marks)
        ]


async def with_its_role(mesh: Mesh) -> tuple[Path, dict[str, set[str]]]:
    """(a kubeconfig of the rebalancer's service account, what that may do)."""
    await mesh.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    documents = list(yaml.safe_load_all(RBAC.read_text()))
    for document in documents:
        for subject in document.get("subjects", ()):
            subject["namespace"] = NAMESPACE
        await mesh.create(PLACES[document["kind"]], document)
    rules = {rule.partition(" [")[0] for rule in grants(documents)["conclave-rebalancer"]}
    return await account_kubeconfig(World(mesh), "rebalancer"), {"conclave-rebalancer": rules}


async def killed_command(mesh: Mesh, point: str) -> None:
    arguments = ["rebalance", "--kubeconfig", str(mesh.kubeconfig), "--goal", "empty-nodes", "--at-once", "1"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "CONCLAVE_FAILPOINT": f"{point}=kill"}
    with (mesh.folder / f"command-{point}.log").open("ab") as log:
        process = await fork_server().start(CLI, arguments, stderr=log.fileno(), environ=environ)
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == -9, (mesh.folder / f"command-{point}.log").read_text()
    process.close()


async def test_killed_at_each_step_nobody_is_lost_and_nothing_stays_kept_or_marked(tmp_path: Path) -> None:
    token = tmp_path / "admin-token"
    token.touch(mode=0o600)
    token.write_text(f"{SECRET} admin ann\n")
    flags = {
        "coordinator": ["--embedded-agent", "--admin-listen", "127.0.0.1:0", "--admin-token-file", str(token)],
        "rebalancer": ["--every-s", "0.3", "--at-once", "1", "--min-pod-age-s", "0", "--max-per-node", "0",
                       "--max-per-workload", "0", "--max-moves", "20", "--max-per-hour", "0"],
    }  # fmt: skip
    requests = tmp_path / "requests.jsonl"
    async with Mesh(
        tmp_path, coordinators=1, agents=0, binders=1, flags=flags,
        twin_flags=["--simulate", "--kubeconfig-scheme", "https", "--requests", str(requests)],
        kinds=[ROOT / "k8s/base/reservations-crd.yaml"],
    ) as mesh:  # fmt: skip
        watcher = Watcher(mesh)
        await add_nodes(mesh, cpu="32")
        web = {**WEB, "spec": {**WEB["spec"], "replicas": REPLICAS}}
        await mesh.create("/apis/apps/v1/namespaces/default/deployments", web)
        await watcher.until(watcher.all_run, "all running")
        assert len(set(await watcher.nodes())) == 2

        async def free() -> bool:
            return not await watcher.kept() and not await watcher.marked()

        for point in POINTS:
            await killed_command(mesh, point)
            await watcher.until(watcher.all_run, f"all running after the command died {point}")
            left = await watcher.kept()
            assert bool(left) is (point in ("after_move_reserve", "before_move_evict")), (point, left)
            for name in left:
                await expire(mesh, name)
            await watcher.until(free, "free of what the command reserved, once its time is over")

        async with mesh.session.delete(mesh.api_url + CONFIG) as answer:  # so that the rebalancer makes one
            assert answer.status == 200, await answer.text()
        account, granted = await with_its_role(mesh)
        flags["rebalancer"] += ["--kubeconfig", str(account)]
        await watcher.rest("PUT", "/v1/rebalance/policy", {"name": "empty-nodes"})
        early = await watcher.rest("POST", "/v1/rebalance/policy/promote", {})
        assert early["code"] == "too_few_windows", early
        for stage in ("canary", "canary", "active"):
            told = await watcher.rest("POST", "/v1/rebalance/policy/promote", {"force": True})
            assert told["stage"] == stage, told
        for number, point in enumerate(POINTS):
            running = await mesh.add("rebalancer", number, {"CONCLAVE_FAILPOINT": f"{point}=kill"})
            async with asyncio.timeout(PATIENCE_S):
                running.wanted = False
                await running.ended.wait()
            assert running.codes == [-9], running.log.read_text()
            await watcher.until(watcher.all_run, f"all running after a rebalancer died {point}")
        assert len(set(await watcher.nodes())) == 2, "there is something left to do"

        await mesh.add("rebalancer", len(POINTS))

        async def emptied() -> bool:
            return await watcher.all_run() and len(set(await watcher.nodes())) == 1

        await watcher.until(emptied, "one node empty")
        await watcher.until(free, "all room given back")

        async def told() -> bool:
            board = await watcher.rest("GET", "/v1/rebalance")
            assert (board["leading"], board["stage"], board["goal"]) == (True, "active", "empty-nodes")
            return any(one["made"] for one in board["rounds"])

        await watcher.until(told, "told what the round has made")
    asked = {name: found for name, found in asked_in(requests).items() if name in granted}
    assert mismatches(asked, granted, everybody=OPEN) == []


async def expire(mesh: Mesh, name: str) -> None:
    """Its time to live has passed."""
    url = f"{mesh.api_url}{RESERVATIONS}/{name}"
    headers = {"Content-Type": "application/merge-patch+json"}
    async with mesh.session.patch(url, json={"spec": {"ttlSeconds": 1}}, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
