"""What a policy may be for: each goal costs what it says, an expression means what it meant in training."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from lab.environments.own_reward import FEATURES as TRAINED_FEATURES
from lab.environments.own_reward import features_of
from lab.environments.placement_rewards import RewardedPlacement
from shared.model.power import CURVE_LABEL, WATTS, parse_power_curves
from shared.policy.deepsets.features import node_load
from shared.policy.power import NodePower
from shared.policy.registry import HEURISTICS, LEARNED, goal_of
from shared.policy.rewards.expression import RewardExpression, RewardFailed
from shared.policy.rollout.expression_goal import FEATURES, MOST_KINDS, ExpressionGoal
from shared.policy.rollout.judging import RolloutSettings
from shared.policy.rollout.outcome import GOALS, NEUTRAL, GoalUnknown, goal_named
from shared.policy.rollout.rollout import deciding_goal, publish
from shared.policy.rollout.room import RoomMeasure
from shared.policy.weights import shipped
from shared.scheduling.state.cache import ClusterCache
from shared.wire.records import PolicyPointer, PolicyRef
from tests.builders import make_node, make_pod

LIMITS = {"latencySoftConstraint": "10", "latencyHardConstraint": "30"}


def cluster(*pods: int, cpu: str = "8") -> ClusterCache:
    """Nodes with so many pods of one core each; node i is 8i ms away."""
    cache = ClusterCache()
    for at, many in enumerate(pods):
        builder = make_node(f"n{at}").allocatable(cpu=cpu, memory="8Gi")
        builder.json["metadata"]["annotations"] = {"conclave.io/latency-ms": str(8 * at)}
        cache.upsert_node(builder.node())
        for number in range(many):
            cache.observe(make_pod(f"p{at}-{number}").cpu("1").memory("1Gi").on(f"n{at}").pod())
    return cache


def costs(goal: str, cache: ClusterCache, pod, typical=()) -> list[float]:
    rows = np.array([cache.table.row_of[f"n{at}"] for at in range(len(cache.table.row_of))])
    return goal_named(goal)(cache.table, pod.pod_class, rows, RoomMeasure(cache.table, typical)).tolist()


POD = make_pod().cpu("1").memory("1Gi").pod()


def test_nodes_costs_one_for_the_first_pod_of_a_node_and_else_the_room_left() -> None:
    empty, half, full = costs("nodes", cluster(0, 3, 6), POD)
    assert full == pytest.approx(1 / 8)
    assert full < half < 1 < empty


def test_joules_are_the_watts_that_a_pod_adds_with_an_empty_node_off() -> None:
    empty, half = costs("joules", cluster(0, 4, cpu="24"), make_pod().cpu("2400m").memory("1Gi").pod())
    assert empty == pytest.approx(WATTS[1])
    assert half < empty


def test_latency_counts_the_limits_that_are_broken() -> None:
    near_far = costs("latency", cluster(0, 0, 0, 0, 0), make_pod().cpu("1").set(annotations=LIMITS).pod())
    assert near_far == [0.0, 0.0, 0.5, 0.5, 1.0]
    assert set(costs("latency", cluster(0, 0), POD)) == {0.0}


def test_gpus_counts_the_gpus_that_typical_pods_can_no_longer_use_and_nothing_else() -> None:
    cache = ClusterCache()
    for at in range(2):
        cache.upsert_node(make_node(f"n{at}").allocatable(cpu="64", memory="256Gi").gpus(4).node())
    cache.observe(make_pod("there").cpu("1").gpu_milli(1000).on("n1").pod())
    whole = tuple(sorted(make_pod().cpu("1").gpu_milli(4000).pod().pod_class.requests))
    small = make_pod().cpu("1").gpu_milli(1000).pod()
    free, broken = costs("gpus", cache, small, [(whole, 1.0)])
    assert broken == 0 < free
    assert costs("gpus", cluster(0, 3), POD) == [0.0, 0.0]


def test_a_reward_means_what_it_meant_in_training() -> None:
    """The same features, but for the hour of the twin's day; and the same value of each for every node."""
    assert set(FEATURES) == set(TRAINED_FEATURES) - {"hour"}
    cache, pod = cluster(0, 3, 5), make_pod().cpu("1").memory("1Gi").set(annotations=LIMITS).pod()
    table = cache.table
    rows = np.array([table.row_of[f"n{at}"] for at in range(3)])
    pods = np.array([0, 3, 5])
    for name in FEATURES:
        for at, cost in enumerate(costs(f"reward: {name}", cache, pod)):
            after = pods + (np.arange(3) == at)
            placed = RewardedPlacement(
                node_load(table, rows), at, after, int(table.latency_us[rows[at]]), pod.pod_class.latency_soft_us,
                pod.pod_class.latency_hard_us,
            )  # fmt: skip
            assert -cost == pytest.approx(features_of(placed, 0.0)[name]), (name, at)


