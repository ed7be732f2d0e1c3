"""Watching policies place pods: what is known of simple ones must come out."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from lab.evaluation.behaviour import choice_of, fullness_ranks, run_scene, thesis_scene, watch
from lab.worlds.placement.table_run import PolicyChooser, TablePod, TableRun
from shared.errors import ConfigError
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.resources import Resources
from shared.policy.registry import make_policy


def nodes(count: int) -> list[Node]:
    return [
        Node(name=f"n{i}", uid="", resource_version="", allocatable=Resources(cpu=1000, memory=1000, pods=9))
        for i in range(count)
    ]


def job(name: str, at_s: float, cpu: int, duration_s: float | None = None) -> TablePod:
    return TablePod(name, at_s, PodClass((("cpu", cpu), ("memory", cpu)), cpu, cpu), duration_s)


def test_a_policy_agrees_with_itself() -> None:
    found = watch("kube-default", [42])
    assert found.agreement == 1.0
    assert found.regret == 0.0
    assert all(own == pytest.approx(other) for own, other in found.costs.values())


def test_packing_uses_fewer_nodes_and_is_less_even() -> None:
    found = watch("most-allocated", [42])
    assert found.agreement < 0.5
    assert found.groups[0].means[-1] > 0.65
    own, other = found.costs["nodes in use"]
    assert own < other
    own, other = found.costs["imbalance of true use"]
    assert own > other
    own, other = found.costs["energy, Wh, empty nodes off"]
    assert own < other


def test_same_seed_gives_the_same_run() -> None:
    scene = thesis_scene(7)
    runs = [run_scene(scene, "random", "kube-default", 7) for _ in range(2)]
    assert runs[0] == runs[1]


def test_a_pod_that_fits_nowhere_waits_until_one_ends() -> None:
    jobs = [job("a", 0, 800, 10), job("b", 1, 800), job("c", 2, 100)]
    run = TableRun(nodes(1), jobs, PolicyChooser(make_policy("kube-default"), Random(1)))
    assert [(step.job.uid, step.at_s) for step in run] == [("a", 0), ("c", 2), ("b", 10)]
    assert run.unplaced == []


def test_a_pod_that_never_fits_is_told() -> None:
    run = TableRun(nodes(2), [job("big", 0, 5000)], PolicyChooser(make_policy("kube-default"), Random(1)))
    assert list(run) == []
    assert [one.uid for one in run.unplaced] == ["big"]


def test_ranks_go_from_the_emptiest_to_the_fullest_and_equals_share_the_middle() -> None:
    run = TableRun(nodes(3), [job("a", 0, 500)], PolicyChooser(make_policy("kube-default"), Random(1)))
    first = next(iter(run))
    table, rows = first.observation.table, first.observation.rows
    assert fullness_ranks(table, rows).tolist() == [0.5, 0.5, 0.5]
    table.add_usage(2, first.job.pod_class, ())
    assert fullness_ranks(table, rows).tolist() == [0.25, 0.25, 1.0]
    assert fullness_ranks(table, np.array([1])).tolist() == [0.0]


def test_a_choice_the_baseline_holds_equally_good_agrees() -> None:
    run = TableRun(nodes(3), [job("a", 0, 500)], lambda _job, _observation: 2)
    found = choice_of(next(iter(run)), make_policy("least-allocated"), Random(1))
    assert found.agrees
    assert found.regret == 0.0


def test_a_policy_that_reads_measurements_is_fed_with_them() -> None:
    """marl-dqn balances what is really used; where nothing is measured it cannot do better than by requests."""
    own, other = watch("marl-dqn", [42]).costs["imbalance of true use"]
    assert own < 0.9 * other


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"'crystal-ball' is not known; choose among .*kube-default, .*marl-dqn"):
        watch("crystal-ball", [42])
    with pytest.raises(ConfigError, match="single-dqn is made for 4 nodes"):
        watch("single-dqn", [42])
