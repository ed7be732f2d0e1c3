"""Scenario 12: mixed machines whose kubelets let pods on by zones. None refuses a pod, whether exporters are in time or
late, and though a binder is killed meanwhile.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.world import MERGE, World, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

MACHINES = """
nodes:
- {{count: 2, name: "single-{{i}}", cpu: "16", memory: 64Gi, zones: {{count: 2, late_s: {late}}}}}
- {{count: 2, name: "strict-{{i}}", cpu: "16", memory: 64Gi, zones: {{count: 4, policy: restricted, late_s: {late}}}}}
- {{count: 1, name: "pods-{{i}}", cpu: "16", memory: 64Gi, zones: {{count: 2, scope: pod, late_s: {late}}}}}
- {{count: 1, name: "plain-{{i}}", cpu: "4", memory: 64Gi}}
"""


def flags(folder: Path, late: float) -> list[str]:
    file = folder / "machines.yaml"
    file.write_text(MACHINES.format(late=late))
    return ["--simulate", "--cluster", str(file)]


def aligned(cpu: int, memory: str = "1Gi") -> dict[str, Any]:
    amounts = {"cpu": str(cpu), "memory": memory}
    return {"containers": [{"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]}


def refused(cluster: World) -> list[str]:
    return [name for name, pod in cluster.pods.items() if (pod.get("status") or {}).get("reason")]


TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


def placed(cluster: World, names: set[str]) -> bool:
    return cluster.bound(*names)


@pytest.mark.parametrize("agents", [1, 3])
async def test_no_kubelet_refuses_a_pod_though_the_binder_is_killed(tmp_path: Path, agents: int) -> None:
    async with world(tmp_path, agents=agents, binders=2, twin_flags=flags(tmp_path, 0.0)) as cluster:
        first = await cluster.add_pods([f"a-{number}" for number in range(6)], **aligned(5))
        await cluster.until(lambda c: placed(c, first), within_s=20, what="the first pods have zones")
        cluster.mesh.kill(await cluster.mesh.leader("binder"))
        second = await cluster.add_pods([f"b-{number}" for number in range(10)], **aligned(3))
        await cluster.until(lambda c: placed(c, second), within_s=30, what="the next pods have zones")
        assert refused(cluster) == []


async def test_pods_find_their_zones_though_every_exporter_is_late(tmp_path: Path) -> None:
    async with world(tmp_path, agents=2, twin_flags=flags(tmp_path, 3600.0)) as cluster:
        first = await cluster.add_pods([f"a-{number}" for number in range(6)], **aligned(5))
        await cluster.until(lambda c: placed(c, first), within_s=20, what="the first pods have zones")
        second = await cluster.add_pods([f"b-{number}" for number in range(8)], **aligned(3))
        await cluster.until(lambda c: placed(c, second), within_s=30, what="the next pods have zones")
        assert refused(cluster) == []


async def test_a_pod_that_no_zone_has_room_for_is_told_so_and_goes_when_one_has(tmp_path: Path) -> None:
    file = tmp_path / "machines.yaml"
    file.write_text('nodes: [{name: n, cpu: "16", memory: 64Gi, zones: {count: 2}}]')
    async with world(tmp_path, agents=1, twin_flags=["--simulate", "--cluster", str(file)]) as cluster:
        first = await cluster.add_pods(["a", "b"], **aligned(5))
        await cluster.until(lambda c: placed(c, first), within_s=20, what="each is in a zone")
        await cluster.add_pod("large", **aligned(6))
        await cluster.until(
            lambda c: "1 cannot align container" in c.told("large"), within_s=20, what="6 CPUs are free, in no one zone"
        )
        await cluster.delete_pod("a")
        await cluster.until(lambda c: c.bound("large"), within_s=20, what="a zone is free again")
        assert refused(cluster) == []


async def test_a_kubelet_that_refuses_all_the_same_is_not_tried_again_until_its_object_changes(tmp_path: Path) -> None:
    """The exporter lies: one large zone where there are two."""
    file = tmp_path / "machines.yaml"
    file.write_text('nodes: [{name: n, cpu: "16", memory: 64Gi, zones: {count: 2, late_s: 36000}}]')
    async with world(tmp_path, agents=1, twin_flags=["--simulate", "--cluster", str(file)]) as cluster:
        truth = await cluster.call("GET", f"{TOPOLOGIES}/n")
        lie = deepcopy(truth["zones"][0])
        for resource in lie["resources"]:
            resource.update(dict.fromkeys(("capacity", "allocatable", "available"), str(2 * int(resource["capacity"]))))
        await cluster.call("PATCH", f"{TOPOLOGIES}/n", {"zones": [lie]}, MERGE)
        await cluster.add_pod("first", **aligned(12))
        await cluster.until(lambda c: refused(c) == ["first"], within_s=20, what="the kubelet refuses it")
        await cluster.add_pod("second", **aligned(12))
        told = "its kubelet refused a pod like this one (TopologyAffinityError)"
        await cluster.until(lambda c: told in c.told("second"), within_s=20, what="the node is not tried again")
        await cluster.add_pod("other", **aligned(2))
        await cluster.until(lambda c: c.bound("other"), within_s=20, what="a pod of another kind is tried there")
        assert refused(cluster) == ["first"]
        await cluster.call("PATCH", f"{TOPOLOGIES}/n", {"zones": truth["zones"]}, MERGE)
        await cluster.add_pod("third", **aligned(12))
        await cluster.until(
            lambda c: "cannot align container" in c.told("third"), within_s=20, what="its zones decide again"
        )


KATALYST = """
nodes:
- {count: 2, name: "numeric-{i}", cpu: "16", memory: 64Gi, zones: {count: 2, policy: numeric, exporter: katalyst}}
- {name: large, cpu: "32", memory: 128Gi, zones: {count: 4, policy: numeric, exporter: katalyst, late_s: 5}}
"""


def dedicated(cpu: int, *, exclusive: bool = False) -> dict[str, Any]:
    """A pod of dedicated cores, bound to zones."""
    enhancement = {"numa_binding": "true"} | ({"numa_exclusive": "true"} if exclusive else {})
    annotations = {
        "katalyst.kubewharf.io/qos_level": "dedicated_cores",
        "katalyst.kubewharf.io/memory_enhancement": json.dumps(enhancement),
    }
    return {"annotations": annotations, **aligned(cpu)}


async def test_no_agent_of_katalyst_refuses_a_pod_of_dedicated_cores_though_leaders_are_killed(tmp_path: Path) -> None:
    """8 zones of 8 CPUs: four pods have one alone, one has two; two hold a pod of 5 each, and one is left for the last
    that waits for more than that."""
    file = tmp_path / "machines.yaml"
    file.write_text(KATALYST)
    flags = ["--simulate", "--cluster", str(file)]
    async with world(tmp_path, agents=2, binders=2, coordinators=2, twin_flags=flags) as cluster:
        first = await cluster.add_pods(["alone-0", "alone-1", "alone-2", "alone-3"], **dedicated(2, exclusive=True))
        await cluster.until(lambda c: placed(c, first), within_s=20, what="each has a zone alone")
        cluster.mesh.kill(await cluster.mesh.leader("binder"))
        second = await cluster.add_pods(["bound-0", "bound-1"], **dedicated(5))
        await cluster.until(lambda c: placed(c, second), within_s=30, what="each shares no zone with those")
        cluster.mesh.kill(await cluster.mesh.leader("coordinator"))
        await cluster.add_pods(["wide-0", "wide-1"], **dedicated(9, exclusive=True))
        await cluster.until(
            lambda c: any("cannot align container" in c.told(name) for name in ("wide-0", "wide-1")),
            within_s=40, what="one waits for two zones of a machine at least",
        )  # fmt: skip
        assert refused(cluster) == []
        for name in sorted({*first, *second}):
            await cluster.delete_pod(name)
        # the large machine's agent tells late of who left there
        await cluster.until(
            lambda c: placed(c, {"wide-0", "wide-1"}), within_s=40, what="zones that are given back are found"
        )
        assert refused(cluster) == []
