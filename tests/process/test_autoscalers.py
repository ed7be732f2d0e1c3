"""What real processes tell of pods that wait, on the twin, and what autoscalers would make of it by their own rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.autoscalers import cluster_autoscaler_acts, condition, karpenter_acts
from tests.scenarios.groups.corner import priority_classes
from tests.scenarios.world import MERGE, PODS, QUEUES, QUEUES_KIND, Json, World, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

UNSCHEDULABLE, NOT_READY = "Unschedulable", "NotReadyForScheduling"
WITHIN_S = 15.0
HELPED = {"large": UNSCHEDULABLE, "whole-0": UNSCHEDULABLE, "whole-1": UNSCHEDULABLE, "patient": UNSCHEDULABLE}
"""Pods that a further node would help; ``patient``: within its preemption delay."""
OTHERS = {
    "urgent": UNSCHEDULABLE, "short-0": NOT_READY, "orphan": NOT_READY, "held": NOT_READY, "unclaimed": NOT_READY,
    "gated": "SchedulingGated",
}  # fmt: skip
"""Pods that none would: of them only ``urgent`` says the word, and is nominated."""


async def group(cluster: World, name: str, least: int) -> None:
    version = cluster.groups_api.rpartition("/")[2]
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
    path = f"{cluster.groups_api}/namespaces/default/podgroups"
    await cluster.create(path, "PodGroup", name, api=f"scheduling.k8s.io/{version}", spec=spec)


async def waiting_pods(cluster: World) -> None:
    """One of each kind, on two full nodes."""
    await priority_classes(cluster, low=10, patient=500, urgent=1000)
    await cluster.create(QUEUES, "Queue", "small", api="conclave.io/v1alpha1", spec={"maximum": {"cpu": "50m"}})
    for number in range(2):
        await cluster.add_node(f"n{number}")
        on: Json = {"nodeSelector": {"kubernetes.io/hostname": f"n{number}"}}
        await cluster.add_pod(f"low-{number}", cpu="3500m", priorityClassName="low", **on)
    await cluster.until(lambda c: c.bound("low-0", "low-1"), within_s=WITHIN_S, what="the nodes are full")
    linger = {"metadata": {"finalizers": ["conclave.test/linger"]}}  # the victim is long in leaving
    await cluster.call("PATCH", f"{PODS}/low-0", linger, MERGE)
    first: Any = {"nodeSelector": {"kubernetes.io/hostname": "n0"}}
    await cluster.add_pod("urgent", cpu="2", priorityClassName="urgent", **first)
    await cluster.add_pod(
        "patient", cpu="2", priorityClassName="patient", nodeSelector={"kubernetes.io/hostname": "n1"}
    )
    await cluster.add_pod("large", cpu="100")
    for name, least, count in (("whole", 2, 2), ("short", 2, 1)):
        await group(cluster, name, least)
        for number in range(count):
            await cluster.add_pod(f"{name}-{number}", cpu="3", schedulingGroup={"podGroupName": name})
    await cluster.add_pod("orphan", schedulingGroup={"podGroupName": "none"})
    await cluster.add_pod("held", labels={"conclave.io/queue": "small"})
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "none"}}
    await cluster.add_pod("unclaimed", volumes=[volume])
    await cluster.add_pod("gated", schedulingGates=[{"name": "example.com/wait"}])


def told(pod: Json) -> str:
    return str(condition(pod).get("reason") or "")


async def test_waiting_pods_buy_nodes_only_where_one_more_would_help(tmp_path: Path) -> None:
    flags = {"coordinator": ["--preemption-delay", "500=3600, 1000=0"]}
    async with world(
        tmp_path, agents=2, flags=flags, kinds=[QUEUES_KIND], twin_flags=["--simulate", "--kubernetes", "1.37"]
    ) as cluster:
        await waiting_pods(cluster)
        wanted = {**HELPED, **OTHERS}

        def reached(seen: World) -> bool:
            shown = {name: told(seen.pods[name]) for name in wanted if name in seen.pods}
            return shown == wanted and bool(seen.pods["urgent"]["status"].get("nominatedNodeName"))

        await cluster.until(reached, within_s=WITHIN_S, what=f"pods are told {wanted}")
        pods, nodes = dict(cluster.pods), ("n0", "n1")
        bought = {name for name in wanted if cluster_autoscaler_acts(pods[name], nodes=nodes)}
        assert bought == {name for name in wanted if karpenter_acts(pods[name])} == HELPED.keys()
    changes: dict[str, list[str]] = {name: [] for name in wanted}
    for entry in cluster.history:
        if entry.kind == "Pod" and entry.name in wanted:
            assert not (entry.name in OTHERS and karpenter_acts(entry.object)), f"{entry.name} bought a node: {entry}"
            if (reason := told(entry.object)) != (changes[entry.name] or [""])[-1]:
                changes[entry.name].append(reason)
    assert changes == {name: [reason] for name, reason in wanted.items()}, "the reason never changed"
