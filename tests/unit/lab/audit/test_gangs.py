"""The audit of gangs (I5) and their topology: good histories are clean, each rule is seen broken."""

from __future__ import annotations

import json

import pytest

from lab.audit.judges.gangs import BINDING_S
from lab.audit.judges.groups import TIMEOUT_S
from tests.unit.lab.audit.group_history import ROOM, GroupHistory

LATE_S = BINDING_S + 1


def gang(minimum: int = 2, *names: str, old: bool = False, **group) -> GroupHistory:
    history = GroupHistory(old=old)
    history.node("n1", ROOM).node("n2", ROOM)
    return history.group("g", minimum, **group).members(*(names or ("a", "b")))


def in_part(**group) -> GroupHistory:
    """One of two is bound, and time has passed."""
    history = gang(**group).bound(["a"])
    history.wait(LATE_S)
    return history


@pytest.mark.parametrize("old", [True, False])
def test_a_gang_that_is_bound_at_once_is_whole(old):
    report = gang(old=old).bound(["a", "b"]).report()
    assert report.ok
    assert (report.units.gangs, report.units.gangs_whole) == (1, 1)
    assert report.units.gang_bind_ms["max"] == pytest.approx(100.0, abs=1)


def test_a_member_that_was_made_on_a_node_is_not_the_first_bind():
    history = gang(2, "a")
    history.wait(100)
    report = history.members("b", nodeName="n1").bound(["a"]).report()
    assert report.units.gangs_whole == 1
    assert report.units.gang_bind_ms["max"] == 0


@pytest.mark.parametrize("old", [True, False])
def test_a_gang_that_stays_in_part_is_a_violation(old):
    history = in_part(old=old)
    history.unschedulable("b")
    report = history.report()
    assert report.units.gangs_partial == 1
    assert not report.ok
    assert "1 of at least 2" in " ".join(report.examples)


def test_a_gang_in_part_at_the_end_is_a_violation_however_short_the_time():
    assert gang().bound(["a"]).report().units.gangs_partial == 1


def test_a_gang_that_was_in_part_too_long_is_a_violation_even_if_it_is_whole_later():
    assert in_part().bound(["b"]).report().units.gangs_partial == 1


def test_more_than_the_minimum_is_no_violation():
    assert gang(2, "a", "b", "c").bound(["a", "b", "c"]).report().ok


def test_members_of_a_whole_gang_may_finish_and_leave():
    history = gang(3, "a", "b", "c").bound(["a", "b", "c"])
    history.phase("a", "Succeeded").wait(LATE_S)
    history.gone("Pod", "b").wait(LATE_S)
    assert history.report().units.gangs_partial == 0


def test_members_that_finish_while_the_rest_is_bound_count():
    history = gang().bound(["a"])
    history.phase("a", "Succeeded")
    assert history.bound(["b"]).report().ok


@pytest.mark.parametrize("ended", [("b",), ("b", "c")], ids=["one-runs", "none-runs"])
def test_a_replacement_beside_members_that_were_deleted_as_they_succeeded_is_no_violation(ended):
    history = gang(3, "a", "b", "c").bound(["a", "b", "c"])
    for name in ended:
        history.phase(name, "Succeeded").gone("Pod", name)
    history.gone("Pod", "a").wait(1)
    assert history.members("d").bound(["d"]).wait(LATE_S).report().ok


