"""What a node lends, by what it and its pods are measured to use."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from services.coordinator.lending import node_loan
from services.coordinator.lending.ledger import KUBELET
from shared.scheduling.lending.rule import LendingRule
from tests.unit.services.coordinator.lending.scene import GB, RULE, LendingScene, pod


def test_nothing_is_lent_before_a_whole_window_was_seen() -> None:
    scene = LendingScene()
    assert scene.play(RULE.window_s - 10) == []
    scene.play(60)
    assert scene.lent == (4000, 45 * GB)


def test_what_online_pods_use_is_not_lent_whatever_they_request() -> None:
    scene = LendingScene()
    scene.pods = [pod("web", cpu="9")]
    scene.uses = {"default/web": (1500, 10 * GB)}
    scene.play(320)
    assert scene.lent == (6000 - 2000, 65 * GB - 20 * GB)  # 1500 of the pod, 500 of the system


def test_an_offline_pod_that_begins_takes_nothing_of_its_own_room() -> None:
    """The node shows its use at once, the metrics of pods a minute later."""
    scene = LendingScene()
    scene.pods = [pod("web")]
    scene.uses = {"default/web": (1500, 10 * GB)}
    scene.play(320)
    scene.pods.append(pod("job", batch_cpu=3000))
    assert scene.play(60, cpu=5000) == []
    scene.uses["default/job"] = (3000, 0)
    assert scene.play(60, cpu=5000) == []


def test_an_offline_pod_that_uses_more_than_before_takes_nothing_until_pods_are_measured() -> None:
    scene = LendingScene()
    scene.pods = [pod("web"), pod("job", batch_cpu=3000)]
    scene.uses = {"default/web": (1500, 10 * GB), "default/job": (0, 0)}
    scene.play(320)
    scene.uses_age_s = 60.0
    assert scene.play(50, cpu=4500) == []


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("beside", [0, 1000])
def test_an_offline_pod_that_ends_takes_nothing_from_the_others(measured: bool, beside: int) -> None:
    """Metrics of nodes and pods go on with it for a while; one that ended at once was never in those of pods."""
    scene = LendingScene()
    scene.pods = [pod("web")]
    scene.uses = {"default/web": (1500, 10 * GB)}
    if beside:
        scene.pods.append(pod("beside", batch_cpu=beside))
        scene.uses["default/beside"] = (beside, 0)
    scene.play(320, cpu=2000 + beside)
    scene.pods.append(pod("job", batch_cpu=3000))
    if measured:
        scene.uses["default/job"] = (3000, 5 * GB)
    assert scene.play(100 if measured else 10, cpu=5000 + beside) == []
    scene.pods.pop()
    assert scene.play(30, cpu=5000 + beside) == []
    scene.uses.pop("default/job", None)
    assert scene.play(20, cpu=5000 + beside) == []
    assert scene.play(RULE.window_s + RULE.rewrite_s, cpu=2000 + beside) == []


def test_what_is_used_after_an_offline_pod_ended_counts_again() -> None:
    scene = LendingScene()
    scene.pods = [pod("web"), pod("job", batch_cpu=3000)]
    scene.uses = {"default/web": (1500, 10 * GB), "default/job": (3000, 0)}
    scene.play(320, cpu=5000)
    scene.pods.pop()
    scene.uses.pop("default/job")
    scene.play(node_loan.SETTLED_S + 10, cpu=5000)
    assert scene.lent[0] == 1000


def test_jobs_that_end_all_the_time_take_nothing() -> None:
    scene = LendingScene()
    scene.pods = [pod("web"), pod("job", batch_cpu=3000)]
    scene.uses = {"default/web": (1500, 10 * GB), "default/job": (3000, 0)}
    scene.play(320, cpu=5000)
    assert scene.lent[0] == 4000
    for number in range(20):
        scene.pods[-1] = pod(f"job-{number}", batch_cpu=3000)
        scene.uses = {"default/web": (1500, 10 * GB), f"default/job-{number - 1}": (3000, 0)}
        assert scene.play(30, cpu=5000) == []


def test_what_is_used_beyond_all_that_offline_pods_may_use_counts_at_once() -> None:
    scene = LendingScene()
    scene.pods = [pod("web"), pod("job", batch_cpu=3000)]
    scene.uses = {"default/web": (1500, 10 * GB), "default/job": (1000, 0)}
    scene.play(320, cpu=3000)
    assert scene.lent[0] == 4000
    scene.uses_age_s = 60.0
    scene.play(10, cpu=8000)
    assert scene.lent[0] == 1000  # 5000 are surely online pods'


def test_what_offline_pods_use_is_lent() -> None:
    scene = LendingScene()
    scene.pods = [pod("web"), pod("job", batch_cpu=3000)]
    scene.uses = {"default/web": (1500, 10 * GB), "default/job": (3000, 5 * GB)}
    scene.play(320, cpu=5000)
    assert scene.lent == (4000, 50 * GB)


def test_the_reserved_counts_where_the_system_uses_less() -> None:
    scene = LendingScene(reserved="2")
    scene.pods = [pod("web")]
    scene.uses = {"default/web": (1500, 10 * GB)}
    scene.play(320)
    assert scene.lent[0] == 6000 - 2000 - 1500


def test_a_pod_without_a_metric_counts_with_its_request_and_not_twice() -> None:
    scene = LendingScene()
    scene.pods = [pod("web"), pod("new", cpu="3", memory="30G")]
    scene.uses = {"default/web": (1500, 10 * GB)}
    scene.play(320)
    assert scene.lent == (6000 - 1500 - 3000, 65 * GB - 10 * GB - 30 * GB)


def test_without_metrics_of_pods_the_nodes_use_counts_and_requests_of_those_that_just_came() -> None:
    scene = LendingScene()
    scene.pods = [pod("web", cpu="9")]
    scene.play(320)
    assert scene.lent[0] == 4000
    scene.pods.append(pod("new", cpu="3"))
    scene.play(10)
    assert scene.lent[0] == 1000
    scene.play(RULE.window_s + node_loan.SETTLED_S + 20)
    assert scene.lent[0] == 4000


def test_a_pod_that_is_gone_counts_while_metrics_name_it() -> None:
    scene = LendingScene()
    scene.pods = [pod("web"), pod("gone")]
    scene.uses = {"default/web": (500, GB), "default/gone": (1500, GB)}
    scene.play(320)
    scene.pods.pop()
    scene.play(30)
    assert scene.lent[0] == 4000
    scene.uses.pop("default/gone")
    scene.play(RULE.window_s + RULE.rewrite_s, cpu=500)
    assert scene.lent[0] == 5500


def test_more_use_takes_back_at_once_and_less_gives_after_the_window() -> None:
    scene = LendingScene()
    scene.play(320)
    assert [work.amounts and work.amounts[0] for work in scene.play(10, cpu=5000)] == [1000]
    scene.play(20, cpu=5000)
    scene.play(200, cpu=1000)
    assert scene.lent[0] == 1000
    scene.play(150, cpu=1000)
    assert scene.lent[0] == 5000


@pytest.mark.parametrize("cpu", [math.nan, math.inf, 0.0, 200_000.0, -1.0])
def test_use_that_cannot_be_changes_nothing_and_is_named(cpu: float) -> None:
    scene = LendingScene()
    scene.pods = [pod("web")]
    scene.play(320)
    scene.play(100, cpu=cpu)
    assert scene.lent[0] == 4000
    (doubt,) = scene.shown.doubts
    assert doubt.startswith("cpu: ")


def test_pods_that_use_more_than_their_node_are_not_believed() -> None:
    scene = LendingScene()
    scene.pods = [pod("web"), pod("job", batch_cpu=3000)]
    scene.uses = {"default/web": (1500, 10 * GB), "default/job": (100, GB)}
    scene.play(320)
    before = scene.lent
    scene.uses["default/job"] = (10_000, GB)  # as if the offline pod used all of it, and online pods nothing
    scene.play(60)
    assert scene.lent == before
    assert scene.shown.doubts == ["cpu: pods are measured to use 11500, and their node 2000"]


@pytest.mark.parametrize("factor", [100, 0.01])
def test_an_offline_pods_memory_that_is_wrong_lends_nothing_more(factor: float) -> None:
    scene = LendingScene()
    scene.pods = [pod("web"), pod("job", batch_cpu=3000)]
    scene.uses = {"default/web": (1500, 5 * GB), "default/job": (400, GB)}
    scene.play(320, memory=61 * GB)
    assert scene.lent[1] == 5 * GB
    scene.uses["default/job"] = (400, int(factor * GB))
    scene.play(2 * RULE.window_s, memory=61 * GB)
    assert 4 * GB <= scene.lent[1] <= 5 * GB
    told = ["memory: pods are measured to use 105000000000, and their node 61000000000"]
    assert scene.shown.doubts == (told if factor > 1 else [])


@pytest.mark.parametrize("name", ["web", "job"])
def test_a_pod_that_uses_more_memory_than_its_node_has_is_not_believed(name: str) -> None:
    scene = LendingScene()
    scene.pods = [pod("web"), pod("job", batch_cpu=3000)]
    scene.uses = {"default/web": (1500, 5 * GB), "default/job": (400, GB)}
    scene.play(320)
    before = scene.lent
    scene.uses[f"default/{name}"] = (400, 1000 * GB)
    assert scene.play(60) == []
    assert scene.lent == before
    assert scene.shown.doubts == [f"memory: 1000000000000 is not what default/{name} uses on a node of 93.13Gi"]


def test_pods_whose_caches_always_exceed_what_their_node_uses_still_lend_what_is_left() -> None:
    scene = LendingScene()
    scene.pods = [pod("web"), pod("job", batch_cpu=3000)]
    scene.uses = {"default/web": (1500, 5 * GB), "default/job": (400, 30 * GB)}
    scene.play(320)
    assert scene.lent[1] == 45 * GB, "as if all that is used were the system's and online pods'"


@pytest.mark.parametrize("ends", [True, False])
def test_pods_are_held_against_what_their_node_used_when_they_were_measured(ends: bool) -> None:
    """Load falls, or a great pod ends: nodes are measured sooner than pods."""
    scene = LendingScene()
    scene.pods = [pod("web"), pod("great")]
    scene.uses = {"default/web": (1500, 10 * GB), "default/great": (6000, GB)}
    scene.play(320, cpu=8000)
    if ends:
        scene.pods.pop()
    for age_s in range(10, 60, 10):
        scene.uses_age_s = age_s
        scene.play(10, cpu=2000)
        assert scene.shown.doubts == []


def test_a_node_without_pods_may_use_nothing() -> None:
    scene = LendingScene()
    scene.play(320, cpu=0, memory=0)
    assert scene.lent == (6000, 65 * GB)


def test_what_came_while_metrics_are_not_believed_is_not_lent() -> None:
    scene = LendingScene()
    scene.play(320)
    scene.pods = [pod("new", cpu="3", memory="10G")]
    scene.play(20, cpu=0)
    assert scene.lent == (1000, 35 * GB)


def test_after_15_minutes_without_metrics_nothing_is_lent() -> None:
    scene = LendingScene()
    scene.play(320)
    scene.now_s += RULE.degrade_s - 1
    assert scene.look() is None
    scene.now_s += 2
    work = scene.look()
    assert work is not None
    assert work.amounts is None  # not 0: that would have whoever runs on it leave
    assert scene.ledger.there(scene.node) == {}
    assert "nothing is lent" in scene.shown.why
    scene.now_s += RULE.degrade_s
    assert scene.look() is None


def test_a_kubelet_that_stands_in_the_way_of_taking_it_away_is_none_when_metrics_come_back() -> None:
    scene = LendingScene()
    scene.play(320)
    scene.now_s += RULE.degrade_s + 1
    assert scene.look() is not None
    scene.show((0, 0))  # as it was reset, by an owner that is no lender
    scene.ledger.owned_by("n", KUBELET, scene.now_s)
    scene.now_s += RULE.degrade_s
    assert scene.look() is None
    scene.play(RULE.window_s + 60)
    assert scene.lent == (4000, 45 * GB)


def test_metrics_that_come_back_lend_after_a_whole_window_again() -> None:
    scene = LendingScene()
    scene.play(320)
    scene.now_s += RULE.degrade_s + 1
    scene.look()
    assert scene.play(RULE.window_s - 20) == []
    assert scene.ledger.there(scene.node) == {}
    assert "it is raised after 300 s of metrics without a gap" in scene.shown.why
    scene.play(60)
    assert scene.lent == (4000, 45 * GB)


def test_one_high_sample_of_many_is_no_measure_of_the_window() -> None:
    scene = LendingScene(LendingRule(percentile=90))
    scene.play(320)
    scene.play(10, cpu=5000)
    scene.play(280)
    assert scene.lent[0] == 4000


def test_the_percentile_and_the_margin_keep_back() -> None:
    scene = LendingScene(LendingRule(margin_percent=50))
    scene.play(320)
    assert scene.lent == (2000, 45 * GB // 2)


def test_another_machine_of_the_name_begins_anew() -> None:
    scene = LendingScene()
    scene.play(320)
    scene.node = replace(scene.node, uid="another")
    scene.show(None)
    assert scene.play(100) == []


def test_a_node_whose_capacity_is_not_told_lends_of_its_allocatable() -> None:
    scene = LendingScene()
    scene.node = replace(scene.node, capacity=(0, 0))
    scene.play(320)
    assert scene.lent == (4000, 45 * GB)
