"""A captured cluster to train on: days held back, arrivals drawn anew, faults, and captures with holes."""

from __future__ import annotations

from dataclasses import replace as copied

import msgspec
import numpy as np
import pytest

from lab.worlds.placement.captured_cluster import FAULTS, CapturedCluster, DrawnEpisode, cluster_of
from lab.worlds.placement.replaying import lives_of
from shared.errors import ConfigError
from tests.captures import TRUE_USE, day_capture, make_capture, node, pod
from twin.model.capture import Capture, CapturedPod

NAME = "c.json.gz"
DAY_S = 86_400.0


def draw(cluster: CapturedCluster, seed: int, **more: int) -> DrawnEpisode:
    return cluster.drawn(np.random.default_rng(seed), **({"arrivals": 20, "most_nodes": 16} | more))


def owners(drawn: DrawnEpisode) -> set[str]:
    return {one.pod_class.workload.rpartition(":")[2] for one in drawn.pods}


def late(capture: Capture, since_day: int) -> Capture:
    """The pods from that day on are of an owner of their own."""
    pods = [
        one
        if one.arrived_s < since_day * DAY_S
        else msgspec.structs.replace(one, pod=pod(one.pod.metadata.name, "late", one.pod.spec.node_name or ""))
        for one in capture.pods
    ]
    return msgspec.structs.replace(capture, pods=pods)


@pytest.mark.parametrize(("days", "held"), [(3, 1), (8, 2), (12, 3)])
def test_the_last_quarter_of_the_days_is_held_back_and_never_learned_from(days: int, held: int) -> None:
    cluster = cluster_of(late(day_capture(days, each=8), days - held), NAME)
    assert cluster.held_back == tuple((day * DAY_S, (day + 1) * DAY_S) for day in range(days - held, days))
    assert cluster.training[-1][1] == cluster.held_back[0][0]
    assert all("late" not in owners(draw(cluster, seed)) for seed in range(60))
    assert {
        owner for drawn in cluster.validation(episodes=6, arrivals=50, most_nodes=9) for owner in owners(drawn)
    } == {"late"}


def test_of_a_capture_of_hours_the_last_quarter_is_held_back() -> None:
    cluster = cluster_of(make_capture(pods=400), NAME)
    length_s = make_capture().length_s
    assert cluster.held_back == ((pytest.approx(length_s * 0.75), pytest.approx(length_s)),)


def test_a_pod_stands_for_those_that_come_at_its_time_of_day() -> None:
    cluster = cluster_of(day_capture(), NAME)
    seen = [owners(draw(cluster, seed, arrivals=4)) for seed in range(80)]
    assert all(len(one) <= 2 for one in seen)  # a draw that begins with the last of the hour goes on with the next
    assert {"night", "noon", "evening"} == set().union(*seen)
    only = [one for one in (draw(cluster, seed, arrivals=1) for seed in range(80)) if one.pods]
    assert all(len(owners(one)) == 1 for one in only)


def test_a_draw_is_a_function_of_its_seed() -> None:
    cluster = cluster_of(make_capture(pods=400), NAME)
    assert draw(cluster, 3).pods == draw(cluster, 3).pods
    assert draw(cluster, 3).pods != draw(cluster, 4).pods
    first, again = (cluster.validation(episodes=3, arrivals=9, most_nodes=9) for _ in range(2))
    assert [one.pods for one in first] == [one.pods for one in again]


def test_nodes_die_in_some_episodes_but_not_where_two_are_all() -> None:
    many = cluster_of(day_capture(nodes=5), NAME)
    dead = [draw(many, seed).faults for seed in range(300)]
    assert sum(map(bool, dead)) / len(dead) == pytest.approx(FAULTS, abs=0.1)
    assert {fault.node for one in dead for fault in one} == set(range(5))
    two = cluster_of(day_capture(nodes=2), NAME)
    assert not any(draw(two, seed).faults for seed in range(100))
    assert not any(one.faults for one in many.validation(episodes=5, arrivals=9, most_nodes=9))


def test_a_large_cluster_is_thinned_with_its_pods() -> None:
    cluster = cluster_of(day_capture(nodes=40, each=60), NAME)
    drawn = [draw(cluster, seed, arrivals=10_000, most_nodes=10) for seed in range(20)]
    assert {len(one.cluster.nodes) for one in drawn} == {10}
    assert len({tuple(node.name for node in one.cluster.nodes) for one in drawn}) > 10
    whole = [draw(cluster, seed, arrivals=10_000, most_nodes=40) for seed in range(20)]
    share = sum(len(one.pods) for one in drawn) / sum(len(one.pods) for one in whole)
    assert share == pytest.approx(0.25, abs=0.1)


def test_what_pods_use_is_estimated_from_what_nodes_used() -> None:
    lives = lives_of(make_capture(pods=60))
    for owner, true in TRUE_USE.items():
        rows = [row for row, one in enumerate(lives.classes) if one.workload.endswith(owner)]
        assert lives.use[rows].mean(axis=0) == pytest.approx(true, rel=0.1, abs=5e4)


