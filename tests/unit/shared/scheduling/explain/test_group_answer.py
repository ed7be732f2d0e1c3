"""What is said of a pod group that waits: which member failed where, and what would have to change."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from shared.model.pod import Pod
from shared.model.terms.labels import LabelSelector, Requirement
from shared.model.terms.relations import AffinityTerm, Relations
from shared.model.units.pod_group import PodGroup
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
    assert failed["nearest"][0] == {"node": "a", "lacks": {"cpu": "0.5"}}
    assert found["change"] == ("add a node like a (2.5 cpu); or ask for at most 0.833 cpu each; or lower minCount to 3")
    assert found["preemption"] == {
        "helps": False, "summary": "no preemption candidate", "victims": [], "count": 0, "violations": 0, "broken": [],
    }  # fmt: skip


def test_amounts_help_where_other_nodes_are_closed_to_the_members() -> None:
    state = cpus(a=2500)
    state.upsert_node(make_node("c").allocatable(cpu="8").taint("dedicated", "NoSchedule").node())
    found = ask(state, gang(4), members(4, 1000))
    assert "1 node(s) had untolerated taint" in found["failed"][0]["why"]
    assert found["failed"][0]["change"] == (
        "tolerate dedicated:NoSchedule, or take it from c; or add a node like a (2.5 cpu); "
        "or ask for at most 0.625 cpu each"
    )


def test_unequal_members_are_told_apart() -> None:
    found = ask(cpus(a=1000), gang(3), [member("s", 1000), member("l", 8000), member("x", 900)])
    assert [(one["pods"], one["nearest"]) for one in found["failed"]] == [
        (["d/l"], []), (["d/x"], [{"node": "a", "lacks": {"cpu": "0.9"}}]),
    ]  # fmt: skip


def test_a_node_that_is_too_small_is_not_told_to_be_freed() -> None:
    found = ask(cpus(a=1000, b=9000), gang(2), [member("l", 8000), member("x", 8000)])
    assert [one["node"] for one in found["failed"][0]["nearest"]] == ["b"]
    found = ask(cpus(a=1000), gang(1), [member("l", 8000)])
    assert found["change"] == (
        "add a node with 8 cpu: none that is open to it is so large; or ask for at most 1 cpu each"
    )
    found = ask(cpus(a=1000), gang(1), [member("l", more={"nvidia.com/gpu": 2})])
    assert found["change"] == "add a node with 2 nvidia.com/gpu: none that is open to it is so large"


def test_victims_that_would_help_are_named() -> None:
    state = cpus(a=1000, b=1000)
    stand(state, member("old", 1000, group=""), "a")
    found = ask(state, gang(2), members(2, 1000, priority=9))
    assert found["preemption"]["victims"] == ["d/old"]
    assert (found["preemption"]["helps"], found["preemption"]["summary"]) == (True, "evict d/old")


def test_domains_are_told_with_how_many_members_each_takes() -> None:
    state = cluster(
        *((f"{rack}{i}", {"cpu": 1000}, {"rack": rack}) for rack, n in (("a", 2), ("b", 3)) for i in range(n))
    )
    found = ask(state, gang(4, "rack"), members(4, 1000))
    assert found["domains"] == [{"value": "b", "members": 3}, {"value": "a", "members": 2}]
    assert found["summary"] == "3 of 4 waiting members fit together within rack=b: 4 are needed, so none is placed"
    assert found["change"].startswith("add a node like b0 (1 cpu) within rack=b")


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


def kinds(found: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {one["kind"]: (one["lets_in"], one["of"]) for one in found["helps"]}


def drained(state: ClusterState, name: str, cpu: str) -> None:
    state.upsert_node(replace(make_node(name).allocatable(cpu=cpu).node(), drained="ann: disk"))


def test_a_drained_node_that_takes_all_that_lack_is_named_and_counted() -> None:
    state = cpus(a=1000)
    drained(state, "b", "3")
    found = ask(state, gang(4), members(4, 1000))
    assert found["helps"][0] == {
        "kind": "resume_node", "text": "resume scheduling on b", "lets_in": 3, "of": 3, "disturbs": False,
    }  # fmt: skip
    assert found["change"].startswith("resume scheduling on b; or ")


def test_advice_where_all_nodes_are_drained_names_the_nodes() -> None:
    state = cpus()
    for name in "ab":
        drained(state, name, "2")
    found = ask(state, gang(3), members(3, 1000))
    assert found["helps"][0]["text"] == "resume scheduling on a, b"
    assert "conclave explain" not in found["change"]


def test_room_is_freed_for_all_that_lack_and_said_to_disturb() -> None:
    state = cpus(a=2000, b=2000)
    for name, node in (("x", "a"), ("y", "a"), ("z", "b")):
        stand(state, member(name, 1000, group="", priority=9), node)
    found = ask(state, gang(4), members(4, 1000))
    [free] = [one for one in found["helps"] if one["kind"] == "free"]
    assert (free["lets_in"], free["of"], free["disturbs"]) == (3, 3, True)
    assert free["text"] == "free 2 cpu on a and 1 cpu on b: pods that run there would have to go"


def test_what_nobody_uses_is_not_to_be_freed() -> None:
    assert "free" not in kinds(ask(cpus(a=2500, b=1200), gang(4), members(4, 1000)))
    state = cpus(a=2000)
    bound = [stand(state, member("own", 1000), "a")]
    assert "free" not in kinds(ask(state, gang(3), members(2, 1000), bound))


def test_a_change_that_lets_in_some_says_how_many() -> None:
    state = cpus(a=1000)
    drained(state, "b", "1")
    found = ask(state, gang(4), members(4, 1000))
    assert kinds(found)["resume_node"] == (1, 3)
    assert "resume scheduling on b (lets in 1 of 3 that lack)" in found["change"]


def test_a_change_that_lets_nobody_in_is_not_given() -> None:
    state = cpus(a=1000)
    drained(state, "small", "500m")
    both = make_node("both").allocatable(cpu="8").taint("dedicated", "NoSchedule").node()
    state.upsert_node(replace(both, drained="ann"))
    found = ask(state, gang(2), members(2, 1000))
    assert not {"resume_node", "remove_taint", "free"} & set(kinds(found))


def test_a_closed_domain_that_takes_the_whole_gang_is_named() -> None:
    state = cluster(*((f"a{i}", {"cpu": 1000}, {"rack": "a"}) for i in range(2)))
    for name in ("b0", "b1", "b2"):
        state.upsert_node(make_node(name).allocatable(cpu="1100m").label(rack="b").cordon().node())
    found = ask(state, gang(3, "rack"), members(3, 1000))
    assert kinds(found)["uncordon"] == (1, 1)
    assert "uncordon b0, b1, b2" in found["change"]


def test_the_smaller_request_that_is_advised_lets_the_gang_in() -> None:
    state = cpus(a=2500, b=1200)
    found = ask(state, gang(4), members(4, 1000))
    assert "ask for at most 0.833 cpu each" in found["change"]
    assert ask(state, gang(4), members(4, 833))["reached"]
    assert not ask(state, gang(4), members(4, 834))["reached"]


def test_members_that_keep_apart_need_a_node_each() -> None:
    here = LabelSelector((Requirement("app", "In", ("x",)),))
    term = AffinityTerm("kubernetes.io/hostname", here, ("d",))
    apart = [member(f"m{i}", 100, labels={"app": "x"}, relations=Relations(anti_affinity=(term,))) for i in range(4)]
    state = cluster(("a", {"cpu": 8000}, {"kubernetes.io/hostname": "a"}))
    named = make_node("b").allocatable(cpu="8").label(**{"kubernetes.io/hostname": "b"})
    state.upsert_node(replace(named.node(), drained="ann"))
    found = ask(state, gang(4), apart)
    assert kinds(found)["resume_node"] == (1, 3)
    assert "add 3 nodes like" in found["change"]
