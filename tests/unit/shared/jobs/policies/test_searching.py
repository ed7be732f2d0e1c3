"""Pollux, Sia and marginal: small cases whose best answer is known, and rules that every answer keeps."""

from __future__ import annotations

import numpy as np
import pytest

from shared.jobs.policies.dealing import JobOptions, deal, place, sizes_of
from shared.jobs.policies.marginal import Marginal, MarginalSettings
from shared.jobs.policies.pollux import Pollux, restart_factor
from shared.jobs.policies.pollux_search import Problem
from shared.jobs.policies.sia import Configuration, Sia, solve
from tests.training_jobs import LINEAR, ConstantSpeed, make_nodes, observation, seen_job, workers_of

FLAT = ConstantSpeed((1.0,) * 8)
ALL = (Pollux, Sia, Marginal)


@pytest.mark.parametrize("make", ALL)
def test_every_answer_keeps_capacity_and_bounds_over_many_rounds(make):
    policy = make()
    policy.reset(3)
    nodes = make_nodes(4)
    rng = np.random.default_rng(5)
    jobs = [seen_job(f"j{at}", maximum=int(rng.integers(1, 17)), speed=LINEAR if at % 2 else FLAT) for at in range(12)]
    held: dict[str, dict[str, int]] = {}
    for turn in range(8):
        here = [
            seen_job(
                job.name,
                maximum=job.maximum,
                speed=job.speed,
                placement=held.get(job.name, {}),
                attained_s=60.0 * turn,
                remaining_samples=float(rng.integers(50, 5_000)),
            )
            for job in jobs[turn:]
        ]
        decided = policy.decide(observation(*here, nodes=nodes, now=600.0 + 60.0 * turn))
        held = {name: dict(allocation.placement or {}) for name, allocation in decided.items()}
        assert set(held) <= {job.name for job in here}
        for node in nodes:
            assert sum(placement.get(node.name, 0) for placement in held.values()) <= node.gpus
        for job in here:
            count = sum(held[job.name].values())
            assert count == 0 or job.minimum <= count <= job.maximum
    assert any(held.values())


@pytest.mark.parametrize("make", ALL)
def test_who_gains_nothing_from_a_second_worker_leaves_it_to_who_does(make):
    policy = make()
    policy.reset(1)
    held = {"grows": {"n0": 1}, "flat": {"n1": 1}}
    for _ in range(6):
        jobs = [
            seen_job("grows", remaining_samples=9e4, placement=held["grows"], ran_s=300.0),
            seen_job("flat", remaining_samples=9e4, speed=FLAT, placement=held["flat"], ran_s=300.0),
        ]
        decided = policy.decide(observation(*jobs, nodes=make_nodes(3), now=9_000.0))
        held = {name: dict(allocation.placement or {}) for name, allocation in decided.items()}
    assert sum(held["flat"].values()) == 1
    assert sum(held["grows"].values()) >= 4


def test_a_job_of_pollux_grows_to_twice_what_it_had_at_most():
    policy = Pollux()
    jobs = [seen_job("a", placement={"n0": 2}, remaining_samples=1e6)]
    assert workers_of(policy.decide(observation(*jobs, now=9_000.0))) == {"a": 4}


def test_a_restart_counts_by_the_time_that_restarts_have_cost_already():
    assert restart_factor(seen_job("a", restarts=2), now=270.0) == pytest.approx((270 - 60) / 300)
    assert restart_factor(seen_job("a", restarts=9), now=240.0) == 0.0


def test_the_repair_of_pollux_keeps_one_spanning_job_a_node_and_every_bound():
    problem = Problem(
        base=np.zeros((3, 2), np.int16),
        gpus=np.array([4, 4], np.int16),
        most=np.array([8, 8, 2], np.int16),
        least=np.array([1, 1, 1], np.int16),
        worth=np.ones((3, 3, 9)),
        factor=np.ones(3),
    )
    states = np.random.default_rng(0).integers(0, 5, size=(200, 3, 2)).astype(np.int16)
    states = problem.repair(states, np.random.default_rng(1))
    assert (states.sum(axis=1) <= 4).all()
    assert (states.sum(axis=2) <= problem.most).all()
    spanning = (np.count_nonzero(states, axis=2) > 1).sum(axis=1)
    assert spanning.max() == 1