def test_pods_that_no_node_takes_are_left_out_and_told() -> None:
    capture = day_capture()
    wide = CapturedPod(pod("wide", "big", "", cpu="64"), 5.0)
    cluster = cluster_of(msgspec.structs.replace(capture, pods=[*capture.pods, wide]), NAME)
    assert cluster.told[-1] == "1 of 97 pods fit no node of the capture and are left out"
    assert len(cluster.lives.at_s) == 96


def test_pods_that_cannot_be_read_are_left_out_and_told() -> None:
    capture = day_capture()
    odd = CapturedPod(pod("odd", "x", "n1", cpu="many"), 5.0, 5.0, None)
    cluster = cluster_of(msgspec.structs.replace(capture, pods=[*capture.pods, odd]), NAME)
    assert any(line.startswith("pod default/odd") for line in cluster.told)


def test_holes_in_the_series_are_told_by_node_and_learned_around() -> None:
    capture = make_capture(pods=400)
    capture.series["n1"]["cpu"][10:50] = [None] * 40
    del capture.series["n2"]["memory"]
    cluster = cluster_of(capture, NAME)
    assert cluster.told == (
        "node n2: 100% of its cpu or memory was not measured; it is taken to use none beside its pods",
        "node n1: 50% of its cpu or memory was not measured; the rest of the series stands for it",
    )
    assert np.isfinite(cluster.lives.use).all()
    assert draw(cluster, 1).pods
    bare = cluster_of(msgspec.structs.replace(capture, series={}, step_s=0.0), NAME)
    assert bare.told == ("no metrics: pods are taken to use what they request",)
    assert {tuple(use) for use in bare.lives.use.tolist()} == {(100.0, 64.0 * (1 << 20), 0.0, 0.0)}


def test_values_that_jump_are_left_out_and_series_that_stand_still_are_told() -> None:
    capture = make_capture(pods=150)
    use = cluster_of(capture, NAME).lives.use.mean(axis=0)
    values = capture.series["n1"]["cpu"]
    for step in (5, 20, 60):
        values[step] = 1000 * (values[step] or 0.0)
    capture.series["n2"] = {part: [0.0] * len(values) for part in ("cpu", "memory")}
    cluster = cluster_of(capture, NAME)
    assert cluster.told == (
        (
            "node n1: 4% of its cpu or memory was not measured; the rest of the series stands for it; 3 values "
            "beyond 10 times what it can allocate are left out"
        ),
        "node n2: its cpu and memory never change; it reads a copy, or nothing measures it",
    )
    assert cluster.lives.use.mean(axis=0)[0] <= 1.1 * use[0], "by the jumps it would be many times as much"


def test_many_nodes_with_holes_are_three_lines_and_a_count() -> None:
    capture = make_capture(pods=400)
    more = [node(f"m{number}") for number in range(5)]
    cluster = cluster_of(msgspec.structs.replace(capture, nodes=[*capture.nodes, *more]), NAME)
    assert len(cluster.told) == 4
    assert cluster.told[-1] == "and 2 more nodes with holes"


def test_a_day_without_any_pod_is_a_hole_that_is_stepped_over() -> None:
    capture = day_capture(8, each=6)
    gap = [one for one in capture.pods if not 2 * DAY_S <= one.arrived_s < 4 * DAY_S]
    cluster = cluster_of(msgspec.structs.replace(capture, pods=gap), NAME)
    assert all(draw(cluster, seed).pods for seed in range(50))


@pytest.mark.parametrize(
    ("capture", "told"),
    [
        pytest.param(day_capture(3, each=1), "6 pods came in the 48 hours to learn from, at least 40", id="few"),
        pytest.param(late(day_capture(3, each=0), 3), "0 pods came in the 48 hours to learn from", id="none"),
        pytest.param(day_capture(nodes=1), "one node; there is nothing to decide between", id="one node"),
        pytest.param(
            msgspec.structs.replace(
                day_capture(8), pods=[one for one in day_capture(8).pods if one.arrived_s < 6 * DAY_S]
            ),
            "0 pods came in the 48 hours held back",
            id="nothing held back",
        ),
    ],
)
def test_a_capture_that_cannot_be_learned_from_is_refused_in_one_line(capture: Capture, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        cluster_of(capture, NAME)
    assert str(refused.value).startswith(f"{NAME}: ")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_annotation_that_cannot_be_read_is_refused_in_one_line() -> None:
    capture = day_capture()
    first = capture.pods[0]
    meta = msgspec.structs.replace(first.pod.metadata, annotations={"conclave.io/usage": "{"})
    odd = msgspec.structs.replace(first, pod=msgspec.structs.replace(first.pod, metadata=meta))
    with pytest.raises(ConfigError, match=r"c.json.gz: .*conclave.io/usage"):
        cluster_of(msgspec.structs.replace(capture, pods=[odd, *capture.pods[1:]]), NAME)


def test_what_it_is_can_be_told_on_a_card() -> None:
    told = cluster_of(day_capture(), NAME).describe()
    assert (told["nodes"], told["pods"], told["days trained on"], told["days held back"]) == (4, 96, 6.0, 2.0)
    assert copied(cluster_of(day_capture(), NAME), told=("a hole",)).describe()["missing"] == ["a hole"]