def test_a_reward_is_worked_out_for_a_bounded_number_of_kinds_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ClusterCache()
    for at in range(3 * MOST_KINDS):
        cache.upsert_node(make_node(f"n{at}").allocatable(cpu="64", memory="64Gi").node())
        cache.observe(make_pod(f"p{at}").cpu(f"{1 + 60 * at}m").on(f"n{at}").pod())
    goal, asked = ExpressionGoal("-load"), []
    worth = goal._worth
    monkeypatch.setattr(goal, "_worth", lambda values: asked.append(values) or worth(values))
    found = goal(cache.table, POD.pod_class, cache.table.live_rows(), RoomMeasure(cache.table, ()))
    assert len(found) == 3 * MOST_KINDS
    assert len(asked) <= MOST_KINDS
    exact = node_load(cache.table, cache.table.live_rows())
    assert np.abs(found - exact).max() <= 2 * (exact.max() - exact.min()) / MOST_KINDS


def expression_costs(text: str, cache: ClusterCache, pod=POD) -> list[float]:
    rows = np.array([cache.table.row_of[f"n{at}"] for at in range(len(cache.table.row_of))])
    return ExpressionGoal(text)(cache.table, pod.pod_class, rows, RoomMeasure(cache.table, ())).tolist()


def test_the_fewest_pods_of_a_node_are_those_of_the_emptiest_one_with_the_pod_there() -> None:
    assert expression_costs("pods_least", cluster(1, 3, 5)) == [-2.0, -1.0, -1.0]
    assert expression_costs("pods_least", cluster(1, 1, 5)) == [-1.0, -1.0, -1.0]
    assert expression_costs("pods_least", cluster(0, 3, 5)) == [-1.0, 0.0, 0.0]


@pytest.mark.parametrize("text", ["latency_ms", "latency_kept", "pods_most - load", "nodes_used", "load + latency_ms"])
def test_many_unlike_nodes_are_worth_what_each_is_alone(text: str) -> None:
    cache, many = ClusterCache(), 600
    for at in range(many):
        builder = make_node(f"n{at}").allocatable(cpu="64", memory="64Gi")
        builder.json["metadata"]["annotations"] = {"conclave.io/latency-ms": str(at % 577)}
        cache.upsert_node(builder.node())
        for number in range(at % 7):
            cache.observe(make_pod(f"p{at}-{number}").cpu(f"{1 + (37 * at) % 9000}m").on(f"n{at}").pod())
    pod = make_pod().cpu("1").set(annotations={"latencySoftConstraint": "100", "latencyHardConstraint": "300"}).pod()
    rows = np.array([cache.table.row_of[f"n{at}"] for at in range(many)])
    load, pods = node_load(cache.table, rows), np.arange(many) % 7
    worth, found = RewardExpression(text, FEATURES), expression_costs(text, cache, pod)
    for at in range(0, many, 7):
        after = pods + (np.arange(many) == at)
        latency = int(cache.table.latency_us[rows[at]])
        placed = RewardedPlacement(
            load, at, after, latency, pod.pod_class.latency_soft_us, pod.pod_class.latency_hard_us
        )
        near = float(np.ptp(load)) / MOST_KINDS if "load" in text else 1e-9
        assert -found[at] == pytest.approx(worth(features_of(placed, 0.0)), abs=near), at


