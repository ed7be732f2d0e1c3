"""The audit: a good history is clean, and every check is seen red on a bad one."""

from __future__ import annotations

import pytest

from tests.unit.lab.audit.audit_history import History

GPU_NODE = {"cpu": "64", "memory": "64Gi", "pods": "100", "conclave.io/gpu-milli": "4000"}


def gpu(milli: int) -> dict[str, str]:
    return {"cpu": "100m", "conclave.io/gpu-milli": str(milli)}


def test_a_clean_history_is_ok_and_counted():
    report = (
        History().node().pod("a").pod("b").bind("a").bind("b").phase("a", "Running").phase("a", "Succeeded").report()
    )
    assert report.ok
    assert (report.pods_submitted, report.pods_bound, report.pods_finished) == (2, 2, 1)
    assert report.last_bind_s is not None
    assert report.first_submit_s is not None
    assert report.last_bind_s > report.first_submit_s


def test_a_pod_bound_twice_to_another_node_is_seen():
    report = History().node("n1").node("n2").pod().bind("p1", "n1").bind("p1", "n2").report()
    assert report.double_bound == 1
    assert not report.ok


def test_a_pod_bound_twice_to_the_same_node_is_seen():
    assert History().node().pod().bind().bind().report().double_bound == 1


def test_a_pod_moved_by_an_update_counts_as_bound_twice():
    history = History().node("n1").node("n2").pod().bind("p1", "n1")
    history.objects["Pod", "p1"]["spec"]["nodeName"] = "n2"
    assert history.phase("p1", "Running").report().double_bound == 1


def test_a_recreated_pod_of_the_same_name_is_another_pod():
    report = History().node().pod().bind().gone("Pod", "p1").pod().bind().report()
    assert report.ok
    assert report.pods_bound == 2


@pytest.mark.parametrize(
    ("capacity", "requests"),
    [
        ({"cpu": "1", "pods": "9"}, {"cpu": "501m"}),
        ({"cpu": "9", "memory": "1Gi", "pods": "9"}, {"memory": "513Mi"}),
        ({"cpu": "9", "pods": "1"}, {"cpu": "1m"}),
        ({"cpu": "9", "pods": "9", "example.com/card": "1"}, {"example.com/card": "1"}),
        ({"cpu": "9", "pods": "9"}, {"memory": "1"}),
    ],
)
def test_an_overcommitted_node_is_seen(capacity, requests):
    report = History().node("n1", capacity).pod("a", requests).pod("b", requests).bind("a").bind("b").report()
    assert report.overcommitted_nodes == 1
    assert not report.ok


def test_overcommitment_that_ended_is_still_seen():
    history = History().node().pod("a", {"cpu": "900m"}).pod("b", {"cpu": "900m"}).bind("a").bind("b")
    assert history.gone("Pod", "a").gone("Pod", "b").report().overcommitted_nodes == 1


def test_a_finished_pod_frees_its_node():
    history = History().node().pod("a", {"cpu": "900m"}).pod("b", {"cpu": "900m"}).bind("a").phase("a", "Succeeded")
    assert history.bind("b").report().ok


def test_a_terminating_pod_holds_its_node_until_it_is_gone():
    def start() -> History:
        return History().node().pod("a", {"cpu": "900m"}).pod("b", {"cpu": "900m"}).bind("a").terminate("a")

    assert start().bind("b").report().overcommitted_nodes == 1
    assert start().gone("Pod", "a").bind("b").report().ok


def test_a_pod_whose_last_state_shows_a_finalizer_is_gone():
    history = History().node().pod("a", {"cpu": "900m"}).pod("b", {"cpu": "900m"}).bind("a").terminate("a")
    history.objects["Pod", "a"]["metadata"]["finalizers"] = ["example.com/linger"]
    assert history.gone("Pod", "a").bind("b").report().ok


def test_a_pod_created_on_a_node_counts_there_but_is_not_bound():
    report = History().node().pod("a", {"cpu": "900m"}, nodeName="n1").pod("b", {"cpu": "900m"}).bind("b").report()
    assert (report.pods_bound, report.overcommitted_nodes) == (1, 1)


