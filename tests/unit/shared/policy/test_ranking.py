"""Slots: greedy, merged fairly, never infeasible, and the fallback at once when a policy fails."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from shared.decide.guard import Failure
from shared.errors import ConfigError
from shared.policy.guard import PlacementGuard
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Observation, Verdicts
from shared.policy.ranking import Ranker
from shared.policy.registry import POLICIES, make_policy
from shared.scheduling.cycle.conflicts import fits
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.cache import ClusterCache
from tests.builders import make_node, make_pod


def ranker(policy, cache: ClusterCache, seed: int = 0) -> Ranker:
    return Ranker(cache.table, FeasibilityCache(cache.table), policy, np.random.default_rng(seed))


def cluster(count: int, **amounts: str) -> ClusterCache:
    cache = ClusterCache()
    for index in range(count):
        cache.upsert_node(make_node(f"n{index}").allocatable(**amounts).node())
    return cache


class Scripted:
    name, version, row_local = "scripted", 1, True

    def __init__(self, score, accept=None) -> None:
        self.score, self.accept = score, accept

    def decide(self, observation: Observation, rng: np.random.Generator) -> Verdicts:
        score = np.asarray(self.score, float)[observation.rows]
        return Verdicts(score, None if self.accept is None else np.asarray(self.accept)[observation.rows])


def test_many_units_of_a_class_spread_as_if_placed_one_after_the_other() -> None:
    cache = cluster(4)
    pod_class = make_pod().cpu("500m").memory("512Mi").pod().pod_class
    slots = ranker(make_policy("least-allocated"), cache).slots(pod_class, 8, extra=0)
    assert Counter(slot.row for slot in slots) == {0: 2, 1: 2, 2: 2, 3: 2}


class Unsure(Scripted):
    """Fails where it is asked what rows are compared with."""

    def __init__(self, context) -> None:
        super().__init__([1.0, 3.0, 2.0])
        self._context = context

    def context(self, table):
        return self._context()


def test_what_a_policy_does_wrong_in_its_context_ends_no_answer() -> None:
    cache, pod_class = cluster(3), make_pod().cpu("1").pod().pod_class

    def raises():
        raise KeyError("cluster")

    for context in (raises, lambda: np.zeros(3)):
        mine = ranker(Unsure(context), cache)
        assert [slot.row for slot in mine.slots(pod_class, 1, extra=0)] == [1]
        assert mine.guard.failures[Failure.EXCEPTION] == 1
    slow, spent = ranker(Unsure(lambda: None), cache), iter(range(1000))
    slow.guard = PlacementGuard(slow.guard.policy, clock=lambda: float(next(spent)))
    assert slow.slots(pod_class, 1, extra=0)
    assert slow.guard.failures[Failure.TIMEOUT] == 1


def test_slots_leave_the_table_as_it_was() -> None:
    cache = cluster(3)
    before = (cache.table.requested.copy(), cache.table.generation.copy())
    ranker(KubeDefault(), cache).slots(make_pod().cpu("1").pod().pod_class, 5, extra=2)
    assert np.array_equal(cache.table.requested, before[0])
    assert np.array_equal(cache.table.generation, before[1])


def test_no_more_slots_than_there_is_room() -> None:
    cache = cluster(2, cpu="2")
    slots = ranker(KubeDefault(), cache).slots(make_pod().cpu("1").pod().pod_class, 10, extra=2)
    assert Counter(slot.row for slot in slots) == {0: 2, 1: 2}


def test_gpu_slots_respect_devices() -> None:
    cache = ClusterCache()
    cache.upsert_node(make_node("n").gpus(2).node())
    slots = ranker(KubeDefault(), cache).slots(make_pod().gpu_milli(600).pod().pod_class, 5, extra=0)
    assert len(slots) == 2
    assert cache.table.device_free == [[1000, 1000]]


def test_accepted_nodes_come_before_better_scored_rejected_ones() -> None:
    cache = cluster(3)
    slots = ranker(Scripted([1, 9, 2], [True, False, True]), cache).slots(make_pod().pod().pod_class, 1, extra=2)
    assert [(s.row, s.accept) for s in slots] == [(2, True), (0, True), (1, False)]


@pytest.mark.parametrize(
    "bad", [pytest.param(np.array([np.nan, 1, 2]), id="nan"), pytest.param(np.zeros((3, 2)), id="shape")]
)
def test_a_policy_that_answers_nonsense_is_replaced_at_once(bad) -> None:
    class Broken(Scripted):
        def decide(self, observation, rng):
            return Verdicts(bad)

    cache = cluster(3)
    pod_class = make_pod().cpu("1").pod().pod_class
    broken = ranker(Broken(None), cache)
    assert [s.score for s in broken.slots(pod_class, 1, extra=2)] == [
        s.score for s in ranker(KubeDefault(), cache).slots(pod_class, 1, extra=2)
    ]
    assert broken.fallbacks == 1


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_no_policy_ever_chooses_an_infeasible_node(name: str) -> None:
    rng = np.random.default_rng(7)
    cache = cluster(12, cpu="2", pods="6")
    feasibility = FeasibilityCache(cache.table)
    ranking = Ranker(cache.table, feasibility, make_policy(name), rng)
    for step in range(60):
        pod_class = make_pod().cpu(f"{int(rng.integers(1, 9)) * 100}m").pod().pod_class
        for number, slot in enumerate(ranking.slots(pod_class, int(rng.integers(1, 4)), extra=0)):
            assert fits(feasibility, pod_class, slot.row)
            cache.assume(f"u{step}-{number}", cache.table.names[slot.row], pod_class, now=0.0)


def test_cached_scores_equal_fresh_ones_after_changes() -> None:
    cache = cluster(6)
    pod_class = make_pod().cpu("300m").memory("1Gi").pod().pod_class
    cached = ranker(KubeDefault(), cache)
    for step in range(20):
        slot = cached.slots(pod_class, 1, extra=0)[0]
        cache.assume(f"u{step}", cache.table.names[slot.row], pod_class, now=0.0)
        mine = [s.score for s in cached.slots(pod_class, 1, extra=5)]
        assert mine == [s.score for s in ranker(KubeDefault(), cache).slots(pod_class, 1, extra=5)]


def test_the_same_seed_breaks_ties_the_same_way() -> None:
    pod_class = make_pod().pod().pod_class
    picks = [
        [ranker(KubeDefault(), cluster(8), seed).slots(pod_class, 1, extra=3) for _ in range(2)] for seed in (1, 2)
    ]
    assert picks[0][0] == picks[0][1]
    assert picks[0][0] != picks[1][0]


def test_an_unknown_policy_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match="kube-default"):
        make_policy("best")


def test_a_class_is_never_ranked_by_policy_and_fallback_at_once() -> None:
    """Only the changed row is judged again, the policy fails there: all rows become the fallback's."""
    cache = cluster(4)
    pod_class = make_pod().cpu("1").pod().pod_class

    class FailsLater(Scripted):
        failing = False

        def decide(self, observation, rng):
            if self.failing:
                raise RuntimeError("out of order")
            return Verdicts(np.full(len(observation.rows), 1e9))

    policy = FailsLater(None)
    mine = ranker(policy, cache)
    assert [slot.score for slot in mine.slots(pod_class, 1, extra=3)] == [1e9] * 4
    policy.failing = True
    cache.assume("u", "n0", pod_class, now=0.0)
    scores = {slot.row: slot.score for slot in mine.slots(pod_class, 1, extra=3)}
    assert scores == {slot.row: slot.score for slot in ranker(KubeDefault(), cache).slots(pod_class, 1, extra=3)}
    assert mine.fell_back(pod_class)


def test_a_policy_that_recovers_ranks_again() -> None:
    cache = cluster(3)
    pod_class = make_pod().cpu("1").pod().pod_class
    scripted = Scripted([1, np.nan, 2])
    mine = ranker(scripted, cache)
    mine.slots(pod_class, 1, extra=0)
    assert mine.fell_back(pod_class)
    scripted.score = [1, 9, 2]
    assert [slot.row for slot in mine.slots(pod_class, 1, extra=2)] == [1, 2, 0]
    assert not mine.fell_back(pod_class)
