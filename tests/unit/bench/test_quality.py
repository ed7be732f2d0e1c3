"""``bench.quality``: a burst decides no worse than one pod at a time, and each safeguard of that is seen to be one."""

from __future__ import annotations

from typing import Any

import pytest

from bench.quality.scenes import APPS, fill
from bench.quality.world import QualityWorld
from bench.stand.figures import quantile
from lab.traces.workload import pod_json
from services.coordinator.core.state import CoreSettings
from services.coordinator.cycle.candidates import Candidates
from services.coordinator.cycle.cycle import Cycle
from shared.scheduling.state.room.counted import Counted

MEAN, P99 = 0.5, 2.0
"""Points of 100."""
NODES, PODS = 48, 240


def played(
    scene: str, agents: int, *, policy: str = "kube-default", nodes: int = NODES, pods: int = PODS, **settings: Any
) -> QualityWorld:
    world = QualityWorld(policy=policy, agents=agents, seed=1, settings=CoreSettings(**settings))
    fill(world, scene, nodes, pods)
    assert world.rest(600)
    assert len(world.bound) == pods
    assert not world.judge.misplaced
    return world


def mean(world: QualityWorld) -> float:
    return sum(world.judge.regrets) / len(world.judge.regrets)


@pytest.mark.parametrize("agents", [0, 1, 4])
@pytest.mark.parametrize("scene", ["unlike", "used", "like", "deployments", "zone-spread", "affinity", "anti-affinity"])
def test_a_burst_decides_no_worse_than_one_pod_at_a_time(scene: str, agents: int) -> None:
    world = played(scene, agents)
    assert mean(world) <= MEAN
    assert quantile(world.judge.regrets, 99) <= P99


def test_pods_that_must_be_spread_are_judged_by_what_stands_not_by_what_is_on_its_way() -> None:
    """The fourth pod of an app may go where one of each zone's stands."""
    assert mean(played("zone-spread", 1, pods=4 * APPS)) <= MEAN


@pytest.mark.parametrize("agents", [1, 4])
def test_the_fullest_node_of_a_burst_has_hardly_more_pods_than_one_by_one(agents: int) -> None:
    one_by_one = played("unlike", 1, batch_units=1)
    assert one_by_one.judge.regrets == [0.0] * PODS
    assert max(played("unlike", agents).on.values()) <= max(one_by_one.on.values()) + 2


@pytest.mark.parametrize("agents", [1, 4])
def test_a_burst_under_a_learned_policy_decides_no_worse_either(agents: int) -> None:
    world = played("unlike", agents, policy="marl-dqn", pods=96)
    assert mean(world) <= MEAN


def test_one_agent_that_decides_alone_about_a_class_is_that_which_owns_the_best_nodes() -> None:
    assert mean(played("used", 4, nodes=200, sole_nodes=10)) <= MEAN


def test_switched_off_agents_are_dealt_classes_by_use_alone_and_better_nodes_of_others_are_not_seen() -> None:
    assert mean(played("used", 4, nodes=200, sole_nodes=10, dispatch="least-loaded")) > MEAN


def test_switched_off_an_agent_that_counts_nothing_of_a_burst_gives_all_of_it_the_same_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Counted, "add", lambda *_: None)
    assert mean(played("unlike", 1)) > MEAN


@pytest.mark.parametrize(("scene", "agents"), [("anti-affinity", 1), ("unlike", 4)])
def test_switched_off_nodes_that_are_not_scored_anew_are_taken_for_what_they_were(
    monkeypatch: pytest.MonkeyPatch, scene: str, agents: int
) -> None:
    monkeypatch.setattr(Candidates, "refresh", lambda _: None)
    assert mean(played(scene, agents)) > MEAN


def test_switched_off_classes_of_a_learned_policy_that_share_a_cycle_get_the_same_nodes_of_several_agents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Cycle, "_apart", lambda *_: None)
    assert mean(played("unlike", 4, policy="marl-dqn", pods=96)) > MEAN


def test_a_pod_on_another_node_than_the_best_has_that_regret() -> None:
    world = QualityWorld(policy="kube-default", agents=0, seed=1)
    for name, cpu in (("small", "10"), ("large", "20")):
        amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        world.add_node({"metadata": {"name": name}, "status": {"allocatable": amounts, "capacity": amounts}})
    uid = world.add_pod(pod_json("pod", {"cpu": "5", "memory": "32Gi"}))
    world.judge.commit(world.pods[uid], "small")
    # least allocated: 50 beside (75 + 50) / 2; balanced: 75, as even as before, beside 68; of 200 points
    assert world.judge.regrets == [pytest.approx(0.5 * ((62 + 68) - (50 + 75)))]