def test_an_unbound_pod_that_fits_is_lost_even_when_shown_unschedulable():
    report = History().node().pod().unschedulable().report()
    assert (report.schedulable_but_unbound, report.lost, report.pods_unschedulable) == (1, 1, 0)
    assert not report.ok


def test_an_unbound_pod_that_fits_nowhere_and_says_so_is_unschedulable():
    report = History().node().pod("p1", {"cpu": "2"}).unschedulable().report()
    assert (report.pods_unschedulable, report.lost) == (1, 0)
    assert report.ok


def test_an_unbound_pod_that_fits_nowhere_and_says_nothing_is_lost():
    report = History().node().pod("p1", {"cpu": "2"}).report()
    assert (report.lost, report.schedulable_but_unbound) == (1, 0)


@pytest.mark.parametrize(
    "message",
    [
        "0/1 nodes are available: 1 node(s) were drained from scheduling by Conclave.",
        "0/1 nodes are available: 1 drained from scheduling by ann: disk.",
    ],
)
def test_a_pod_whose_only_fitting_node_was_drained_is_not_lost(message: str):
    """The drain is between operator and mesh: of the API server's objects only the pod's condition tells of it."""
    report = History().node().pod().unschedulable(message=message).report()
    assert (report.pods_held_by_drains, report.lost, report.schedulable_but_unbound, report.ok) == (1, 0, 0, True)


def test_a_drain_excuses_no_more_nodes_than_were_drained():
    told = "0/2 nodes are available: 1 node(s) were drained from scheduling by Conclave, 1 Insufficient cpu."
    two = History().node("n1").node("n2").pod().unschedulable(message=told)
    assert (two.report().pods_held_by_drains, two.report().lost) == (0, 1)
    assert (two.report(drained=("n1",)).pods_held_by_drains, two.report(drained=("n1",)).lost) == (0, 1)
    assert two.report(drained=("n1", "n2")).pods_held_by_drains == 1
    full = History().node("n1").node("n2", {"cpu": "50m", "memory": "1Gi", "pods": "10"}).pod()
    assert full.unschedulable(message=told).report().pods_held_by_drains == 1


def test_who_knows_of_a_drain_can_say_so_and_a_pod_must_still_say_that_it_waits():
    history = History().node().pod()
    assert history.report(drained=("n1",)).lost == 1
    assert history.unschedulable(message="0/1 nodes are available: 1 Insufficient cpu.").report().lost == 1
    assert history.report(drained=("n1",)).ok


def test_unschedulable_is_judged_in_the_final_state():
    history = History().node().pod("a", {"cpu": "1"}).pod("b", {"cpu": "1"}).bind("a").unschedulable("b")
    assert history.report().ok
    assert history.phase("a", "Succeeded").report().schedulable_but_unbound == 1


def test_gated_deleted_and_foreign_pods_are_not_lost():
    history = (
        History().node().pod("gated", schedulingGates=[{"name": "x"}]).pod("foreign", schedulerName="default-scheduler")
    )
    report = history.pod("gone").gone("Pod", "gone").report()
    assert report.ok
    assert report.pods_submitted == 2


def test_the_scheduler_name_picks_whose_pods_can_be_lost():
    history = History().node().pod("a", schedulerName="other")
    assert history.report("conclave").lost == 0
    assert history.report("other").lost == 1


@pytest.mark.parametrize(
    ("node", "pod", "fits"),
    [
        ({"unschedulable": True}, {}, False),
        ({"unschedulable": True}, {"tolerations": [{"operator": "Exists"}]}, True),
        ({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}, {}, False),
        ({"taints": [{"key": "k", "value": "v", "effect": "PreferNoSchedule"}]}, {}, True),
        (
            {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            {"tolerations": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            True,
        ),
        (
            {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]},
            {"tolerations": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            False,
        ),
        ({"labels": {"a": "1"}}, {"nodeSelector": {"a": "1"}}, True),
        ({"labels": {"a": "1"}}, {"nodeSelector": {"a": "2"}}, False),
    ],
)
def test_nodes_that_refuse_a_pod_do_not_make_it_lost_and_binding_there_is_misplaced(node, pod, fits):
    unbound = History().node(**node).pod("p1", **pod).unschedulable().report()
    assert unbound.schedulable_but_unbound == (1 if fits else 0)
    bound = History().node(**node).wait(10).pod("p1", **pod).bind().report()
    assert bound.misplaced == (0 if fits else 1)
    assert bound.ok == fits


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", ["G2", "T4"], True),
        ("In", ["P100"], False),
        ("NotIn", ["T4"], False),
        ("NotIn", ["P100"], True),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["3"], False),
    ],
)
def test_required_node_affinity_is_recomputed(operator, values, fits):
    expression = {"key": "model", "operator": operator, "values": values}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    history = History().node("n1", labels={"model": "T4"}).wait(10).pod("p1", affinity=affinity)
    assert history.unschedulable().report().schedulable_but_unbound == (1 if fits else 0)
    assert history.bind().report().misplaced == (0 if fits else 1)