def test_a_member_that_was_deleted_before_it_succeeded_does_not_count():
    history = gang().bound(["a", "b"])
    history.changed("a", lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    history.phase("a", "Succeeded").gone("Pod", "a").gone("Pod", "b").wait(1)
    assert history.members("c").bound(["c"]).wait(LATE_S).report().units.gangs_partial == 1


def test_a_run_after_one_whose_members_have_all_succeeded_is_judged_anew():
    history = gang().bound(["a", "b"])
    for name in "ab":
        history.phase(name, "Succeeded").gone("Pod", name)
    history.wait(1).members("c", "d").bound(["c"]).wait(LATE_S)
    assert history.report().units.gangs_partial == 1


def test_half_a_gang_that_ran_to_its_end_is_a_violation():
    history = gang().bound(["a"])
    history.phase("a", "Succeeded").wait(LATE_S).unschedulable("b")
    assert history.report().units.gangs_partial == 1


def test_a_second_run_of_a_gang_is_judged_anew():
    history = gang().bound(["a", "b"])
    history.gone("Pod", "a").gone("Pod", "b").wait(1)
    history.members("c", "d").bound(["c"]).wait(LATE_S)
    assert history.report().units.gangs_partial == 1


def test_a_replacement_that_leaves_the_gang_below_its_minimum_is_a_violation():
    history = gang(3, "a", "b", "c").bound(["a", "b", "c"])
    history.gone("Pod", "b").gone("Pod", "c").wait(1)
    history.members("d").bound(["d"]).wait(LATE_S)
    assert history.report().units.gangs_partial == 1


def test_a_replacement_that_completes_the_gang_is_none():
    history = gang(3, "a", "b", "c").bound(["a", "b", "c"])
    history.gone("Pod", "b").members("d").bound(["d"])
    assert history.report().ok


@pytest.mark.parametrize("what", ["member", "node", "raised", "group"])
def test_a_gang_that_somebody_else_broke_is_broken_and_no_violation(what):
    history = gang().bound(["a"])
    match what:
        case "member":
            history.gone("Pod", "b")
        case "node":
            history.gone("Node", "n2")
        case "raised":
            history.group("g", 3)
        case "group":
            history.gone("PodGroup", "g")
    history.wait(LATE_S)
    if what != "member":
        history.unschedulable("b")
    units = history.report().units
    assert (units.gangs_partial, units.gangs_broken) == (0, 1)


def test_a_gang_whose_last_members_binding_is_refused_is_broken():
    history = gang().bound(["a"]).refused("b")
    history.wait(LATE_S)
    assert (history.report().units.gangs_partial, history.report().units.gangs_broken) == (0, 1)


def test_one_refused_binding_does_not_excuse_two_missing_members():
    history = gang(3, "a", "b", "c").bound(["a"]).refused("b")
    history.unschedulable("c").wait(LATE_S)
    assert history.report().units.gangs_partial == 1


def test_a_broken_gang_whose_members_are_to_leave_and_stay_is_a_violation():
    history = gang(annotations={"conclave.io/gang-broken": "evict"}).bound(["a"])
    history.gone("Pod", "b").wait(LATE_S)
    assert history.report().units.gangs_partial == 0
    history.wait(TIMEOUT_S).phase("a", "Running")
    assert history.report().units.gangs_partial == 1


def test_a_broken_gang_whose_members_left_is_none():
    history = gang(annotations={"conclave.io/gang-broken": "evict"}).bound(["a"])
    history.gone("Pod", "b").evicted("a").wait(LATE_S)
    assert history.report().units.gangs_partial == 0


def test_a_minimum_that_was_lowered_only_just_may_not_have_been_seen():
    history = gang(3, "a", "b", "c").group("g", 2).bound(["a", "b", "c"])
    assert history.report().ok


def test_a_lowered_minimum_makes_a_gang_whole():
    history = gang(2).bound(["a"]).group("g", 1)
    assert history.bound(["b"]).report().ok


def test_a_member_of_a_group_that_does_not_exist_must_not_be_bound():
    history = GroupHistory()
    history.node().members("a")
    assert history.bound(["a"]).report().units.gangs_partial == 1


def test_a_group_of_the_policy_basic_may_stand_in_part():
    history = gang(None).bound(["a"])  # type: ignore[arg-type]
    history.members("big", requests={"cpu": "99"}).unschedulable("big").bound(["b"])
    assert history.report().ok


def test_a_group_of_the_plugins_is_judged_by_its_label():
    history = GroupHistory()
    history.node()
    history.plugins_group("g", 2).pod("a").pod("b")
    for name in ("a", "b"):
        history.changed(name, lambda pod: pod["metadata"].update(labels={"scheduling.x-k8s.io/pod-group": "g"}))
    assert history.bound(["a"]).report().units.gangs_partial == 1
    assert history.bound(["b"]).report().ok


def job_with_pods(annotations, *, namespace=None, **spec) -> GroupHistory:
    history = GroupHistory()
    history.node()
    history.write("create", "Namespace", {"metadata": {"name": "default", "annotations": namespace or {}}})
    meta = {"name": "j", "namespace": "default", "annotations": annotations}
    spec = {"completionMode": "Indexed", "parallelism": 2, **spec}
    history.write("create", "Job", {"apiVersion": "batch/v1", "metadata": meta, "spec": spec})
    owner = {"kind": "Job", "name": "j", "controller": True, "uid": "u"}
    for name in ("a", "b"):
        history.pod(name).changed(name, lambda pod: pod["metadata"].update(ownerReferences=[owner]))
    return history


@pytest.mark.parametrize(
    ("annotations", "namespace", "spec", "minimum"),
    [
        ({"conclave.io/gang": "true"}, {}, {}, 2),
        ({}, {"conclave.io/gang": "true"}, {}, 2),
        ({"conclave.io/gang": "false"}, {"conclave.io/gang": "true"}, {}, 1),
        ({"conclave.io/gang": "true", "conclave.io/gang-min-count": "1"}, {}, {}, 1),
        ({"conclave.io/gang": "true"}, {}, {"completionMode": "NonIndexed"}, 1),
        ({"conclave.io/gang": "true"}, {}, {"completions": 1}, 1),
        ({}, {}, {}, 1),
    ],
)
def test_an_indexed_job_is_a_gang_where_it_was_asked_for(annotations, namespace, spec, minimum):
    history = job_with_pods(annotations, namespace=namespace, **spec).bound(["a"])
    history.wait(LATE_S)
    assert history.report().units.gangs_partial == (1 if minimum == 2 else 0)


# --- topology -----------------------------------------------------------------------------------------------------


def racks(**group) -> GroupHistory:
    history = GroupHistory()
    for number in range(4):
        history.node(f"n{number}", ROOM, labels={"rack": f"r{number // 2}"})
    history.node("bare", ROOM).wait(10)
    return history.group("g", 2, topology="rack", **group).members("a", "b")


def test_members_in_one_domain_are_well_placed():
    history = racks()
    history.bind("a", "n0").bind("b", "n1")
    assert history.report().ok


@pytest.mark.parametrize("node", ["n2", "bare"])
def test_a_member_outside_the_domain_of_the_others_is_a_violation(node):
    history = racks()
    history.bind("a", "n0").bind("b", node)
    report = history.report()
    assert report.units.gangs_scattered == 1
    assert not report.ok


def test_a_late_member_joins_the_domain():
    history = racks()
    history.bind("a", "n0").bind("b", "n1").wait(60)
    history.members("late").bind("late", "n3")
    assert history.report().units.gangs_scattered == 1


@pytest.mark.parametrize("preferred", [False, True])
def test_a_topology_may_be_required_by_annotation_and_one_that_is_preferred_forbids_nothing(preferred):
    history = racks()
    name = f"conclave.io/gang-topology{'-preferred' * preferred}"
    history.group("g", 2, annotations={name: "rack"}).wait(10)
    history.bind("a", "n0").bind("b", "n2")
    assert history.report().units.gangs_scattered == (0 if preferred else 1)


def test_a_label_that_changed_only_just_is_not_held_against_anybody():
    history = racks()
    history.bind("a", "n0").node("n1", ROOM, labels={"rack": "elsewhere"}).bind("b", "n1")
    assert history.report().units.gangs_scattered == 0


# --- left unbound -------------------------------------------------------------------------------------------------


def test_a_gang_that_fits_and_is_left_unbound_is_lost():
    report = gang().unschedulable("a").unschedulable("b").report()
    assert (report.lost, report.schedulable_but_unbound) == (2, 2)


def test_a_gang_that_does_not_fit_is_unschedulable_though_a_node_takes_each_member():
    history = gang(3, "a", "b", "c")
    history = GroupHistory()
    history.node("n1", {"cpu": "2", "memory": "8Gi", "pods": "9"}).group("g", 3)
    for name in ("a", "b", "c"):
        history.members(name, requests={"cpu": "1"}).unschedulable(name)
    report = history.report()
    assert report.ok
    assert report.pods_unschedulable == 3


@pytest.mark.parametrize(("demanded", "lost"), [("4", 2), ("5", 0)])
def test_a_group_that_demands_more_than_all_nodes_have_waits_rightly(demanded, lost):
    history = GroupHistory()
    history.node("n1", ROOM)
    history.plugins_group("g", 2, minResources={"cpu": demanded}).pod("a").pod("b")
    for name in ("a", "b"):
        history.changed(name, lambda pod: pod["metadata"].update(labels={"scheduling.x-k8s.io/pod-group": "g"}))
        history.unschedulable(name)
    assert history.report().lost == lost


def test_a_gang_that_says_nothing_is_lost():
    history = GroupHistory()
    history.node("n1", {"cpu": "1", "pods": "9"}).group("g", 2)
    for name in ("a", "b"):
        history.members(name, requests={"cpu": "1"})
    assert history.report().lost == 2


def test_a_gang_that_fits_only_across_domains_is_unschedulable():
    history = GroupHistory()
    for name in ("n0", "n1"):
        history.node(name, {"cpu": "1", "memory": "1Gi", "pods": "9"}, labels={"rack": name})
    history.group("g", 2, topology="rack")
    for name in ("a", "b"):
        history.members(name, requests={"cpu": "1"}).unschedulable(name)
    assert history.report().ok


def test_a_gang_below_its_minimum_of_members_waits_with_reason():
    assert gang(3).unschedulable("a").unschedulable("b").report().ok


def test_a_member_beyond_the_minimum_that_a_node_takes_is_lost():
    history = gang(2, "a", "b", "c").bound(["a", "b"])
    assert history.unschedulable("c").report().lost == 1


def test_a_gang_with_a_member_of_another_scheduler_waits_with_reason():
    history = gang(2, "a", "b").members("other", schedulerName="other")
    history.unschedulable("a").unschedulable("b")
    assert history.report("conclave").ok
    assert gang(2, "a", "b").unschedulable("a").unschedulable("b").report("conclave").lost == 2


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    "group",
    [{"annotations": {"conclave.io/gang-broken": "explode"}}, {"resourceClaims": [{"name": "c"}]}],
    ids=["an annotation that nobody understands", "claims"],
)
def test_a_group_that_is_refused_as_it_is_written_waits_and_is_told(group, told):
    history = gang(2, "a", "b", **group)
    for name in ("a", "b") if told else ():
        history.unschedulable(name)
    assert history.report().ok is told


