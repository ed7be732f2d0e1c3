"""Each goal comes nearer, by moves that every filter passes, and a second run on the result moves nobody."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import pytest

from shared.errors import ConfigError
from shared.rebalance.history import MoveHistory, PastMove
from shared.rebalance.limits import Caps
from shared.rebalance.plan import GoalName
from tests.builders import make_node, make_pod
from tests.unit.shared.rebalance.worlds import NOW, after, budget, owned, places, planned, world


def test_load_becomes_even_by_what_is_measured_and_not_by_requests() -> None:
    nodes = [make_node(name) for name in "abc"]
    pods = [owned(f"hot-{i}", "a", "500m") for i in range(4)] + [owned(f"calm-{i}", "b", "500m") for i in range(4)]
    used = {"a": (3600.0, 4e6), "b": (200.0, 4e6), "c": (100.0, 4e6)}
    there = world(nodes, pods, used=used)
    found = planned(there, GoalName.LOAD)
    assert found.after < found.before / 2
    assert {move.source for move in found.moves} == {"a"}


def test_a_second_run_on_the_result_moves_nobody() -> None:
    nodes = [make_node(name).allocatable(cpu="16", memory="64Gi") for name in "abcd"]
    pods = [owned(f"p{i}", "a" if i < 20 else "b", "500m", "2Gi") for i in range(28)]
    for goal in (GoalName.LOAD, GoalName.EMPTY_NODES, GoalName.FRAGMENTATION, GoalName.LATENCY):
        there = world(nodes, pods)
        first = planned(there, goal)
        assert planned(after(there, first), goal).moves == (), goal


def test_idle_gpu_in_pieces_becomes_whole_devices() -> None:
    nodes = [make_node(name).gpus(1) for name in "abcd"]
    pods = [owned(f"half-{name}", name, "100m", owner="half").gpu_milli(500) for name in "abc"]
    pods += [owned("whole", "d", "100m", owner="whole").gpu_milli(1000)]
    wanted = make_pod("waits").cpu("100m").gpu_milli(1000)
    found = planned(world(nodes, pods, waiting=[wanted]), GoalName.FRAGMENTATION)
    assert len(found.moves) == 1
    assert found.after < found.before


def test_a_node_is_emptied_whole_or_not_at_all() -> None:
    nodes = [make_node(name).allocatable(cpu="4") for name in "abc"]
    pods = [owned("a-1", "a", "3"), owned("b-1", "b", "2"), owned("c-1", "c", "1"), owned("c-2", "c", "2")]
    found = planned(world(nodes, pods), GoalName.EMPTY_NODES)
    assert (found.before, found.after) == (3.0, 2.0)
    assert len(found.freed) == 1
    full = planned(world(nodes, [owned(f"{name}-1", name, "3") for name in "abc"]), GoalName.EMPTY_NODES)
    assert (full.moves, full.freed) == ((), ())


def test_a_daemon_sets_pods_keep_no_node_in_use() -> None:
    daemon = owned("agent", "a", "100m")
    daemon.json["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    found = planned(world([make_node("a"), make_node("b")], [daemon, owned("w", "b")]), GoalName.EMPTY_NODES)
    assert found.before == 1.0
    assert found.moves == ()


def test_a_broken_limit_of_latency_is_kept_elsewhere() -> None:
    nodes = [make_node("far"), make_node("near")]
    nodes[0].json["metadata"]["annotations"] = {"conclave.io/latency-ms": "80"}
    nodes[1].json["metadata"]["annotations"] = {"conclave.io/latency-ms": "5"}
    limited = owned("game", "far", annotations={"latencyHardConstraint": "20"})
    found = planned(world(nodes, [limited, owned("batch", "far")]), GoalName.LATENCY)
    assert places(found) == {"game": "near"}
    assert (found.before, found.after) == (60.0, 0.0)


def test_room_for_a_pod_that_fits_nowhere_is_made_by_the_fewest_moves() -> None:
    nodes = [make_node(name).allocatable(cpu="8") for name in "abc"]
    pods = [owned("a-1", "a", "3"), owned("a-2", "a", "2"), owned("b-1", "b", "5"), owned("c-1", "c", "6")]
    big = make_pod("big").cpu("6")
    found = planned(world(nodes, pods, waiting=[big]), GoalName.UNBLOCK, unit="default/big")
    assert len(found.moves) == 1
    assert found.unblocked == {"default/big": found.moves[0].source}
    assert (found.before, found.after) == (1.0, 0.0)


def test_a_gang_is_named_as_people_name_it() -> None:
    nodes = [make_node(name).allocatable(cpu="8") for name in "abc"]
    gang = [make_pod("g-0").cpu("8")]
    gang[0].json["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    there = world(nodes, [owned(f"{name}-1", name, "3") for name in "abc"], waiting=gang)
    for unit in ("default/g", "podgroup:default/g"):
        assert planned(there, GoalName.UNBLOCK, unit=unit).unblocked.keys() == {"default/g-0"}
    with pytest.raises(ConfigError, match="no pod waits that is default/other"):
        planned(there, GoalName.UNBLOCK, unit="default/other")


def test_who_has_no_room_whoever_moves_disturbs_nobody() -> None:
    there = world([make_node("a"), make_node("b")], [owned("w", "a", "2")], waiting=[make_pod("huge").cpu("5")])
    found = planned(there, GoalName.UNBLOCK, unit="default/huge")
    assert found.moves == ()
    assert "no room whoever may move" in found.stopped


def test_a_move_holds_to_spread_and_affinity() -> None:
    nodes = [
        make_node(name).allocatable(cpu="8").label(zone=zone) for name, zone in (("a", "1"), ("b", "2"), ("c", "2"))
    ]
    spread = {
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }  # fmt: skip
    pods = [owned("a-1", "a"), owned("b-1", "b"), owned("c-1", "c", owner="other")]
    for pod in pods[:2]:
        pod.json["spec"]["topologySpreadConstraints"] = [spread]
    found = planned(world(nodes, pods), GoalName.EMPTY_NODES)
    zone_of = {"a": "1", "b": "2", "c": "2"}
    stands = {"a-1": "a", "b-1": "b"} | {k: v for k, v in places(found).items() if k in ("a-1", "b-1")}
    assert {zone_of[node] for node in stands.values()} == {"1", "2"}
    assert found.after == 2.0


def test_nobody_moves_twice_within_a_time_nor_back() -> None:
    nodes = [make_node(name).allocatable(cpu="16", memory="64Gi") for name in "ab"]
    pods = [owned(f"p{i}", "a", "1") for i in range(6)]
    there = world(nodes, pods)
    past = tuple(PastMove("default/ReplicaSet:web", "b", "a", NOW - 60.0, f"uid-p{i}") for i in range(3))
    assert planned(there, GoalName.LOAD).moves
    assert planned(there, GoalName.LOAD, history=MoveHistory(past[:1], again_after_s=3600.0)).moves == ()
    old = planned(there, GoalName.LOAD, history=MoveHistory(past, again_after_s=30.0))
    assert old.moves


def test_large_pods_do_not_move_round() -> None:
    """descheduler #1695: with two large pods one node is always over its threshold, whichever it is."""
    nodes = [make_node(name).allocatable(cpu="10", memory="64Gi") for name in "abc"]
    pods = [owned("large-1", "a", "7"), owned("large-2", "b", "7"), owned("small", "c", "1")]
    there = world(nodes, pods)
    first = planned(there, GoalName.LOAD)
    assert not {"large-1", "large-2"} & set(places(first))
    assert planned(after(there, first), GoalName.LOAD).moves == ()


