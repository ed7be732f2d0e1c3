"""Many units of one class at once are the same greedy as one after the other, and nothing is counted meanwhile."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.model.constraints import NO_NORMS, PodClass, gpu_milli_of
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Observation, Policy, Verdicts
from shared.policy.ranking import Ranker, Slot
from shared.policy.registry import make_policy
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.scoring import norms_of
from shared.scheduling.state.cache import ClusterCache
from shared.scheduling.state.node_table import PODS_COLUMN
from tests.builders import make_node, make_pod


class Crowded:
    """Accepts a node while few pods stand there, and likes some more pods better than none."""

    name, version, row_local = "crowded", 1, True

    def decide(self, observation: Observation, rng) -> Verdicts:
        pods = observation.table.requested[PODS_COLUMN, observation.rows]
        return Verdicts(((pods * 7 + 3) % 11).astype(float), pods < 3)


POLICIES = ("kube-default", "least-allocated", "most-allocated", "crowded")

nodes = st.tuples(
    st.sampled_from(["1", "2", "16"]), st.sampled_from(["1Gi", "64Gi"]), st.integers(0, 2), st.sampled_from(["x", "y"]),
    st.booleans(), st.sampled_from(["2", "5", "110"]),
)  # fmt: skip
pods = st.tuples(
    st.sampled_from(["0", "100m", "700m", "2"]), st.sampled_from(["0", "300Mi", "2Gi"]),
    st.sampled_from([0, 400, 1000]), st.sampled_from([0, 0, 80]), st.sampled_from(["", "x", "n1"]),
)  # fmt: skip


def cluster_of(shapes) -> ClusterCache:
    cache = ClusterCache()
    for index, (cpu, memory, gpus, zone, taint, most) in enumerate(shapes):
        node = make_node(f"n{index}").allocatable(cpu=cpu, memory=memory, pods=most).gpus(gpus).label(zone=zone)
        if taint:
            node.taint("dear", "PreferNoSchedule")
        cache.upsert_node(node.node())
    return cache


def class_of(cpu: str, memory: str, milli: int, port: int, prefers: str) -> PodClass:
    pod = make_pod().cpu(cpu).memory(memory)
    if milli:
        pod.gpu_milli(milli)
    if port:
        pod.port(port)
    if prefers == "x":
        pod.prefer(10, "zone", "x")
    if prefers == "n1":
        affinity = pod.json["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": 5, "preference": {"matchFields": [field]}}
        ]
    return pod.pod().pod_class


def ranker_of(cache: ClusterCache, policy: Policy, seed: int = 0) -> Ranker:
    return Ranker(cache.table, FeasibilityCache(cache.table), policy, random.Random(seed))


def policy_named(name: str) -> Policy:
    return Crowded() if name == "crowded" else make_policy(name)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40)
@given(st.lists(nodes, min_size=1, max_size=7), st.lists(pods, max_size=6), pods, st.integers(2, 20))
def test_slot_after_slot_is_the_best_once_those_before_are_taken(
    name: str, shapes, standing, shape, count: int
) -> None:
    cache = cluster_of(shapes)
    for number, other in enumerate(standing):
        for slot in ranker_of(cache, KubeDefault(), number).slots(class_of(*other), 1, extra=0):
            cache.assume(f"s{number}", cache.table.names[slot.row], class_of(*other), now=0.0)
    pod_class = class_of(*shape)
    ranker = ranker_of(cache, policy_named(name), seed=1)
    norms = norms_of(ranker.feasibility, pod_class)
    generation = cache.table.generation.copy()
    slots = ranker.slots(pod_class, count, extra=1, norms=norms)
    for number, slot in enumerate(slots):
        each = ranker_of(cache, policy_named(name)).slots(pod_class, 1, extra=99, norms=norms)
        mine = next(other for other in each if other.row == slot.row)
        assert (slot.accept, slot.score) == (mine.accept, mine.score) == (each[0].accept, each[0].score)
        assert slot.generation == generation[slot.row]
        cache.assume(f"u{number}", cache.table.names[slot.row], pod_class, now=0.0)
    if len(slots) < count + 1:
        assert not ranker_of(cache, policy_named(name)).slots(pod_class, 1, extra=0, norms=norms)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40)
@given(st.data())
def test_what_is_kept_of_a_class_is_what_judging_anew_would_give(name: str, data) -> None:
    cache = cluster_of(data.draw(st.lists(nodes, min_size=2, max_size=6)))
    classes = [class_of(*shape) for shape in data.draw(st.lists(pods, min_size=1, max_size=3))]
    kept = ranker_of(cache, policy_named(name))
    for step in range(8):
        pod_class = data.draw(st.sampled_from(classes))
        what = data.draw(st.sampled_from(["place", "one", "cordon", "forget"]))
        mine = kept.slots(pod_class, 1, extra=99)
        fresh = ranker_of(cache, policy_named(name)).slots(pod_class, 1, extra=99)
        assert sorted(mine) == sorted(fresh)
        assert [(slot.accept, slot.score) for slot in mine] == [(slot.accept, slot.score) for slot in fresh]
        if what == "cordon":
            cache.upsert_node(make_node(f"n{step % 2}").cordon().node())
        elif what == "forget":
            cache.forget(f"u{step - 1}-0")
        else:
            for number, slot in enumerate(kept.slots(pod_class, 1 if what == "one" else 5, extra=0)):
                cache.assume(f"u{step}-{number}", cache.table.names[slot.row], pod_class, now=0.0)


def test_looking_ahead_counts_nothing_so_that_no_other_class_is_judged_again() -> None:
    cache = cluster_of([("16", "64Gi", 2, "x", False, "110")] * 4)
    table = cache.table
    before = (table.clock, table.stamp.copy(), table.requested.copy(), [list(free) for free in table.device_free])
    assert len(ranker_of(cache, KubeDefault()).slots(class_of("1", "1Gi", 400, 80, "x"), 9, extra=0)) == 4
    assert table.clock == before[0]
    assert (table.stamp == before[1]).all()
    assert (table.requested == before[2]).all()
    assert table.device_free == before[3]


def asked_for(shapes, count: int) -> tuple[list[Slot], int]:
    """The slots of so many small units, and how often the policy was asked."""

    class Counting(KubeDefault):
        asked = 0

        def decide(self, observation: Observation, rng) -> Verdicts:
            Counting.asked += 1
            return super().decide(observation, rng)

    slots = ranker_of(cluster_of(shapes), Counting()).slots(class_of("100m", "300Mi", 0, 0, ""), count, extra=0)
    return slots, Counting.asked


def test_the_policy_is_asked_a_few_times_for_many_units_on_many_nodes() -> None:
    slots, asked = asked_for([("16", "64Gi", 0, "x", False, "110")] * 40, 64)
    assert len(slots) == 64
    assert asked <= 4


def test_the_policy_is_asked_a_few_times_where_one_node_gets_all() -> None:
    full = [("1", "1Gi", 0, "x", False, "2")] * 40
    slots, asked = asked_for([("16", "64Gi", 0, "x", False, "110"), *full], 64)
    assert len({slot.row for slot in slots[:30]}) == 1
    assert asked <= 8


def test_a_policy_that_fails_while_looking_ahead_has_all_slots_decided_by_the_fallback() -> None:
    class FailsAhead(KubeDefault):
        def decide(self, observation: Observation, rng) -> Verdicts:
            if observation.table is not table:
                raise RuntimeError("out of order")
            return Verdicts(np.full(len(observation.rows), 1e9))

    cache = cluster_of([("16", "64Gi", 0, "x", False, "110")] * 3)
    table, pod_class = cache.table, class_of("100m", "300Mi", 0, 0, "")
    failing = ranker_of(cache, FailsAhead())
    expected = ranker_of(cache, KubeDefault()).slots(pod_class, 6, extra=0)
    assert [slot.score for slot in failing.slots(pod_class, 6, extra=0)] == [slot.score for slot in expected]
    assert failing.fell_back(pod_class)


def test_devices_are_counted_one_by_one() -> None:
    cache = cluster_of([("16", "64Gi", 2, "x", False, "110")])
    pod_class = class_of("0", "0", 400, 0, "")
    assert gpu_milli_of(pod_class) == 400
    slots = ranker_of(cache, KubeDefault()).slots(pod_class, 9, extra=0, norms=NO_NORMS)
    assert len(slots) == 4  # two on each device: the sum alone would take five


# --- guided units: the caller deals ----------------------------------------------------------------------------------


def dealt(slots: list[Slot], units: int) -> list[tuple[int, bool, float]]:
    """Row, verdict and score of each unit, by what was said of rows: the best of what is next on each, of equals the
    row that was given fewest (``Candidates.ranked``), then the one named first."""
    said: dict[int, list[Slot]] = {}
    for slot in slots:
        said.setdefault(slot.row, []).append(slot)
    found, given = [], Counter[int]()
    while len(found) < units and said:
        row = max(said, key=lambda row: (said[row][0].accept, said[row][0].score, -given[row]))
        best = said[row].pop(0)
        given[row] += 1
        found.append((row, best.accept, best.score))
        if not said[row]:
            del said[row]
    return found


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40)
@given(st.lists(nodes, min_size=2, max_size=7), pods, st.integers(2, 12), st.data())
def test_guided_units_are_dealt_by_what_was_said_as_if_each_was_asked_about(
    name: str, shapes, shape, count: int, data
) -> None:
    cache = cluster_of(shapes)
    pod_class, table = class_of(*shape), cache.table
    ranker = ranker_of(cache, policy_named(name))
    norms = norms_of(ranker.feasibility, pod_class)
    feasible = np.flatnonzero(ranker.feasibility.of(pod_class).mask)
    allowed = feasible[[data.draw(st.booleans()) for _ in feasible]]
    added = np.array([float(data.draw(st.integers(0, 3))) for _ in range(table.rows)])
    slots = ranker.guided(pod_class, 99, allowed, added, norms=norms, units=count)
    firsts = list(dict.fromkeys(slot.row for slot in slots))
    assert sorted(firsts) == sorted(allowed.tolist())
    for number, (row, accept, score) in enumerate(dealt(slots, count)):
        fresh = ranker_of(cache, policy_named(name))
        left = np.intersect1d(allowed, np.flatnonzero(fresh.feasibility.of(pod_class).mask))
        best = fresh.guided(pod_class, 1, left, added, norms=norms)[0]
        assert (accept, score) == (best.accept, best.score)
        cache.assume(f"u{number}", table.names[row], pod_class, now=0.0)


def test_a_row_without_a_device_left_for_a_claim_is_not_named_again() -> None:
    cache = cluster_of([("16", "64Gi", 0, "x", False, "110")] * 2)
    for row, free in ((0, [1000]), (1, [1000, 500])):
        cache.table.set_claimed(row, free)
    pod_class = replace(class_of("700m", "300Mi", 0, 0, ""), claimed=(1, 500))
    slots = ranker_of(cache, make_policy("frag")).guided(
        pod_class, 9, np.arange(2), np.zeros(2), norms=NO_NORMS, units=9
    )
    assert Counter(slot.row for slot in slots) == {0: 2, 1: 3}


def test_a_policy_that_fails_while_looking_ahead_has_guided_units_decided_by_the_fallback() -> None:
    class FailsAhead(KubeDefault):
        def decide(self, observation: Observation, rng) -> Verdicts:
            if observation.table is not table:
                raise RuntimeError("out of order")
            return Verdicts(np.full(len(observation.rows), 1e9))

    cache = cluster_of([("16", "64Gi", 0, "x", False, "110")] * 3)
    table, pod_class = cache.table, class_of("100m", "300Mi", 0, 0, "")
    failing, rows, added = ranker_of(cache, FailsAhead()), np.arange(3), np.zeros(3)
    expected = ranker_of(cache, KubeDefault()).guided(pod_class, 9, rows, added, norms=NO_NORMS, units=6)
    found = failing.guided(pod_class, 9, rows, added, norms=NO_NORMS, units=6)
    assert [slot.score for slot in found] == [slot.score for slot in expected]
