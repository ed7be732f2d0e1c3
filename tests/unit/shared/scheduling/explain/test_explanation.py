"""The numbers behind a verdict, and what would have to change; that verdicts agree is ``test_oracle_explained``."""

from __future__ import annotations

from shared.model.resources import amount_text, at_least_text, at_most_text, parse_amount
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.explain.explanation import NAMES_SHOWN, Explanation, explain_nodes
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod

MI = 2**20


def explained(nodes: list[NodeBuilder], pod: PodBuilder, standing: list[PodBuilder] | None = None) -> Explanation:
    state = ClusterState()
    for node in nodes:
        state.upsert_node(node.node())
    for other in standing or []:
        state.observe(other.pod())
    return explain_nodes(state, FeasibilityCache(state.table), pod.pod())


def test_a_shortage_tells_requested_free_and_short_by_and_the_nearest_node_comes_first() -> None:
    found = explained(
        [make_node("far"), make_node("near")],
        make_pod().cpu("3"),
        [make_pod("a").cpu("3500m").on("far"), make_pod("b").cpu("1500m").on("near")],
    )
    (group,) = found.groups
    assert (group.plugin, group.code, group.reasons) == ("NodeResourcesFit", "Unschedulable", ("Insufficient cpu",))
    assert [node.name for node in group.nodes] == ["near", "far"]
    (short,) = group.nodes[0].shortages
    assert (short.requested, short.allocatable, short.free, short.short_by) == (3000, 4000, 2500, 500)
    assert group.change == "near is the nearest: free 0.5 more cpu"


def test_a_request_above_allocatable_is_not_cured_by_deleting_pods() -> None:
    (group,) = explained([make_node("n")], make_pod().cpu("6").memory("16Gi")).groups
    assert group.code == "UnschedulableAndUnresolvable"
    assert group.change == (
        "n is the nearest: ask for at most 4 cpu and 8Gi memory, or add a node with 6 cpu, 16Gi memory; "
        "deleting pods there does not help"
    )


def test_like_nodes_are_one_group_and_only_some_are_named() -> None:
    nodes = [make_node(f"n{number:02}").taint("gpu", "NoSchedule", "only") for number in range(30)]
    found = explained([*nodes, make_node("open").cordon()], make_pod().cpu("1"))
    assert [(group.plugin, group.count) for group in found.groups] == [
        ("TaintToleration", 30),
        ("NodeUnschedulable", 1),
    ]
    assert len(found.groups[0].nodes) == NAMES_SHOWN
    assert found.groups[0].change == "tolerate gpu=only:NoSchedule, or take it from one of them"
    assert found.groups[1].change == "uncordon one of them"
    assert (found.nodes, found.feasible, found.candidates) == (31, 0, ())


def test_a_selector_that_matches_nothing_is_spelt_out() -> None:
    (group,) = explained([make_node("n").label(disk="hdd")], make_pod().cpu("1").select(disk="ssd")).groups
    assert group.change == "label a node so that it matches disk=ssd, or change what the pod selects"


def test_feasible_nodes_are_ranked_with_every_plugins_part() -> None:
    found = explained([make_node("full"), make_node("empty")], make_pod().cpu("1"), [make_pod("a").cpu("3").on("full")])
    assert (found.groups, found.feasible) == ((), 2)
    best, second = found.candidates
    assert (best.name, second.name) == ("empty", "full")
    assert best.total == sum(best.scores.values()) > second.total
    assert set(best.scores) >= {"NodeResourcesFit", "NodeResourcesBalancedAllocation", "TaintToleration"}


def test_amounts_are_written_as_people_write_quantities() -> None:
    assert [amount_text("cpu", amount) for amount in (0, 750, 1500, 2000, -1500)] == ["0", "0.75", "1.5", "2", "-1.5"]
    assert amount_text("cpu", 1_353_300) == "1353.3"
    assert [amount_text("memory", amount) for amount in (1000, 64 * MI, 1536 * MI)] == ["1000", "64Mi", "1.5Gi"]
    assert amount_text("memory", 61_255_492 * 1024) == "58.42Gi"
    assert amount_text("nvidia.com/gpu", 2) == "2"


def test_what_may_be_asked_for_is_never_rounded_up_and_what_lacks_never_down() -> None:
    there = 61_255_492 * 1024
    assert (at_most_text("memory", there), at_least_text("memory", there)) == ("58.41Gi", "58.42Gi")
    for amount in (1, 1023, 1025, there, 5 * MI + 1, 7 * 2**40 + 3):
        assert parse_amount("memory", at_most_text("memory", amount)) <= amount
        assert parse_amount("memory", at_least_text("memory", amount)) >= amount


def test_uncordoning_is_no_advice_where_another_rule_refuses_the_node_too() -> None:
    pod = make_pod().cpu("1").select(disk="ssd")
    found = explained([make_node("closed").cordon(), make_node("open")], pod)
    group = next(group for group in found.groups if group.plugin == "NodeUnschedulable")
    assert [refused.plugin for refused in group.nodes[0].failing] == ["NodeUnschedulable", "NodeAffinity"]
    assert group.count_only == 0
    assert (group.change, group.also) == ("", ("NodeAffinity",))


def test_only_nodes_that_one_rule_alone_refuses_are_opened_by_lifting_it() -> None:
    nodes = [
        make_node("a").cordon(),
        make_node("b").cordon().label(disk="ssd"),
        make_node("c").taint("x", "NoSchedule"),
    ]
    found = explained(nodes, make_pod().cpu("1").select(disk="ssd"))
    (closed,) = [group for group in found.groups if group.plugin == "NodeUnschedulable"]
    assert (closed.count, closed.count_only, closed.change) == (2, 1, "uncordon one of them")
    (tainted,) = [group for group in found.groups if group.plugin == "TaintToleration"]
    assert {refused.plugin for refused in tainted.nodes[0].failing} == {"TaintToleration", "NodeAffinity"}


def test_nobody_is_told_to_ask_for_nothing() -> None:
    (group,) = explained([make_node("n")], make_pod().request(**{"nvidia.com/gpu": "2"})).groups
    assert "ask for at most" not in group.change
    assert group.change == "add a node with 2 nvidia.com/gpu: none here has any"


def test_scores_come_with_what_they_are_at_most() -> None:
    found = explained([make_node("n")], make_pod().cpu("1"))
    (candidate,) = found.candidates
    assert candidate.total == sum(candidate.scores.values())
    assert all(score <= found.score_rules[name].most for name, score in candidate.scores.items())
    assert found.score_rules["TaintToleration"].weight == 3


def test_shares_of_gpus_that_no_device_has_are_never_advised() -> None:
    node, standing = make_node("n").allocatable(cpu="4", **{"conclave.io/gpu-milli": "2000"}), []
    for device in ("0", "1"):
        half = make_pod(f"half{device}").cpu("100m").gpu_milli(500).on("n")
        standing.append(half.set(annotations={"conclave.io/gpu-devices": device}))
    for asked in (make_pod().gpu_milli(4000).cpu("8"), make_pod().gpu_milli(4000).memory("64Gi")):
        changes = [group.change for group in explained([node], asked, standing).groups]
        assert [change for change in changes if "ask for at most" in change] == []
        assert any("add a node with 4000 conclave.io/gpu-milli" in change for change in changes)