def test_a_pod_does_not_come_back_to_the_node_that_it_was_moved_from() -> None:
    """descheduler #424: what evicts and what scores disagree, so the pod comes back; here its workload may not."""
    nodes = [make_node(name).allocatable(cpu="4") for name in "ab"]
    there = world(nodes, [owned("w-new", "a", "1"), owned("x", "a", "2")])
    back = MoveHistory((PastMove("default/ReplicaSet:web", "b", "a", NOW - 10.0, "uid-gone"),))
    assert planned(there, GoalName.LOAD, history=back).moves == ()


def test_a_thin_margin_moves_nobody() -> None:
    """descheduler #1461: nodes about the threshold are evicted from again and again for no gain."""
    nodes = [make_node(name).allocatable(cpu="10", memory="64Gi") for name in "ab"]
    pods = [owned(f"a-{i}", "a", "500m", "1Gi") for i in range(6)] + [
        owned(f"b-{i}", "b", "500m", "1Gi") for i in range(5)
    ]
    assert planned(world(nodes, pods), GoalName.LOAD).moves == ()


@pytest.mark.parametrize(
    ("caps", "most", "word"),
    [
        (Caps(moves=2), 2, "moves"),
        (Caps(per_node=1), 1, "perNode"),
        (Caps(per_namespace=3), 3, "perNamespace"),
        (Caps(per_workload=2), 2, "perWorkload"),
        (Caps(per_hour=4), 4, "perHour"),
    ],
)
def test_caps_hold_and_are_named(caps: Caps, most: int, word: str) -> None:
    nodes = [make_node(name).allocatable(cpu="16", memory="64Gi") for name in "abcd"]
    found = planned(world(nodes, [owned(f"p{i}", "a", "1") for i in range(12)]), GoalName.LOAD, caps=caps)
    assert len(found.moves) == most
    assert word in found.stopped


