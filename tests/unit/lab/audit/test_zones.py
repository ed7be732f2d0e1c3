"""The audit's own look at zones: whom a kubelet surely lets on, and whom one refused."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.zones import ZonesAudit, refused

Json = dict[str, Any]


def zones(*cpus: str) -> ZonesAudit:
    found = ZonesAudit()
    amounts = [[{"name": "cpu", "available": cpu}, {"name": "memory", "available": "8Gi"}] for cpu in cpus]
    there = [{"name": f"node-{number}", "type": "Node", "resources": one} for number, one in enumerate(amounts)]
    found.change("n", {"zones": there})
    return found


def pod(*cpus: str, limits: bool = True, **spec: Any) -> Json:
    found = []
    for cpu in cpus:
        wanted = {"cpu": cpu, "memory": "1Gi"}
        found.append({"name": "c", "resources": {"requests": wanted, **({"limits": wanted} if limits else {})}})
    return {"spec": {"containers": found, **spec}}


@pytest.mark.parametrize(
    ("asked", "admitted"),
    [
        (pod("3"), True),
        (pod("4"), False),
        (pod("3", "3"), True),
        (pod("3", "3", "3"), False),
        (pod("4", limits=False), True),
        (pod("3500m"), True),
        (pod("1", initContainers=[{"name": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]), False),
    ],
    ids=["fits one", "fits two together", "each its zone", "none is left", "burstable", "shared CPUs", "init"],
)
def test_a_pod_that_a_zone_has_room_for_is_let_on(asked: Json, admitted: bool) -> None:
    assert zones("3", "3").admits(asked, "n") is admitted


def test_a_node_without_an_object_lets_everybody_on() -> None:
    known = zones("1")
    assert known.admits(pod("9"), "other")
    known.change("n", None)
    assert known.admits(pod("9"), "n")


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"phase": "Failed", "reason": "TopologyAffinityError"}, True),
        ({"phase": "Failed", "reason": "Evicted"}, False),
        ({"phase": "Running"}, False),
    ],
)
def test_a_refusal_is_known_by_its_reason(status: Json, told: bool) -> None:
    assert refused({"status": status}) is told


def katalyst(*held: list[str]) -> ZonesAudit:
    """Zones of 8 CPUs; in each what pods have."""
    amounts = {"allocatable": {"cpu": "8", "memory": "8Gi"}}
    numa = [
        {
            "type": "Numa",
            "name": str(number),
            "resources": amounts,
            "allocations": [{"consumer": f"d/p/{cpu}", "requests": {"cpu": cpu}} for cpu in cpus],
        }
        for number, cpus in enumerate(held)
    ]
    found = zones("0")
    tree = {"status": {"topologyZone": [{"type": "Socket", "name": "0", "children": numa}]}}
    found.change("n", tree, "CustomNodeResource")
    return found


def dedicated(cpu: str, enhancement: str = '{"numa_binding":"true"}', qos: str = "dedicated_cores") -> Json:
    annotations = {
        "katalyst.kubewharf.io/qos_level": qos,
        "katalyst.kubewharf.io/memory_enhancement": enhancement,
    }
    return {"metadata": {"annotations": annotations}, **pod(cpu, limits=False)}


def no_main(asked: Json) -> Json:
    asked["metadata"]["annotations"]["kubernetes.io/main-container-name"] = "other"
    return asked


ALONE = '{"numa_binding":"true","numa_exclusive":"true"}'


@pytest.mark.parametrize(
    ("asked", "held", "admitted"),
    [
        (dedicated("5"), (["3"], ["8"]), True),
        (dedicated("5500m"), (["3"], ["8"]), False),
        (dedicated("8", ALONE), (["1"], []), True),
        (dedicated("1", ALONE), (["1"], ["1"]), False),
        (dedicated("9", qos="shared_cores"), (["8"], ["8"]), True),
        (dedicated("9", "{}"), (["8"], ["8"]), True),
        (dedicated("1", "{"), ([], []), False),
        (dedicated("1", '{"numa_binding":true}'), ([], []), False),
        (no_main(dedicated("1")), ([], []), False),
        (pod("4"), (["8"],), True),
    ],
    ids=[
        "one zone",
        "a part is a whole CPU",
        "alone",
        "nobody's",
        "shared",
        "not bound",
        "unreadable",
        "no string",
        "no main container",
        "guaranteed",
    ],
)
def test_katalysts_object_says_who_is_surely_let_on(asked: Json, held: Any, admitted: bool) -> None:
    known = katalyst(*held)
    assert known.admits(asked, "n") is admitted
    known.change("n", None, "CustomNodeResource")
    assert not known.admits(pod("4"), "n"), "the other object counts again"


def test_nobody_is_surely_let_on_beside_one_that_wants_to_be_alone_or_whose_zone_is_not_named() -> None:
    known, asked = katalyst(["2"], ["8"]), dedicated("5")
    there = dedicated("2", ALONE)
    there["spec"]["nodeName"] = "n"
    assert known.admits(asked, "n")
    known.saw("2", there, ended=False)
    assert not known.admits(asked, "n"), "it is alone in zone 0"
    known.saw("2", there, ended=True)
    known.saw("new", there, ended=False)
    assert not known.admits(asked, "n"), "nobody knows its zone"
    known.saw("new", there, ended=True)
    assert known.admits(asked, "n")