def test_an_expression_that_reads_no_node_has_one_worth() -> None:
    assert expression_costs("nodes + 1", cluster(0, 1)) == [-3.0, -3.0]


def test_a_reward_that_divides_by_zero_has_no_value() -> None:
    with pytest.raises(RewardFailed, match="goal: "):
        costs("reward: 1 / load_least", cluster(0, 3), POD)


@pytest.mark.parametrize(
    ("goal", "told"),
    [
        ("fastest", "goal: 'fastest' is not known; choose one of neutral, balance, gpus, joules, latency, nodes"),
        ("reward: -price * nodes_used", "goal, column 2: there is no feature 'price'"),
        ("reward: hour", "goal, column 1: there is no feature 'hour'"),
        ("reward: my-plugin", "or compare by another one with --goal"),
        ("reward: 1 +", "is no expression"),
        ("reward:", "is no expression"),
    ],
)
def test_a_card_that_names_an_unknown_goal_or_input_is_refused_in_one_line(goal: str, told: str) -> None:
    card = msgspec.structs.replace(shipped("ee").card, goal=goal)
    with pytest.raises(GoalUnknown) as refused:
        goal_of("ee", card)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_each_policy_is_for() -> None:
    said = {name: goal_of(name) for name in (*HEURISTICS, *LEARNED)}
    assert said["ee"] == "nodes"
    assert said["lb"] == said["marl-dqn"] == said["kube-default"] == said["least-allocated"] == "balance"
    assert said["el"] == "latency"
    assert said["frag"] == said["fgd"] == "gpus"
    assert said["power"] == "joules"
    assert said["most-allocated"] == "packing"
    assert said["random"] == said["hybrid"] == ""
    card = msgspec.structs.replace(shipped("ee").card, goal="joules")
    assert goal_of("ee", card) == "joules"


def test_the_operators_word_comes_before_the_settings_and_those_before_the_card() -> None:
    pointer = PolicyPointer(active=PolicyRef("kube-default", 1))
    candidate = publish(pointer, PolicyRef("ee", 1, "a" * 64), by="olga", made_for="nodes").after
    by_card, by_setting = RolloutSettings(), RolloutSettings(goal="room")
    assert deciding_goal(candidate, by_card) == "nodes"
    assert deciding_goal(candidate, by_setting) == "room"
    assert deciding_goal(msgspec.structs.replace(candidate, goal="balance"), by_setting) == "balance"
    for nothing in ("", "of a later version"):
        assert deciding_goal(msgspec.structs.replace(candidate, made_for=nothing), by_card) == NEUTRAL


@pytest.mark.parametrize("goal", GOALS)
def test_every_goal_gives_each_node_a_finite_cost(goal: str) -> None:
    found = costs(goal, cluster(0, 3, 8), POD)
    assert len(found) == 3
    assert np.isfinite(found).all()


def test_joules_go_by_the_users_curves_and_count_the_gpus_that_a_pod_begins() -> None:
    own = parse_power_curves(
        "[nodes.a]\nwatts = [0, 80]\n[nodes.b]\nwatts = [0, 160]\n[gpus.'*']\nidle = 10\npeak = 60"
    )
    cache = ClusterCache()
    for number, curve in enumerate(("a", "b", "a")):
        node = make_node(f"n{number}").allocatable(cpu="8", memory="8Gi").label(**{CURVE_LABEL: curve})
        cache.upsert_node(node.gpus(2).node())
    cache.observe(make_pod("there").cpu("1").gpu_milli(500).on("n2").pod())
    pod = make_pod().cpu("1").gpu_milli(400).pod()
    rows = np.arange(3)
    room = RoomMeasure(cache.table, (), NodePower(own))
    assert goal_named("joules")(cache.table, pod.pod_class, rows, room).tolist() == pytest.approx([60, 70, 10])
