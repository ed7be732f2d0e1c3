"""NodeResourceTopology objects that cannot be used are named by field; what a pod is aligned by."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.nodes.node_topology import NodeResourceTopology, needs_of, topology_from_api
from shared.kube.pods.convert import pod_from_api
from shared.model.constraints import PodClass
from shared.model.node_topology import TopologyPolicy, TopologyScope
from shared.scheduling.cycle.feasibility import static_half
from shared.scheduling.numa.admission import admit
from shared.scheduling.numa.books import Books
from tests.builders import make_pod
from tests.unit.shared.scheduling.numa.make import topology

Json = dict[str, Any]


def zone(name: str = "node-0", **resources: str) -> Json:
    found = [
        dict.fromkeys(("capacity", "allocatable", "available"), amount) | {"name": key}
        for key, amount in resources.items()
    ]
    return {"name": name, "type": "Node", "resources": found}


def read(**fields: Any) -> Any:
    return topology_from_api(msgspec.convert({"metadata": {"name": "n"}, **fields}, NodeResourceTopology))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"attributes": [{"name": "topologyManagerPolicy", "value": "nearest"}]}, "attributes"),
        ({"attributes": [{"name": "topologyManagerScope", "value": "node"}]}, "attributes"),
        ({"topologyPolicies": ["Strict"]}, "topologyPolicies[0]"),
        ({"zones": [zone("first")]}, "zones[0].name"),
        ({"zones": [zone(), zone("numa-0")]}, "zones"),
        ({"zones": [zone(cpu="many")]}, "zones[0].resources[cpu]"),
    ],
)
def test_an_object_that_cannot_be_used_is_named_by_field(fields: Json, named: str) -> None:
    with pytest.raises(ObjectError) as error:
        read(**fields)
    assert error.value.field == named


def test_attributes_win_over_the_deprecated_policies() -> None:
    found = read(
        topologyPolicies=["SingleNUMANodePodLevel"],
        attributes=[{"name": "topologyManagerPolicy", "value": "restricted"}],
        zones=[zone(cpu="4", memory="8Gi")],
    )
    assert (found.policy, found.scope) == (TopologyPolicy.RESTRICTED, TopologyScope.POD)
    assert found.zones[0].available == {"cpu": 4, "memory": 8 * 2**30}


@pytest.mark.parametrize(("available", "counts"), [("-5", 0), (-1, 0), ("-1Gi", 0), ("800", 8), ("3", 3)])
def test_what_is_available_counts_between_nothing_and_what_is_allocatable(available: str | int, counts: int) -> None:
    one = zone(cpu="8")
    one["resources"][0]["available"] = available
    assert read(zones=[one]).zones[0].available == {"cpu": counts}


def pod(status: Json | None = None, **resources: Json) -> Any:
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    return pod_from_api(msgspec.convert({"spec": spec, "status": status or {}}, api.KubePod))


def test_only_guaranteed_pods_and_devices_are_aligned() -> None:
    amounts = {"cpu": "2", "memory": "1Gi"}
    needs = pod(requests=amounts, limits=amounts).pod_class.needs
    assert needs is not None
    assert (needs.containers[0].cpus, needs.containers[0].memory) == (2, (("memory", 2**30),))
    assert pod(requests=amounts).pod_class.needs is None
    assert pod(limits={"nvidia.com/gpu": "1"}).pod_class.needs is not None


def asked(*cpus: str, **first: str) -> Json:
    """Containers of so many CPUs after a ``sidecar`` or an ``init`` container."""

    def of(cpu: str) -> Json:
        amounts = {"cpu": cpu, "memory": "1Gi"}
        return {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}

    before = [{**of(cpu), **({"restartPolicy": "Always"} if kind == "sidecar" else {})} for kind, cpu in first.items()]
    return {"containers": [of(cpu) for cpu in cpus], "initContainers": before}


@pytest.mark.parametrize(
    ("spec", "scope", "zones"),
    [
        (asked("3", sidecar="2"), TopologyScope.CONTAINER, [0, 1]),
        (asked("3", init="2"), TopologyScope.CONTAINER, [0, 0]),
        (asked("2", sidecar="2"), TopologyScope.CONTAINER, [0, 0]),
        (asked("3", sidecar="2"), TopologyScope.POD, None),
        (asked("3", init="2"), TopologyScope.POD, [0, 0]),
        (asked("2", sidecar="2"), TopologyScope.POD, [0, 0]),
    ],
    ids=[
        "a sidecar stays",
        "an init container passes its CPUs on",
        "beside it",
        "too large",
        "not at once",
        "together",
    ],
)
def test_a_sidecar_counts_beside_the_containers_as_the_kubelet_counts_it(
    spec: Json, scope: TopologyScope, zones: list[int] | None
) -> None:
    """Two zones of 4 CPUs: in which each container sits; None: the kubelet refuses the pod."""
    made = topology(cpus=4, scope=scope)
    needs = needs_of(msgspec.convert(spec, api.PodSpec))
    assert needs is not None
    verdict = admit(made, Books(made), needs)
    assert (verdict.refusal is not None) is (zones is None)
    assert zones is None or [zone for of in verdict.zones().values() for zone in of] == zones


def test_a_sidecar_without_limits_leaves_nobody_of_the_pod_aligned() -> None:
    spec = asked("2", sidecar="1")
    del spec["initContainers"][0]["resources"]["limits"]
    assert needs_of(msgspec.convert(spec, api.PodSpec)) is None


def test_a_refused_pod_says_so_and_an_evicted_one_does_not() -> None:
    assert pod({"phase": "Failed", "reason": "TopologyAffinityError"}).refused == "TopologyAffinityError"
    assert pod({"phase": "Failed", "reason": "Evicted"}).refused == ""


def test_workloads_of_one_size_share_a_class_and_its_static_verdicts() -> None:
    def class_of(container: str, cpu: str, memory: str) -> PodClass:
        built = make_pod(container).cpu(cpu).memory(memory)
        (one,) = built.json["spec"]["containers"]
        one |= {"name": container, "resources": {**one["resources"], "limits": dict(one["resources"]["requests"])}}
        found = built.pod().pod_class
        assert found.needs is not None
        return found

    web = class_of("web", "2", "1Gi")
    assert web == class_of("db", "2", "1Gi")
    assert web != class_of("web", "3", "1Gi")
    assert static_half(web) == static_half(class_of("web", "3", "2Gi"))