def test_the_programme_of_sia_finds_the_best_division():
    """4 GPUs: two jobs of 2 cost 0.5 + 0.5; one of 4 and one waiting 0.4 + 1.1."""
    one, two, four = (Configuration("", gpus) for gpus in (1, 2, 4))
    choices = [(job, size, term) for job in (0, 1) for size, term in ((one, 1.0), (two, 0.5), (four, 0.4))]
    assert solve(2, choices, {"": 4}, 1.1) == {0: two, 1: two}
    assert solve(2, choices, {"": 1}, 1.1) in ({0: one}, {1: one})
    assert solve(2, [], {"": 4}, 1.1) == {}


@pytest.mark.parametrize("make", [Sia, Marginal])
def test_a_job_gets_the_gpu_type_on_which_it_is_faster(make):
    class Typed:
        def samples_per_s(self, placement, batch, gpu_type):
            return sum(placement) * {"fast": 4.0, "slow": 1.0}[gpu_type]

        def efficiency(self, batch, progress):
            return 1.0

    node = type(make_nodes(1)[0])
    nodes = (node(name="s", gpus=4, gpu_type="slow"), node(name="f", gpus=4, gpu_type="fast"))
    decided = make().decide(observation(seen_job("a", speed=Typed(), maximum=1), nodes=nodes))
    assert dict(decided["a"].placement) == {"f": 1}


def test_gpus_are_dealt_over_a_step_that_only_pays_at_its_end():
    """One GPU more gains 1, four together 8: the second job's first three are worth nothing alone."""
    sizes = (0, *sizes_of(make_nodes(2)))
    assert sizes == (0, 1, 2, 3, 4, 8)
    steady = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 8.0])
    late = np.array([0.0, 0.0, 0.0, 0.0, 8.0, 8.0])
    options = JobOptions(np.array(sizes), np.zeros(6, int), np.array(sizes, float), np.zeros(6, int))
    assert [sizes[at] for at in deal([steady, late], options, [8])] == [4, 4]
    assert [sizes[at] for at in deal([steady, late], options, [3])] == [3, 0]


def test_a_job_makes_room_on_a_type_that_others_need_more():
    """One GPU of each type; the second job runs on the dear one alone, the first nearly as well on the other."""
    options = JobOptions(np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([0.0, 1.0, 2.0]), np.zeros(3, int))
    assert deal([np.array([0.0, 1.0, 1.2]), np.array([0.0, 0.0, 2.0])], options, [1, 1]) == [1, 2]


def test_a_job_near_its_end_is_not_moved_for_one_that_begins():
    """20 s are left: a restart of 30 s would more than double that."""
    ends = seen_job("ends", remaining_samples=80.0, placement={"n0": 4}, maximum=4)
    begins = seen_job("begins", remaining_samples=4000.0)
    decided = Marginal(MarginalSettings()).decide(observation(ends, begins))
    assert dict(decided["ends"].placement) == {"n0": 4}
    assert decided["begins"].workers == 4


def test_whole_nodes_are_cleared_of_the_least_for_a_job_that_needs_them():
    small = [seen_job("a", placement={"n0": 1}), seen_job("b", placement={"n1": 1})]
    placements = place(small, make_nodes(2), {"a": 1, "b": 1, "big": 4})
    assert sorted(sum(placement.values()) for placement in placements.values()) == [1, 1, 4]
    assert len(placements["big"]) == 1
    kept = [name for name in ("a", "b") if placements[name] == {"a": {"n0": 1}, "b": {"n1": 1}}[name]]
    assert len(kept) == 1


def test_a_job_that_reports_nothing_is_scheduled_all_the_same():
    silent = seen_job("silent", remaining_samples=None, progress=None, speed=None)
    for make in ALL[::2]:
        assert make().decide(observation(silent))["silent"].workers >= 1
