"""Volumes that are made for a pod: the Binding comes after the claim is bound, and one that never is holds up nobody.

The API server's simulator plays the volume controllers. kube-scheduler waits in PreBind; peers that bind first leave a
pod on a node that its volume cannot reach.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.audit.log import LogEntry
from tests.scenarios.invariants import node_of
from tests.scenarios.world import World, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

CLAIMS, CLASSES = "/api/v1/namespaces/default/persistentvolumeclaims", "/apis/storage.k8s.io/v1/storageclasses"
ZONE = "topology.kubernetes.io/zone"
WAIT_S = 4.0


async def add_class(cluster: World, name: str, after: str, **body: Any) -> None:
    await cluster.create(
        CLASSES, "StorageClass", name, api="storage.k8s.io/v1", provisioner="csi.example.com",
        metadata={"annotations": {"conclave.io/twin-provision-s": after}},
        **{"volumeBindingMode": "WaitForFirstConsumer", **body},
    )  # fmt: skip


async def add_claim(cluster: World, name: str, storage_class: str) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await cluster.create(CLAIMS, "PersistentVolumeClaim", name, spec={**spec, "storageClassName": storage_class})


def using(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}


def when(history: list[LogEntry], kind: str, name: str, holds: Any) -> int:
    """The revision at which an object first was so."""
    return min(entry.rv for entry in history if (entry.kind, entry.name) == (kind, name) and holds(entry.object))


async def test_a_pod_is_bound_after_the_claim_that_waited_for_it(tmp_path: Path) -> None:
    async with world(tmp_path, agents=2, coordinators=1, binders=1) as cluster:
        for number in range(3):
            await cluster.add_node(f"n{number}", labels={ZONE: f"z{number}"})
        await add_class(cluster, "quick", "0.2")
        await add_class(cluster, "takes-3-seconds", "3")
        for name, storage_class in (("a", "quick"), ("b", "quick"), ("c", "takes-3-seconds")):
            await add_claim(cluster, name, storage_class)
            await cluster.add_pod(name, **using(name))
        await cluster.until(lambda c: c.bound("a", "b"), within_s=10, what="volumes are made and the pods bound")
        waiting = 'waiting for persistentvolumeclaim(s) "c" to be bound for node n'
        await cluster.until(lambda c: waiting in c.told("c"), within_s=10, what="the third says what it waits for")
        await cluster.until(lambda c: c.bound("c"), within_s=10, what="the third is bound when its volume is there")
    history = cluster.history
    for name in "abc":
        claim = when(history, "PersistentVolumeClaim", name, lambda one: one["status"]["phase"] == "Bound")
        selected = when(
            history, "PersistentVolumeClaim", name,
            lambda one: "volume.kubernetes.io/selected-node" in (one["metadata"].get("annotations") or {}),
        )  # fmt: skip
        assert selected < claim < when(history, "Pod", name, node_of)


async def test_a_volume_that_is_never_made_holds_up_its_own_pod_alone(tmp_path: Path) -> None:
    flags = {"binder": ["--volumes-wait-s", str(WAIT_S)]}
    async with world(tmp_path, agents=2, coordinators=1, binders=1, flags=flags) as cluster:
        await cluster.add_node("n0", cpu="2")
        await add_class(cluster, "hangs", "never")
        await add_claim(cluster, "stuck", "hangs")
        await cluster.add_pod("stuck", cpu="1", **using("stuck"))
        waiting = 'waiting for persistentvolumeclaim(s) "stuck" to be bound for node n0'
        await cluster.until(lambda c: c.told("stuck") == waiting, within_s=10, what="it says what it waits for")
        others = await cluster.add_pods((f"other-{n}" for n in range(10)), cpu="100m")
        await cluster.until(lambda c: c.bound(*others), within_s=5, what="the others go on")
        timed_out = 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
        await cluster.until(lambda c: c.told("stuck") == timed_out, within_s=2 * WAIT_S, what="the wait is over")
        # what it held is free again once it asks for a node no more
        await cluster.delete_pod("stuck")
        await cluster.add_pod("last", cpu="1")
        await cluster.until(lambda c: c.bound("last"), within_s=10, what="the room it waited with is given back")
