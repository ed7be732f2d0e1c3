"""What is said of a pod group that waits: which member failed where, and what would have to change."""

from __future__ import annotations

from typing import Any

from shared.model.pod import Pod
from shared.model.pod_group import PodGroup
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.explain.group_answer import explain_group
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import make_node
from tests.unit.shared.scheduling.groups.gangs import cluster, cpus, gang, member, members, stand


def ask(state: ClusterState, group: PodGroup, pods: list[Pod], bound: list[Pod] | None = None) -> dict[str, Any]:
    return explain_group(state, FeasibilityCache(state.table), group, pods, bound or ())


def test_the_member_that_fails_is_named_with_the_nearest_nodes_and_what_they_lack() -> None:
    found = ask(cpus(a=2500, b=1200), gang(4), members(4, 1000))
    assert (found["placed"], found["lacking"], found["reached"]) == (3, 1, False)
    assert found["summary"] == "3 of 4 waiting members fit together: 4 are needed, so none is placed"
    [failed] = found["failed"]
    assert failed["pods"] == ["d/m3"]
    assert failed["why"] == "0/2 nodes are available: 2 Insufficient cpu."
    assert failed["nearest"][0] == {"node": "a", "lacks": {"cpu": "500m"}}
    assert found["change"] == ("free 500m cpu on a, add a node that has it, or ask for less; or lower minCount to 3")
    assert found["preemption"] == {
        "helps": False, "summary": "no preemption candidate", "victims": [], "count": 0, "violations": 0, "broken": [],
    }  # fmt: skip


def test_amounts_help_where_other_nodes_are_closed_to_the_members() -> None:
    state = cpus(a=2500)
    state.upsert_node(make_node("c").allocatable(cpu="8").taint("dedicated", "NoSchedule").node())
    found = ask(state, gang(4), members(4, 1000))
    assert "1 node(s) had untolerated taint" in found["failed"][0]["why"]
    assert found["failed"][0]["change"] == "free 500m cpu on a, add a node that has it, or ask for less"


def test_unequal_members_are_told_apart() -> None:
    found = ask(cpus(a=1000), gang(3), [member("s", 1000), member("l", 8000), member("x", 900)])
    assert [(one["pods"], one["nearest"]) for one in found["failed"]] == [
        (["d/l"], []), (["d/x"], [{"node": "a", "lacks": {"cpu": "900m"}}]),
    ]  # fmt: skip


def test_a_node_that_is_too_small_is_not_told_to_be_freed() -> None:
    found = ask(cpus(a=1000, b=9000), gang(2), [member("l", 8000), member("x", 8000)])
    assert [one["node"] for one in found["failed"][0]["nearest"]] == ["b"]
    found = ask(cpus(a=1000), gang(1), [member("l", 8000)])
    assert found["change"] == "add a node with 8 cpu, or ask for less: no node that is open to it is so large"
    found = ask(cpus(a=1000), gang(1), [member("l", more={"nvidia.com/gpu": 2})])
    assert found["change"].startswith("add a node with 2 nvidia.com/gpu, or ask for less")


def test_victims_that_would_help_are_named() -> None:
    state = cpus(a=1000, b=1000)
    stand(state, member("old", 1000, group=""), "a")
    found = ask(state, gang(2), members(2, 1000, priority=9))
    assert found["preemption"]["victims"] == ["d/old"]
    assert found["change"].endswith("preemption would evict d/old")


def test_domains_are_told_with_how_many_members_each_takes() -> None:
    state = cluster(
        *((f"{rack}{i}", {"cpu": 1000}, {"rack": rack}) for rack, n in (("a", 2), ("b", 3)) for i in range(n))
    )
    found = ask(state, gang(4, "rack"), members(4, 1000))
    assert found["domains"] == [{"value": "b", "members": 3}, {"value": "a", "members": 2}]
    assert found["summary"] == "3 of 4 waiting members fit together within rack=b: 4 are needed, so none is placed"
    assert found["change"].startswith("free 1 cpu on b")


def test_a_topology_label_that_no_node_has_is_named() -> None:
    found = ask(cpus(a=3000), gang(2, "rack"), members(2, 1000))
    assert found["change"] == (
        "no node has the label rack: label nodes with it, or name another for the group's topology"
    )
    assert "label more nodes" in found["failed"][0]["change"]


def test_a_group_that_fits_or_is_not_complete_says_so() -> None:
    state = cpus(a=3000)
    bound = [stand(state, member("old", 1000), "a")]
    found = ask(state, gang(2), members(1, 1000), bound)
    assert found["summary"] == "1 of 1 waiting members fit together, 1 run: the minimum of 2 is reached"
    assert (found["change"], found["preemption"], found["failed"]) == ("", None, [])
    assert ask(state, gang(3), members(1, 1000), bound)["summary"] == (
        "2 of at least 3 members exist: the group is not tried before"
    )