def test_a_bind_right_after_a_taint_is_not_held_against_the_scheduler():
    taint = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    assert History().node().wait(10).pod().node("n1", **taint).bind().report().ok
    assert History().node().wait(10).pod().node("n1", **taint).wait(3).bind().report().misplaced == 1


def test_binding_to_a_node_that_does_not_exist_is_misplaced():
    assert History().node().wait(10).pod().bind("p1", "elsewhere").report().misplaced == 1


def test_a_host_port_taken_is_misplaced_and_no_fit():
    ports = [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    history = History().node().pod("a", containers=ports).pod("b", containers=ports).bind("a").unschedulable("b")
    assert history.report().ok
    assert history.bind("b").report().misplaced == 1


def test_devices_within_bounds_are_ok():
    history = (
        History().node("n1", GPU_NODE).pod("a", gpu(400)).pod("b", gpu(600)).pod("c", gpu(2000)).pod("d", gpu(1000))
    )
    report = (
        history.bind("a", devices="0").bind("b", devices="0").bind("c", devices="1,3").bind("d", devices="2").report()
    )
    assert report.ok, report.examples


@pytest.mark.parametrize(
    ("first", "first_devices", "second", "second_devices"),
    [
        (500, "0", 501, "0"),
        (1000, "1", 1, "1"),
        (2000, "0,1", 1000, "1"),
        (100, "0", 100, "4"),
        (100, "0", 100, None),
        (100, "0", 100, "1,2"),
        (100, "0", 2000, "1"),
        (100, "0", 2000, "1,1"),
        (100, "0", 100, "x"),
    ],
)
def test_a_device_overused_missing_or_wrong_is_seen(first, first_devices, second, second_devices):
    history = History().node("n1", GPU_NODE).pod("a", gpu(first)).pod("b", gpu(second))
    report = history.bind("a", devices=first_devices).bind("b", devices=second_devices).report()
    assert report.gpu_violations == 1
    assert not report.ok


def test_a_pod_whose_share_fits_no_single_device_fits_nowhere():
    history = History().node("n1", {**GPU_NODE, "conclave.io/gpu-milli": "2000"})
    for name, device in (("a", "0"), ("b", "1")):
        history.pod(name, gpu(600)).bind(name, devices=device)
    assert history.pod("c", gpu(500)).unschedulable("c").report().ok
    assert history.pod("d", gpu(400)).unschedulable("d").report().schedulable_but_unbound == 1


def test_a_finished_pod_frees_its_devices():
    history = History().node("n1", GPU_NODE).pod("a", gpu(4000)).bind("a", devices="0,1,2,3").phase("a", "Failed")
    assert history.pod("b", gpu(4000)).bind("b", devices="0,1,2,3").report().ok


def test_an_unparsable_quantity_fits_nowhere_and_spoils_nothing_else():
    report = History().node().pod("a", {"cpu": "a lot"}).unschedulable("a").pod("b").bind("b").report()
    assert report.ok
    assert (report.pods_bound, report.pods_unschedulable) == (1, 1)


def test_a_pod_whose_resource_a_class_stands_for_may_wait_and_must_not_be_bound_without_its_claim():
    asked = {"deviceclass.resource.kubernetes.io/gpu": "1"}
    waiting = History().node().pod(requests=asked, schedulerName="conclave").unschedulable().report()
    assert (waiting.lost, waiting.pods_unschedulable, waiting.ok) == (0, 1, True)
    bound = History().node().pod(requests=asked, schedulerName="conclave").bind().report()
    assert bound.overcommitted_nodes == 1
    assert "deviceclass.resource.kubernetes.io/gpu: 1 used of 0" in bound.examples[0]


def test_a_pod_with_claims_may_wait_and_must_not_be_bound_without_them():
    claim = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
    waiting = History().node().pod(schedulerName="conclave", **claim).unschedulable().report()
    assert (waiting.lost, waiting.pods_unschedulable, waiting.ok) == (0, 1, True)
    bound = History().node().pod(schedulerName="conclave", **claim).bind().report()
    assert bound.misplaced == 1
    assert "its claim default/gpu does not exist" in bound.examples[0]


def test_a_pod_with_a_strict_limit_of_latency_may_wait_though_a_node_has_room():
    history = History().node().pod(schedulerName="conclave").unschedulable()
    assert history.report().lost == 1
    history = History().node().pod(schedulerName="conclave")
    strict = {"conclave.io/latency-limit": "strict", "latencyHardConstraint": "30"}
    history.objects["Pod", "p1"]["metadata"]["annotations"] = {**strict, "conclave.io/latency-target": "shop"}
    waiting = history.unschedulable().report()
    assert (waiting.lost, waiting.pods_unschedulable, waiting.ok) == (0, 1, True)


@pytest.mark.parametrize(
    ("node_ms", "hard_ms", "near"),
    [("30", "30", True), ("30.001", "30", False), ("", "30", False), ("x", "30", False), ("12.5", "12.5", True)],
)
def test_a_strict_limit_without_a_target_is_held_against_the_nodes_annotation(node_ms, hard_ms, near):
    def history() -> History:
        made = History().node().annotate("Node", "n1", **({"conclave.io/latency-ms": node_ms} if node_ms else {}))
        said = {"conclave.io/latency-limit": "strict", "latencyHardConstraint": hard_ms}
        made.wait(60).pod(schedulerName="conclave").annotate("Pod", "p1", **said)  # long after the node has changed
        return made.unschedulable()

    assert history().report().lost == near
    bound = history().bind().report()
    assert bound.misplaced == (not near)


# --- resized in place -----------------------------------------------------------------------------------------------


def resized(*, of: str = "4") -> History:
    """A node of 4 CPUs, with a pod of 3."""
    history = History().node("n1", {"cpu": of, "pods": "9"}).pod("a", {"cpu": "3"}).bind("a")
    return history.resize("a", actual="3").wait(5)


def test_room_that_a_lowered_pod_still_has_is_not_free():
    assert resized().resize("a", "1").pod("b", {"cpu": "2"}).bind("b").report().overcommitted_nodes == 1
    assert resized().resize("a", "1").resize("a", actual="1").pod("b", {"cpu": "2"}).bind("b").report().ok


@pytest.mark.parametrize(("reason", "wrong"), [("Infeasible", 0), ("Deferred", 1)])
def test_only_a_resize_that_cannot_be_claims_nothing(reason: str, wrong: int):
    history = resized().resize("a", "100", condition=reason).wait(5)
    assert history.pod("b", {"cpu": "1"}).bind("b").report().overcommitted_nodes == wrong


def test_a_pod_that_has_only_just_grown_is_held_against_nobody():
    assert resized().resize("a", "4").pod("b", {"cpu": "1"}).bind("b").report().ok
    assert resized().resize("a", "4").wait(5).pod("b", {"cpu": "1"}).bind("b").report().overcommitted_nodes == 1


def test_a_pod_that_grows_beyond_its_node_is_nobodys_bind():
    assert resized().resize("a", "5").report().ok


def test_room_that_a_resized_pod_gave_back_is_missed_by_those_left_unbound():
    report = resized().pod("b", {"cpu": "3"}).unschedulable("b").resize("a", "1", actual="1").report()
    assert report.schedulable_but_unbound == 1
    assert resized().pod("b", {"cpu": "3"}).unschedulable("b").resize("a", "1").report().schedulable_but_unbound == 0
