"""Room for units that nobody has room for: KAI's consolidation scene as plans, and a gang of 8 on a running mesh."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.resources import CPU, MEMORY, PODS
from shared.model.units.pod_group import GroupSource, PodGroup
from shared.rebalance.limits import Caps
from shared.rebalance.plan import GoalName, MovePlan
from shared.rebalance.planner import ClusterSituation, PlanRequest, plan
from shared.rebalance.residents import Resident, pending_again
from shared.scheduling.state.cluster_state import ClusterState
from tests.process.mesh import ROOT, Mesh
from tests.process.test_rebalance import WEB

GIB = 1 << 30
GPU = "nvidia.com/gpu"
UNITS, MEMBERS, GPUS = 41, 10, 8
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
FREE = Caps(moves=0, at_once=0, workload_part=1.0)


def consolidation(nodes: int) -> tuple[MovePlan | None, int, float]:
    """(the last plan, moves of all, CPU seconds): on each node one pod of a single GPU is left, and gangs of members
    that take a whole node each come one after the other."""
    state, residents = ClusterState(), list[Resident]()
    for number in range(nodes):
        amounts = {CPU: 64_000, MEMORY: 512 * GIB, PODS: 110, GPU: GPUS}
        state.upsert_node(Node(f"n{number}", allocatable=amounts))
        single = PodClass(((CPU, 1000), (MEMORY, GIB), (GPU, 1)), 1000, GIB)
        pod = Pod(
            f"s{number}", "default", f"s{number}", "", single, scheduler_name="conclave", node_name=f"n{number}",
            workload="default/ReplicaSet:single",
        )  # fmt: skip
        state.observe(pod)
        residents.append(Resident(pod, pending_again(pod), ("apps/v1", "ReplicaSet", "single")))
    whole = PodClass(((CPU, 1000), (MEMORY, GIB), (GPU, GPUS)), 1000, GIB)
    found, moves, begun = None, 0, time.process_time()
    for unit in range(UNITS):
        key = f"default/g{unit}"
        state.pod_groups[key] = PodGroup(key, GroupSource.NATIVE, "default", f"g{unit}", gang=True, min_count=MEMBERS)
        waiting = tuple(
            Pod(f"u{unit}-{one}", "default", f"u{unit}-{one}", "", whole, scheduler_name="conclave", group=key)
            for one in range(MEMBERS)
        )
        found = plan(ClusterSituation(state, tuple(residents), waiting), PlanRequest(GoalName.UNBLOCK, key, FREE), 0.0)
        moves += len(found.moves)
        if found.after:
            return found, moves, time.process_time() - begun
        by_uid = {one.uid: number for number, one in enumerate(residents)}
        for move in found.moves:
            one = residents[by_uid[move.uid]]
            stands = replace(one.pod, node_name=move.target, devices=())
            state.observe(stands)
            residents[by_uid[move.uid]] = replace(one, pod=stands)
        for pod in waiting:
            state.observe(replace(pod, node_name=found.unblocked[pod.key]))
    return found, moves, time.process_time() - begun


async def unblock() -> tuple[float, str]:
    """(seconds from the command to the last of a gang of 8 bound, what the command said): 12 nodes of 4 cores with two
    pods of one core each, members of three, beside two pods of a member's size that came before."""
    with tempfile.TemporaryDirectory() as folder:
        kinds = [ROOT / "k8s/base/reservations-crd.yaml"]
        flags = {"coordinator": ["--embedded-agent"]}
        twin = ["--simulate", "--kubernetes", "1.37"]
        async with Mesh(
            Path(folder), coordinators=1, agents=0, binders=1, twin_flags=twin, flags=flags, kinds=kinds
        ) as mesh:
            await mesh.add_nodes(12, cpu="4", memory="16Gi")
            for number in range(12):
                await patch(mesh, f"/api/v1/nodes/node-{number}", {"conclave.io/twin-node": "true"})
            spec: dict[str, Any] = {**WEB["spec"], "replicas": 24}
            await mesh.create("/apis/apps/v1/namespaces/default/deployments", {**WEB, "spec": spec})
            await until(mesh, lambda pods: sum(pod["status"].get("phase") == "Running" for pod in pods) == 24)
            for number in range(2):
                await mesh.add_pod(f"rival-{number}", cpu="3")
            group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}}
            await mesh.create(GROUPS, {**group, "spec": {"schedulingPolicy": {"gang": {"minCount": 8}}}})
            for number in range(8):
                await mesh.add_pod(f"g-{number}", cpu="3", schedulingGroup={"podGroupName": "g"})
            await until(mesh, lambda pods: all(pod["status"].get("conditions") for pod in members(pods)))
            begun = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "services.cli", "rebalance", "--kubeconfig", str(mesh.kubeconfig),
                "--goal", "unblock", "--unit", "default/g",
                cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            out, _ = await process.communicate()
            told = out.decode().splitlines()
            if process.returncode:
                return float("inf"), "\n".join(told[-6:])
            await until(mesh, lambda pods: all(pod["spec"].get("nodeName") for pod in members(pods)))
            return time.monotonic() - begun, told[-1]


def members(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the gang."""
    return [pod for pod in pods if pod["metadata"]["name"].startswith("g-")]


async def until(mesh: Mesh, reached: Any) -> None:
    """Until the pods are so. ``TimeoutError``: they are not within two minutes."""
    async with asyncio.timeout(120.0):
        while True:
            if reached(await mesh.pods()):
                return
            await asyncio.sleep(0.05)


async def patch(mesh: Mesh, path: str, annotations: dict[str, str]) -> None:
    """Annotate the object."""
    headers = {"Content-Type": "application/merge-patch+json"}
    body = {"metadata": {"annotations": annotations}}
    async with mesh.session.patch(mesh.api_url + path, json=body, headers=headers) as response:
        response.raise_for_status()