@pytest.mark.parametrize(
    ("annotations", "lost"),
    [
        ({"conclave.io/gang": "true"}, 1),
        ({"conclave.io/gang": "yes"}, 0),
        ({"conclave.io/gang": "true", "conclave.io/gang-min-count": "2"}, 0),
        ({"conclave.io/gang": "true", "conclave.io/gang-min-count": "few"}, 0),
    ],
)
def test_a_job_that_is_refused_as_it_is_written_waits_with_reason(annotations, lost):
    history = GroupHistory()
    history.node("n1", ROOM)
    spec = {"completionMode": "Indexed", "parallelism": 1, "completions": 1}
    history.write(
        "create", "Job", {"metadata": {"name": "j", "namespace": "default", "annotations": annotations}, "spec": spec}
    )
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
    history.pod("a").changed("a", lambda pod: pod["metadata"].update(ownerReferences=[owner])).unschedulable("a")
    assert history.report().lost == lost


def test_a_group_that_its_finalizer_held_is_gone_with_the_delete_after_its_mark():
    history = gang().unschedulable("a").unschedulable("b")
    marked = json.loads(json.dumps(history.objects["PodGroup", "g"]))
    marked["metadata"] |= {"deletionTimestamp": "2026-11-20T00:00:00Z", "finalizers": ["example.com/hold"]}
    assert history.write("update", "PodGroup", marked).report().lost == 2
    assert history.write("delete", "PodGroup", marked).report().ok
