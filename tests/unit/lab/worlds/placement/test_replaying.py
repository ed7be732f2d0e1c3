"""Replaying a capture whose truth is known."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from lab.worlds.placement.replaying import group_of, jobs_of, replay
from lab.worlds.placement.table_run import PolicyChooser, TablePod, TableRun, repeat_history
from shared.kube.pods.convert import node_from_api
from shared.model.constraints import PodClass
from shared.policy.registry import make_policy
from tests.builders import make_node
from tests.captures import make_capture, pod
from twin.model.capture import CapturedPod


def test_estimates_from_the_first_half_explain_the_second() -> None:
    found = replay(make_capture())
    assert found.fitted is not None
    assert found.requests.by_part["cpu"] > 3.0
    assert max(found.fitted.by_part.values()) < 1.0
    assert (found.annotated, found.estimated + found.requested) == (0, 24)


def test_error_is_taken_where_the_estimate_has_not_looked() -> None:
    """The ablation: what the second half hides cannot be learned from the first."""
    capture = make_capture()
    half = capture.steps // 2
    for series in capture.series.values():
        series["cpu"][half:] = [value + 800 for value in series["cpu"][half:]]
    found = replay(capture)
    assert found.fitted is not None
    assert found.fitted.by_part["cpu"] == pytest.approx(20.0, abs=1.0)


def test_few_steps_give_no_estimate() -> None:
    found = replay(make_capture(steps=6))
    assert found.fitted is None
    assert found.estimated == 0


def test_an_annotation_is_believed_before_an_estimate() -> None:
    capture = make_capture(pods=4)
    pods = [
        msgspec.structs.replace(
            one,
            pod=msgspec.structs.replace(
                one.pod,
                metadata=msgspec.structs.replace(
                    one.pod.metadata, annotations={"conclave.io/usage": '{"u":[[0,300,40000000,0,400000]]}'}
                ),
            ),
        )
        for one in capture.pods
    ]
    found = replay(msgspec.structs.replace(capture, pods=pods))
    assert (found.annotated, found.estimated) == (4, 0)


def test_another_policy_is_judged_on_the_same_pods() -> None:
    found = replay(make_capture(), policy="most-allocated", rng=Random(1))
    assert found.other is not None
    assert found.decided + sum(1 for job in jobs_of(make_capture())[0] if job.node) == 24
    assert found.moved > 0
    assert found.other.imbalance > found.recorded.imbalance


def test_history_can_be_repeated_and_what_the_filters_forbid_is_left_out() -> None:
    capture = make_capture()
    wide = CapturedPod(pod("wide", "big", "n1", cpu="64"), 5.0, 5.0, None)
    jobs, _ = jobs_of(msgspec.structs.replace(capture, pods=[*capture.pods, wide]))
    run = TableRun([node_from_api(node) for node in capture.nodes], jobs, repeat_history)
    where = {step.job.uid: step.node for step in run}
    assert where
    assert all(where[job.uid] == job.was_on for job in jobs if job.uid in where)
    assert [job.uid for job in run.unplaced] == ["uid-wide"]


def test_pods_of_one_owner_are_one_group() -> None:
    capture = make_capture(pods=4)
    assert [group_of(one) for one in capture.pods] == ["default/ReplicaSet:web", "default/ReplicaSet:job"] * 2


def test_a_pod_that_cannot_be_read_is_named_and_left_out() -> None:
    capture = make_capture(pods=2)
    bad = CapturedPod(pod("odd", "x", "n1", cpu="many"), 5.0, 5.0, None)
    found = replay(msgspec.structs.replace(capture, pods=[*capture.pods, bad]))
    assert len(found.unusable) == 1
    assert "default/odd" in found.unusable[0]


def test_a_policy_that_reads_measurements_gets_those_of_its_own_placement() -> None:
    """By requests alone all pods look alike; marl-dqn evens out what they are estimated to use."""
    capture = make_capture(pods=60, steps=120)
    learned = replay(capture, policy="marl-dqn", rng=Random(1)).other
    by_requests = replay(capture, policy="random", rng=Random(1)).other
    assert learned is not None
    assert by_requests is not None
    assert learned.imbalance < by_requests.imbalance


def test_a_pod_with_a_strict_limit_to_a_target_is_placed_where_nobody_measures_latencies() -> None:
    strict = PodClass(latency_hard_us=30_000, latency_target="shop", latency_strict=True)
    nodes = [make_node(name).node() for name in ("a", "b")]
    run = TableRun(nodes, [TablePod("p", 0.0, strict)], PolicyChooser(make_policy("kube-default"), Random(1)))
    assert next(iter(run)).node in ("a", "b")
    assert run.unplaced == []
