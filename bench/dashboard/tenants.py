"""Queues and gangs for pictures of the dashboard: a tree of tenants, gangs of theirs in every phase."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.traces.workload import pod_json
from tests.process.mesh import Mesh

QUEUES_KIND = Path(__file__).parents[2] / "k8s" / "base" / "queues-crd.yaml"
QUEUES = "/apis/conclave.io/v1alpha1/queues"
GROUPS = "scheduling.k8s.io/v1beta1"
GPU = "nvidia.com/gpu"
KEPT = {"conclave.io/preemptible": "false"}
"""The urgent pods of the world would evict them."""

TREE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("research", {"guaranteed": {"cpu": "800", GPU: "192"}, "maximum": {GPU: "256"}}),
    ("vision", {"parent": "research", "weight": 2, "guaranteed": {GPU: "96"}, "borrowingLimit": {GPU: "16"}}),
    ("speech", {"parent": "research", "guaranteed": {GPU: "64"}, "lendingLimit": {GPU: "32"},
                "reclaim": {"enabled": True, "delaySeconds": 3600}}),
    ("robots", {"parent": "research", "guaranteed": {"cpu": "200"}}),
    ("billing", {"guaranteed": {"cpu": "400"}, "maximum": {"cpu": "600"}, "order": "FIFO"}),
)  # fmt: skip

Gang = tuple[str, str, int, int, dict[str, str]]

GANGS: tuple[Gang, ...] = (
    ("vision", "train-resnet", 12, 12, {"cpu": "8", "memory": "32Gi", GPU: "8"}),
    ("vision", "finetune-clip", 8, 6, {"cpu": "4", "memory": "16Gi", GPU: "4"}),
    ("speech", "asr-large", 8, 8, {"cpu": "4", "memory": "16Gi", GPU: "8"}),
    ("robots", "sim-fleet", 10, 8, {"cpu": "2", "memory": "4Gi"}),
    ("robots", "grasping", 5, 8, {"cpu": "2", "memory": "4Gi"}),
    ("billing", "month-end", 6, 6, {"cpu": "4", "memory": "8Gi"}),
)
"""Queue, name, members that exist, the minimum, what each asks for."""

LATE: tuple[Gang, ...] = (("speech", "tts-voices", 24, 20, {"cpu": "4", "memory": "16Gi", GPU: "2"}),)
"""The same, for when no GPU is left."""


async def add_tenants(mesh: Mesh) -> None:
    """The tree, and the first gangs."""
    for name, spec in TREE:
        await mesh.create(
            QUEUES, {"apiVersion": "conclave.io/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        )
    await add_gangs(mesh, GANGS)


async def add_gangs(mesh: Mesh, gangs: Sequence[Gang]) -> None:
    """One after the other."""
    for queue, name, size, minimum, requests in gangs:
        labels = {"conclave.io/queue": queue}
        group = {
            "apiVersion": GROUPS, "kind": "PodGroup", "metadata": {"name": name, "labels": labels},
            "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
        }  # fmt: skip
        await mesh.create(f"/apis/{GROUPS}/namespaces/default/podgroups", group)
        await asyncio.gather(*(_member(mesh, name, number, requests, labels) for number in range(size)))


async def _member(mesh: Mesh, group: str, number: int, requests: dict[str, str], labels: dict[str, str]) -> None:
    body = pod_json(
        f"{group}-{number}", requests, scheduler_name="conclave", labels=labels, annotations=KEPT,
    )  # fmt: skip
    body["spec"]["schedulingGroup"] = {"podGroupName": group}
    await mesh.create("/api/v1/namespaces/default/pods", body)
