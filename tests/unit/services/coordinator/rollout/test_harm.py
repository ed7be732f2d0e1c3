"""What pods bear by a candidate counts whatever its goal: waits, evictions, nodes that run hot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from services.coordinator.core.events import NodeSample, NodesMeasured
from services.coordinator.core.instructions import KeepWindow
from services.coordinator.core.state import CoreSettings
from services.coordinator.rollout.window import running_hot
from services.coordinator.usage.measured import MeasuredNodes
from shared.decide.stages import WindowVerdict
from shared.policy.rollout.judging import Kpi, RolloutSettings, RolloutWindow, judge
from shared.scheduling.state.cache import ClusterCache
from shared.wire.messages import (
    VERSION,
    Eviction,
    EvictionOutcome,
    EvictionReason,
    EvictionResult,
    Placement,
    Plan,
    PlanResult,
)
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.rollout.test_evaluation import BY_HAND, NEW, Rolled

SETTINGS = RolloutSettings()
OFF = replace(SETTINGS, harm=float("inf"))
FINE = Kpi(0.9, placements=20, waited_s=1.0, evictions=1)


@pytest.mark.parametrize(
    ("harmed", "told"),
    [
        ({"candidate": replace(FINE, waited_s=8.0)}, "pods were pending for 8.0 s against 1.0 s"),
        ({"candidate": replace(FINE, evictions=6)}, "evictions 0.30 per pod placed against 0.05"),
        (
            {"mine_hot": 0.5, "theirs_hot": 0.25},
            "50% of the measured nodes that it placed pods on run hot against 25%",
        ),
    ],
    ids=["pending", "evictions", "hot"],
)
def test_a_window_with_harm_is_bad_however_well_the_candidate_does_by_its_goal(harmed, told) -> None:
    window = replace(RolloutWindow(replace(FINE, value=1.0), replace(FINE, value=0.2), 20), **harmed)
    assert judge(window, SETTINGS) == (WindowVerdict.BAD, told)
    assert judge(window, OFF)[0] is WindowVerdict.GOOD, "the bound is what sees it, nothing else"


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ({"hot": 0.5, "hot_before": 0.25}, "50% of the measured nodes run hot against 25% before it placed pods"),
        (
            {"candidate": replace(FINE, waited_s=8.0), "active": Kpi(0.5), "before": replace(FINE, waited_s=0.5)},
            "pods were pending for 8.0 s against 0.5 s in an earlier window",
        ),
        (
            {"candidate": replace(FINE, evictions=6), "active": Kpi(0.5), "before": FINE},
            "evictions 0.30 per pod placed against 0.05 in an earlier window",
        ),
    ],
    ids=["hot", "pending", "evictions"],
)
def test_what_was_less_at_another_time_stops_a_promotion_and_withdraws_nothing(seen, told) -> None:
    window = replace(RolloutWindow(replace(FINE, value=1.0), replace(FINE, value=0.2), 20), **seen)
    assert judge(window, SETTINGS) == (WindowVerdict.UNSURE, told)
    assert judge(window, OFF)[0] is WindowVerdict.GOOD, "the bound is what sees it, nothing else"


@pytest.mark.parametrize("harm", ["value", "p99"])
def test_what_was_less_at_another_time_hides_nothing_that_is_worse_now(harm) -> None:
    worse = {"value": -1.0} if harm == "value" else {"p99_ms": 99.0}
    window = RolloutWindow(
        replace(FINE, **{"value": 1.0, **worse}), replace(FINE, value=0.2), 20, hot=0.9, hot_before=0.1
    )
    assert judge(window, SETTINGS)[0] is WindowVerdict.BAD


@pytest.mark.parametrize(
    "harmless",
    [
        {"candidate": replace(FINE, waited_s=5.0)},  # by chance
        {"candidate": replace(FINE, placements=9, waited_s=99.0, evictions=9)},  # of too few
        {"active": Kpi(0.2), "candidate": replace(FINE, waited_s=99.0)},  # there is nothing to compare with
        {"candidate": replace(FINE, placements=0), "hot": 0.9, "hot_before": 0.1},  # in shadow it places nothing
        {"hot": 0.9, "hot_before": None},
        {"hot": 0.3, "hot_before": 0.25},
        {"mine_hot": 0.9, "theirs_hot": 0.85},  # all run hot at this hour
        {"mine_hot": 0.9, "theirs_hot": None},
    ],
)
def test_what_the_candidate_did_not_do_is_no_harm_of_it(harmless) -> None:
    window = replace(RolloutWindow(replace(FINE, value=1.0), replace(FINE, value=0.2), 20), **harmless)
    assert judge(window, SETTINGS)[0] is WindowVerdict.GOOD


def test_a_node_runs_hot_by_what_is_measured_now_of_cpu_or_memory() -> None:
    cache, measured = ClusterCache(), MeasuredNodes()
    for name in ("a", "b", "c", "d"):
        cache.upsert_node(make_node(name).allocatable(cpu="10", memory="10Gi").node())
    gib = 1 << 30
    told = {"a": (9_500, gib), "b": (100, 9.5 * gib), "c": (9_000, 9 * gib), "gone": (9_999, gib)}
    measured.take([NodeSample(name, 0.0, cpu, int(memory)) for name, (cpu, memory) in told.items()], 100.0)
    assert running_hot(measured.nodes, cache.table, 3) == pytest.approx(2 / 3)
    assert running_hot(measured.nodes, cache.table, 2, ["a", "c", "gone", "d"]) == pytest.approx(1 / 2)
    assert running_hot(measured.nodes, cache.table, 4) is None, "of too few nodes a share says nothing"


class Harmed(Rolled):
    """A good candidate in the canary at half of the pods, on 12 nodes that are measured."""

    def __init__(self, rollout: RolloutSettings = BY_HAND.rollout) -> None:
        super().__init__(settings=CoreSettings(rollout=rollout), nodes=12)
        self.hot(2)
        self.shadow()
        self.pods_come(10)
        self.canary(50)

    def hot(self, many: int) -> None:
        samples = [NodeSample(f"n{at}", 0.0, 95_000 if at < many else 1_000, 1 << 30) for at in range(12)]
        self.inbox.append(NodesMeasured(tuple(samples)))
        self.run()

    def windows(self):
        return [kept.window for kept in self.of(KeepWindow) if kept.window.stage == "canary"]


def test_more_nodes_that_run_hot_since_a_candidate_came_stop_it_and_withdraw_nothing() -> None:
    scene = Harmed(replace(BY_HAND.rollout, min_samples=3))
    scene.hot(7)
    scene.pods_come(40)
    assert scene.pointer.candidate == NEW
    assert len(scene.windows()) > 3
    told = {(bool(window.conduct.placements), window.verdict) for window in scene.windows()}
    assert (True, "unsure") in told
    assert told <= {(True, "unsure"), (False, "good")}
    assert "58% of the measured nodes run hot against 17% before it placed pods" in {one.why for one in scene.windows()}
    assert scene.windows()[0].conduct.hot == pytest.approx(7 / 12)


def test_a_candidate_whose_nodes_run_hot_and_not_the_active_policys_has_a_bad_window() -> None:
    scene = Harmed(replace(BY_HAND.rollout, min_samples=3, min_share_of=5))
    scene.hot(7)
    placements = [
        structs.replace(placed(*("learned", 2) if at < 6 else ("kube-default", 1)), node=f"n{at}") for at in range(12)
    ]
    plan = Plan(VERSION, 1, 0, 7, 1, placements)
    scene.core.evaluation.answered(plan, PlanResult(VERSION, 1, 1, 7, 1, []), [0.0] * 12)
    while not scene.windows():
        scene.pods_come(1)
    first = scene.windows()[0]
    assert first.verdict == "bad"
    assert "of the measured nodes that it placed pods on run hot against" in first.why


def test_nodes_that_ran_hot_before_are_not_the_candidates_doing() -> None:
    scene = Harmed()
    scene.pods_come(40)
    assert scene.pointer.candidate == NEW
    assert scene.windows()
    assert [window.conduct.hot_before for window in scene.windows()] == pytest.approx([2 / 12] * len(scene.windows()))


def placed(policy: str, version: int) -> Placement:
    return Placement(1, "u", "ns", "p", "1", "n0", [], policy, version)


def test_pods_were_pending_since_they_were_first_seen_however_often_they_were_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Harmed()
    pods = [make_pod(f"waits{number}").cpu("90").select(disk="ssd").pod() for number in range(8)]
    for pod in pods:
        scene.add_pod(pod)
    scene.run(until_s=40.0)
    for pod in pods:
        assert scene.core.state.queue.wake(pod.uid, scene.now)
    scene.run(until_s=20.0)
    told: list[float] = []
    answered = scene.core.evaluation.answered

    def noted(plan: Plan, answer: PlanResult, waited_s: list[float]) -> None:
        told.extend(waited_s)
        answered(plan, answer, waited_s)

    monkeypatch.setattr(scene.core.evaluation, "answered", noted)
    for at in range(8):
        node = make_node(f"n{at}").label(disk="ssd").allocatable(cpu="96", memory="384Gi", pods="500")
        scene.add_node(node.node())
    scene.run(until_s=1.0)
    assert len(told) == 8
    assert min(told) >= 60.0


def test_waits_and_evictions_are_counted_for_the_policy_whose_share_the_pod_is() -> None:
    scene = Harmed()
    stuck = [make_pod(f"stuck{number}").cpu("999").pod() for number in range(20)]
    for pod in stuck:
        scene.add_pod(pod)
    scene.run()
    evictions = [
        Eviction(f"victim{number}", "ns", "v", pod.uid, "n0", reason=EvictionReason.PREEMPTION)
        for number, pod in enumerate(stuck)
    ]
    gone = [EvictionResult(one.uid, EvictionOutcome.EVICTED) for one in evictions[:-1]]
    other = replace_reason(evictions[0])
    plan = Plan(VERSION, 1, 0, 7, 1, [placed("learned", 2), placed("kube-default", 1)], [*evictions, other])
    before = [scene.core.evaluation._open.candidate.evictions, scene.core.evaluation._open.active.evictions]
    scene.core.evaluation.answered(plan, PlanResult(VERSION, 1, 1, 7, 1, [], evictions=gone), [8.0, 2.0])
    open_ = scene.core.evaluation._open
    shares = [scene.core.variants.takes(pod) for pod in stuck[:-1]]
    assert [open_.candidate.evictions - before[0], open_.active.evictions - before[1]] == [
        sum(shares), len(shares) - sum(shares),
    ]  # fmt: skip
    assert 0 < sum(shares) < len(shares)


def replace_reason(eviction: Eviction) -> Eviction:
    """The same pod leaves for its queue's limits: nobody placed badly."""
    return Eviction(*(getattr(eviction, name) for name in ("uid", "namespace", "name", "preemptor", "node")), reason=2)
