"""Katalyst's objects that cannot be used are named by field; which pods it binds to zones, and by what."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.nodes.katalyst import (
    ENHANCEMENT_ANNOTATION,
    MAIN_ANNOTATION,
    QOS_ANNOTATION,
    CustomNodeResource,
    topology_of_katalyst,
)
from shared.kube.pods.convert import pod_from_api
from shared.model.node_topology import Dedicated, TopologyPolicy, TopologySource

Json = dict[str, Any]
GI = 2**30


def zone(name: str = "0", cpu: str = "8", capacity: str = "10", **more: Any) -> Json:
    amounts = {"allocatable": {"cpu": cpu, "memory": "32Gi"}, "capacity": {"cpu": capacity, "memory": "32Gi"}}
    return {"type": "Numa", "name": name, "resources": amounts, **more}


def read(*zones: Json, policy: str = "NumericContainerLevel", others: tuple[Json, ...] = ()) -> Any:
    tree = [{"type": "Socket", "name": "0", "resources": {}, "children": list(zones)}, *others]
    status = {"topologyPolicy": policy, "topologyZone": tree, "resources": {"allocatable": {"cpu": "7"}}}
    return topology_of_katalyst(msgspec.convert({"metadata": {"name": "n"}, "status": status}, CustomNodeResource))


def test_zones_under_sockets_count_with_what_their_pods_have() -> None:
    pods = [
        {"consumer": "default/a/uid-a", "requests": {"cpu": "1500m", "memory": "1Gi"}},
        {"consumer": "default/b/uid-b"},
    ]
    gpu = {"type": "GPU", "name": "gpu-0", "resources": {}}
    found = read(zone("1", allocations=pods), zone("0", children=[gpu]), {"type": "NIC", "name": "eth0"})
    assert (found.source, found.policy) == (TopologySource.KATALYST, TopologyPolicy.NUMERIC)
    assert [(one.id, one.capacity["cpu"], one.allocatable["cpu"]) for one in found.zones] == [(0, 10, 8), (1, 10, 8)]
    assert found.held == {"uid-a": {1: {"cpu": 2, "memory": GI}}, "uid-b": {1: {}}}
    assert found.sockets == {0: "0", 1: "0"}


@pytest.mark.parametrize(
    ("zones", "policy", "named"),
    [
        ([zone("first")], "None", "status.topologyZone[0].children[0].name"),
        ([zone("0"), zone("0")], "None", "status.topologyZone[0].children[1].name"),
        ([zone(str(number)) for number in range(17)], "None", "status.topologyZone[0].children[16]"),
        ([zone(cpu="many")], "None", "status.topologyZone[0].children[0].resources.allocatable[cpu]"),
        ([zone(cpu="11")], "None", "status.topologyZone[0].children[0].resources.allocatable[cpu]"),
        ([zone()], "Strict", "status.topologyPolicy"),
        (
            [zone(allocations=[{"consumer": "a"}])], "None",
            "status.topologyZone[0].children[0].allocations[0].consumer",
        ),
        (
            [zone(allocations=[{"consumer": "a/b/c", "requests": {"memory": "1Qx"}}])], "None",
            "status.topologyZone[0].children[0].allocations[0].requests[memory]",
        ),
    ],
)  # fmt: skip
def test_an_object_that_cannot_be_used_is_named_by_field(zones: list[Json], policy: str, named: str) -> None:
    with pytest.raises(ObjectError) as error:
        read(*zones, policy=policy)
    assert error.value.field == named


def test_as_many_zones_as_a_machine_has_are_read() -> None:
    assert len(read(*(zone(str(number)) for number in range(16))).zones) == 16


def pod(qos: str = "dedicated_cores", *, node: str = "", main: str = "", **enhancement: Any) -> Any:
    containers = [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi", "a.io/gpu": "1"}}},
        {"name": "side", "image": "i", "resources": {"requests": {"cpu": "1"}}},
    ]
    text = enhancement.get("text", json.dumps(enhancement))
    annotations = {QOS_ANNOTATION: qos, ENHANCEMENT_ANNOTATION: text} | ({MAIN_ANNOTATION: main} if main else {})
    spec = {"containers": containers, "nodeName": node}
    return pod_from_api(msgspec.convert({"metadata": {"annotations": annotations}, "spec": spec}, api.KubePod))


NOT_BOUND = Dedicated(0, 0, binding=False)


@pytest.mark.parametrize(
    ("built", "bound"),
    [
        (pod(numa_binding="true"), Dedicated(2, GI, (("a.io/gpu", 1),))),
        (pod(numa_binding="true", numa_exclusive="true"), Dedicated(2, GI, (("a.io/gpu", 1),), exclusive=True)),
        (pod(numa_binding="true", main="side"), Dedicated(1, 0)),
        (pod(numa_exclusive="true"), NOT_BOUND),
        (pod("shared_cores", numa_binding="true"), None),
        (pod(numa_binding="false"), NOT_BOUND),
        (pod(text=""), NOT_BOUND),
    ],
    ids=["binding", "exclusive", "main container", "exclusive alone", "shared", "not bound", "nothing"],
)  # fmt: skip
def test_dedicated_cores_that_are_bound_to_zones_count_by_their_main_container(
    built: Any, bound: Dedicated | None
) -> None:
    assert built.invalid == ""
    needs = built.pod_class.needs
    assert (needs.dedicated if needs is not None else None) == bound


@pytest.mark.parametrize(
    ("built", "named"),
    [
        (pod(text='{"numa_binding": true}'), ENHANCEMENT_ANNOTATION),
        (pod(text="{"), ENHANCEMENT_ANNOTATION),
        (pod(text="null"), ENHANCEMENT_ANNOTATION),
        (pod(text="{", node="n"), ENHANCEMENT_ANNOTATION),
        (pod(numa_binding="true", main="x"), MAIN_ANNOTATION),
    ],
)
def test_an_annotation_that_cannot_be_read_is_named_and_the_pod_counts_all_the_same(built: Any, named: str) -> None:
    assert built.invalid == "", "without Katalyst nothing hangs on it"
    wanted = built.pod_class.needs.dedicated
    assert named in wanted.unreadable
    assert (wanted.cpus, wanted.binding) == (2, True)
