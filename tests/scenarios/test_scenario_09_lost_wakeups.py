"""Scenario 9: pods that wait for different things; each thing happens once, with no other event, and wakes its own.

Peers fail it with pods that pend for ever (kubernetes#102790, koordinator#2389). The same with watches that the API
server cuts and answers late, and with the leader gone in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.world import MERGE, NODES, PODS, World, length, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

EACH = int(length(short=3, full=20))
WAKE_S = 5.0
CLAIMS, VOLUMES, CLASSES = (
    "/api/v1/namespaces/default/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
)
Step = Callable[[World], Awaitable[None]]


async def cpu_freed(cluster: World) -> None:
    await cluster.delete_pod("filler")


async def taint_gone(cluster: World) -> None:
    await cluster.patch_node("tainted", {"spec": {"taints": None}})


async def node_labelled(cluster: World) -> None:
    await cluster.patch_node("labelled", {"metadata": {"labels": {"disk": "ssd"}}})


async def peer_started(cluster: World) -> None:
    await cluster.add_pod("peer", cpu="10m", labels={"app": "peer"}, nodeSelector={"role": "peers"})


async def gates_removed(cluster: World) -> None:
    for number in range(EACH):
        await cluster.call("PATCH", f"{PODS}/gate-{number}", {"spec": {"schedulingGates": None}}, MERGE)


async def claims_made(cluster: World) -> None:
    for number in range(EACH):
        volume = {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "static",
            "claimRef": {"namespace": "default", "name": f"claim-{number}"}, "hostPath": {"path": "/x"},
        }  # fmt: skip
        await cluster.create(VOLUMES, "PersistentVolume", f"volume-{number}", spec=volume)
        claim = {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "static", "volumeName": f"volume-{number}",
        }  # fmt: skip
        bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        await cluster.create(CLAIMS, "PersistentVolumeClaim", f"claim-{number}", metadata=bound, spec=claim)


def near(app: str) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


CAUSES: dict[str, tuple[dict[str, Any], Step, str]] = {
    "cpu": ({"cpu": "1", "nodeSelector": {"role": "full"}}, cpu_freed, "Insufficient cpu"),
    "taint": ({"nodeSelector": {"role": "tainted"}}, taint_gone, "untolerated taint"),
    "label": ({"nodeSelector": {"disk": "ssd"}}, node_labelled, "didn't match Pod's node affinity/selector"),
    "peer": (near("peer"), peer_started, "didn't match pod affinity rules"),
    "gate": ({"schedulingGates": [{"name": "wait"}]}, gates_removed, ""),
    "claim": ({}, claims_made, "persistentvolumeclaim"),
}
"""Per cause: what the pods ask for, what resolves it, and what they are told meanwhile ("" for gated ones)."""


def claim_of(cause: str, number: int) -> dict[str, Any]:
    if cause != "claim":
        return {}
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": f"claim-{number}"}}]}


async def fill(cluster: World, causes: list[str]) -> None:
    """Nodes for each cause, and pods that wait for it and have been told so."""
    await cluster.add_node("full", labels={"role": "full"}, cpu=str(EACH))
    await cluster.add_node("tainted", labels={"role": "tainted"})
    await cluster.patch_node("tainted", {"spec": {"taints": [{"key": "closed", "effect": "NoSchedule"}]}})
    await cluster.add_node("labelled")
    await cluster.add_node("peers", labels={"role": "peers"})
    await cluster.add_pod("filler", cpu=str(EACH), nodeSelector={"role": "full"})
    await cluster.until(lambda c: c.bound("filler"), within_s=20, what="the node is full")
    for cause in causes:
        wants, _, _ = CAUSES[cause]
        for number in range(EACH):
            await cluster.add_pod(f"{cause}-{number}", **{"cpu": "10m", **wants, **claim_of(cause, number)})

    def told(c: World) -> bool:
        return all(
            CAUSES[cause][2] in c.told(f"{cause}-{n}") or cause == "gate" for cause in causes for n in range(EACH)
        )

    await cluster.until(
        lambda c: told(c) and all(c.told(f"{cause}-{EACH - 1}") for cause in causes if cause != "gate"),
        within_s=30, what="each pod is told its cause",
    )  # fmt: skip


async def resolve(cluster: World, causes: list[str]) -> None:
    for cause in causes:
        others = [name for name in cluster.pods if not cluster.bound(name) and not name.startswith(cause)]
        await CAUSES[cause][1](cluster)
        mine = [f"{cause}-{number}" for number in range(EACH)]
        await cluster.until(lambda c, mine=mine: c.bound(*mine), within_s=WAKE_S, what=f"{cause} wakes its pods")
        assert not [name for name in others if cluster.bound(name)], "pods were bound whose cause still stands"


@pytest.mark.parametrize("cause", CAUSES)
async def test_each_event_wakes_exactly_those_that_waited_for_it(tmp_path: Path, cause: str) -> None:
    async with world(tmp_path, agents=2, coordinators=1, binders=1) as cluster:
        await fill(cluster, [cause])
        await asyncio.sleep(length(short=1.5, full=12))  # past the first backoff: waking is the event's doing
        await resolve(cluster, [cause])


async def test_no_wake_up_is_lost_when_the_leader_dies_and_watches_are_cut(tmp_path: Path) -> None:
    causes = ["cpu", "taint", "label"]
    async with world(tmp_path, agents=2) as cluster:
        await fill(cluster, causes)
        cluster.mesh.kill(await cluster.mesh.leader())
        await cluster.faults({"kind": "error", "path": "watch", "probability": 0.5})
        for cause in causes:
            await CAUSES[cause][1](cluster)
        names = [f"{cause}-{number}" for cause in causes for number in range(EACH)]
        await cluster.until(lambda c: c.bound(*names), within_s=15, what="all after the takeover")


async def test_waiting_pods_are_not_tried_again_and_again(tmp_path: Path) -> None:
    """Events that cannot help a pod cost it nothing: its condition is written once."""
    async with world(tmp_path, agents=1, coordinators=1, binders=1) as cluster:
        await fill(cluster, ["cpu"])
        for number in range(10):
            await cluster.call("PATCH", f"{NODES}/labelled", {"metadata": {"labels": {"beat": str(number)}}}, MERGE)
            await cluster.add_pod(f"plain-{number}", cpu="10m", nodeSelector={"role": "peers"})
        await cluster.until(lambda c: len(c.bound_names("plain")) == 10, within_s=20, what="others go on")
    writes = [e for e in cluster.history if e.name == "cpu-0" and e.verb == "patch"]
    assert len(writes) <= 1