def test_the_last_hours_moves_count_against_the_cap_per_hour() -> None:
    nodes = [make_node(name).allocatable(cpu="16", memory="64Gi") for name in "abcd"]
    past = MoveHistory(tuple(PastMove("default/Job:x", "a", "b", NOW - 60.0 * i) for i in range(3)), again_after_s=1.0)
    there = world(nodes, [owned(f"p{i}", "a", "1") for i in range(12)])
    assert len(planned(there, GoalName.LOAD, caps=Caps(per_hour=4), history=past).moves) == 1


def test_a_budget_that_never_allows_holds_its_pods() -> None:
    nodes = [make_node(name).allocatable(cpu="16", memory="64Gi") for name in "ab"]
    there = world(nodes, [owned(f"p{i}", "a", "1") for i in range(6)], budgets=[budget("never", "web", 0)])
    found = planned(there, GoalName.LOAD)
    assert found.moves == ()
    assert found.protected == {"PodDisruptionBudget": 6}


def test_a_least_gain_of_nothing_has_an_end() -> None:
    """A gain of rounding size is none."""
    there = world([make_node(name) for name in "abc"], [owned(f"p{i}", "abca"[i]) for i in range(4)])
    found = planned(there, GoalName.LATENCY, caps=Caps(min_gain=0.0))
    assert found.moves == ()
    assert found.stopped.startswith("no further move")


def test_a_node_with_room_that_is_kept_for_others_is_not_emptied() -> None:
    there = world([make_node(name) for name in "ab"], [owned("a-1", "a"), owned("b-1", "b")])
    assert planned(there, GoalName.EMPTY_NODES).freed
    kept = dataclasses.replace(there, reserved=frozenset("ab"))
    assert planned(kept, GoalName.EMPTY_NODES).moves == ()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("goal", [GoalName.LOAD, GoalName.EMPTY_NODES, GoalName.FRAGMENTATION])
def test_no_batch_takes_more_of_a_budget_than_it_allows(goal: GoalName, seed: int) -> None:
    """As the eviction API sees it: a batch begins when the one before is Ready again."""
    rng = random.Random(seed)
    nodes = [make_node(name).allocatable(cpu="16", memory="32Gi", pods="110") for name in "abcdef"]
    pods = [
        owned(f"p{i}", "aabbbcdef"[rng.randrange(9)], rng.choice(["500m", "1", "2"]), owner=f"w{i % 4}")
        for i in range(24)
    ]
    allowed = {"w0": 0, "w1": 1, "w2": 2}
    budgets = [budget(name, name, most) for name, most in allowed.items()]
    found = planned(world(nodes, pods, budgets=budgets), goal)
    assert "budget w0" not in {name for move in found.moves for name in move.disturbs}
    for batch in found.batches:
        taken = Counter(name for move in batch for name in move.disturbs if name.startswith("budget"))
        assert all(count <= allowed[name.removeprefix("budget ")] for name, count in taken.items())
