"""The guard: a decision always comes out, the heuristic's at once when the policy fails, and a failing one rests."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from shared.decide.guard import Failure, GuardLimits
from shared.policy.guard import PlacementGuard
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Observation, Verdicts
from shared.scheduling.state.cache import ClusterCache
from shared.scheduling.state.node_table import NodeTable
from tests.builders import make_node, make_pod

LIMITS = GuardLimits(deadline_s=0.05, patience=2, rest=3)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Policy:
    name, version, row_local = "scripted", 1, True

    def __init__(self, clock: Clock | None = None) -> None:
        self.mode = "good"
        self.asked = 0
        self.clock = clock or Clock()

    def decide(self, observation: Observation, rng) -> Verdicts:
        self.asked += 1
        count = len(observation.rows)
        match self.mode:
            case "nan":
                return Verdicts(np.full(count, np.nan))
            case "infinite":
                return Verdicts(np.full(count, np.float32(3e38)) * np.float32(10))
            case "shape":
                return Verdicts(np.zeros(count), np.ones(count + 1, np.bool_))
            case "exception":
                raise ZeroDivisionError
            case "slow":
                self.clock.now += 0.12
            case "late":
                self.clock.now += 0.06
        return Verdicts(np.arange(count, dtype=float))


@pytest.fixture
def seen() -> Observation:
    cache = ClusterCache()
    for index in range(3):
        cache.upsert_node(make_node(f"n{index}").node())
    return Observation(cache.table, make_pod().cpu("1").pod().pod_class, np.arange(3))


@pytest.mark.parametrize(
    ("mode", "failure"),
    [
        ("nan", Failure.NAN),
        ("infinite", Failure.NAN),
        ("shape", Failure.SHAPE),
        ("exception", Failure.EXCEPTION),
    ],
)
def test_the_very_decision_a_policy_fails_at_is_the_heuristics(seen, mode, failure):
    policy = Policy()
    policy.mode = mode
    guard = PlacementGuard(policy, limits=LIMITS)
    verdicts, fallen = guard.decide(seen, Random(1))
    assert fallen
    np.testing.assert_array_equal(verdicts.score, KubeDefault().decide(seen, Random(1)).score)
    assert guard.failures == {failure: 1}
    assert guard.fallbacks == 1


def test_without_the_guard_the_failure_reaches_the_caller(seen):
    policy = Policy()
    policy.mode = "exception"
    with pytest.raises(ZeroDivisionError):
        policy.decide(seen, Random(1))


def test_a_slow_policy_is_not_asked_for_the_next_decision(seen):
    clock = Clock()
    policy = Policy(clock)
    policy.mode = "slow"
    guard = PlacementGuard(policy, clock=clock, limits=LIMITS)
    assert guard.decide(seen, Random(1))[1] is False
    assert guard.decide(seen, Random(1))[1] is True
    assert guard.failures == {Failure.TIMEOUT: 1}
    assert policy.asked == 1


def test_a_policy_that_is_late_once_is_asked_again_and_rests_when_it_is_late_in_a_row(seen):
    clock = Clock()
    policy = Policy(clock)
    guard = PlacementGuard(policy, clock=clock, limits=LIMITS)
    for mode in ("late", "good", "late"):
        policy.mode = mode
        assert guard.decide(seen, Random(1))[1] is False
    assert guard.decide(seen, Random(1))[1] is False
    assert guard.decide(seen, Random(1))[1] is True
    assert guard.failures == {Failure.TIMEOUT: 3}
    assert policy.asked == 4


def test_a_policy_that_keeps_failing_rests_and_is_tried_again(seen):
    policy = Policy()
    policy.mode = "nan"
    guard = PlacementGuard(policy, limits=LIMITS)
    for _ in range(5):
        guard.decide(seen, Random(1))
    assert (policy.asked, guard.fallbacks) == (2, 5)
    policy.mode = "good"
    assert guard.decide(seen, Random(1))[1] is False
    assert policy.asked == 3


def test_a_good_answer_ends_the_row_of_bad_ones(seen):
    policy = Policy()
    guard = PlacementGuard(policy, limits=LIMITS)
    for mode in ("nan", "good", "nan", "good"):
        policy.mode = mode
        guard.decide(seen, Random(1))
    assert guard.willing


class Prepared(Policy):
    """Is told what comes next."""

    told = 0

    def prepare(self, table, asked) -> None:
        self.told += 1
        raise RuntimeError("too early")


def test_what_goes_wrong_while_a_policy_is_told_what_comes_costs_no_decision(seen) -> None:
    policy = Prepared()
    guard = PlacementGuard(policy)
    guard.prepare(NodeTable(), [])
    assert guard.failures == {Failure.EXCEPTION: 1}
    verdicts, fallen = guard.decide(seen, Random(0))
    assert len(verdicts.score)
    assert not fallen


def test_a_resting_policy_is_told_nothing() -> None:
    policy = Prepared()
    guard = PlacementGuard(policy, limits=GuardLimits(deadline_s=0.05, patience=1))
    guard.prepare(NodeTable(), [])
    guard.prepare(NodeTable(), [])
    assert policy.told == 1
