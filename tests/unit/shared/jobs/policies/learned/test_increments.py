"""Increments: what masks allow, what mends a poor state, and that nothing given is refused by the cluster."""

from __future__ import annotations

import numpy as np
import pytest

from lab.jobs.twin_a import KINDS as MODELS
from lab.jobs.twin_a import cluster, draw, settings
from lab.worlds.training.simulation import Simulation
from shared.jobs.observation import JobAllocation
from shared.jobs.policies.learned.increments import BOTH, OF_JOB, SERVER, WORKER, Increments, TeacherSteps, steps_of
from shared.jobs.policies.optimus import Optimus
from tests.training_jobs import observation, seen_job

VOID_OF_TWO = 6


def of_two(**changes):
    """Two jobs that may have parameter servers, on 8 GPUs."""
    jobs = [seen_job(name, most_servers=20, maximum=12, **changes) for name in "ab"]
    return Increments([observation(*jobs)], window=2, types=["t"])


def give(increments, *actions):
    for action in actions:
        assert increments.mask()[0, action]
        increments.give(np.array([action]))


def test_all_three_kinds_and_void_are_allowed_where_there_is_room():
    assert of_two().mask().all()


def test_nothing_is_given_to_a_slot_without_a_job():
    increments = Increments([observation(seen_job("a"))], window=2, types=[])
    assert increments.mask()[0].tolist() == [True, False, False, False, False, False, True]


def test_the_first_worker_is_the_jobs_minimum():
    increments = of_two(minimum=3)
    give(increments, WORKER)
    assert increments.workers[0].tolist() == [3, 0]


def test_no_worker_is_allowed_when_the_gpus_are_given_out():
    increments = of_two()
    give(increments, *[WORKER] * 8)
    assert increments.mask()[0].tolist() == [False, True, False, False, True, False, True]


def test_a_job_without_parameter_servers_is_given_workers_alone():
    increments = Increments([observation(seen_job("a"))], window=1, types=[])
    assert increments.mask()[0].tolist() == [True, False, False, True]
    give(increments, WORKER, WORKER, 3)
    assert increments.decision(0)["a"].workers == 2
    assert increments.decision(0)["a"].servers is None


def test_after_void_a_run_stands_still():
    increments = of_two()
    give(increments, BOTH, VOID_OF_TWO)
    increments.give(np.array([BOTH]))
    assert not increments.active[0]
    assert increments.workers[0].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("given", "mending"),
    [
        ([], -1),
        ([BOTH], -1),
        ([WORKER], SERVER),
        ([3 + SERVER], 3 + WORKER),
        ([BOTH, *[SERVER] * 10], WORKER),
    ],
)
def test_a_poor_state_is_mended_by_what_is_missing(given, mending):
    increments = of_two()
    give(increments, *given)
    assert increments.poor()[0] == mending


def test_who_lacks_a_server_that_it_needs_waits():
    increments = of_two()
    give(increments, WORKER, 3 + BOTH, VOID_OF_TWO)
    decision = increments.decision(0)
    assert (decision["a"].workers, decision["b"].workers, decision["b"].servers) == (0, 1, 1)


def test_jobs_beyond_the_window_wait():
    jobs = [seen_job(name) for name in "abc"]
    increments = Increments([observation(*jobs)], window=2, types=[])
    assert increments.decision(0)["c"] == JobAllocation(workers=0, placement={})


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_drawn_the_cluster_takes_it(seed):
    rng = np.random.default_rng(seed)
    simulation = Simulation(draw(seed, jobs=30), cluster(8).nodes, settings(), seed)
    for _ in range(5):
        increments = Increments([simulation.observe()], window=12, types=list(MODELS))
        while increments.active[0]:
            allowed = np.nonzero(increments.mask()[0])[0]
            increments.give(rng.choice(allowed, 1))
        assert simulation.apply(increments.decision(0)) == ""
        simulation.advance(simulation.next_moment())


def test_without_its_mask_the_cluster_refuses_what_is_given():
    simulation = Simulation(draw(1, jobs=30), cluster(8).nodes, settings(), 1)
    increments = Increments([simulation.observe()], window=12, types=list(MODELS))
    for _ in range(13):
        increments.give(np.array([BOTH]))
    assert not increments.mask()[0, BOTH]
    assert "13 workers, it takes 1 to 12" in simulation.apply(increments.decision(0))


def taught(seen, steps):
    """A round in which every increment is the teacher's; what it took, and the decision."""
    increments, taken = Increments([seen], window=30, types=list(MODELS)), []
    lesson = TeacherSteps(seen, steps, 30)
    while increments.active[0]:
        taken.append(lesson.next(increments, 0, increments.mask()[0]))
        increments.give(np.array(taken[-1:]))
    return taken, {name: (one.workers, one.servers) for name, one in increments.decision(0).items()}


def test_following_a_teacher_ends_at_its_decision():
    seen = Simulation(draw(1, jobs=30), cluster().nodes, settings(), 1).observe()
    wanted = Optimus().decide(seen)
    assert taught(seen, steps_of(seen, wanted))[1] == {name: (one.workers, one.servers) for name, one in wanted.items()}


def test_who_tells_its_order_is_followed_in_it():
    seen = observation(*[seen_job(name, most_servers=20, maximum=12) for name in "ab"])
    taken, found = taught(seen, [(1, BOTH), (0, BOTH), (1, WORKER), (1, SERVER)])
    assert taken == [3 + BOTH, BOTH, 3 + WORKER, 3 + SERVER, 90]
    assert found == {"a": (1, 1), "b": (2, 2)}


def test_without_an_order_the_smallest_share_goes_on_first():
    seen = observation(*[seen_job(name, most_servers=20, maximum=12) for name in "ab"])
    wanted = {"a": JobAllocation(workers=3, servers=1), "b": JobAllocation(workers=1, servers=2)}
    assert steps_of(seen, wanted) == [(0, BOTH), (1, BOTH), (0, WORKER), (1, SERVER), (0, WORKER)]


def test_what_a_student_did_besides_is_left_and_what_is_lacking_still_comes():
    seen = observation(*[seen_job(name, most_servers=20, maximum=12) for name in "ab"])
    increments, lesson = Increments([seen], window=2, types=[]), TeacherSteps(seen, [(0, BOTH), (1, BOTH)], 2)
    give(increments, WORKER, WORKER)
    assert lesson.next(increments, 0, increments.mask()[0]) == SERVER
    give(increments, SERVER)
    assert lesson.next(increments, 0, increments.mask()[0]) == 3 + BOTH


def test_a_step_that_is_not_allowed_is_passed_over():
    seen = observation(*[seen_job(name, most_servers=20, maximum=12) for name in "ab"])
    increments, lesson = Increments([seen], window=2, types=[]), TeacherSteps(seen, [(0, WORKER), (1, SERVER)], 2)
    mask = increments.mask()[0]
    mask[WORKER] = False
    assert lesson.next(increments, 0, mask) == 3 + SERVER
    assert lesson.next(increments, 0, np.zeros_like(mask)) == VOID_OF_TWO


def test_a_worker_counts_as_many_gpus_as_it_takes():
    increments = Increments([observation(seen_job("a", gpus_per_worker=3.0, maximum=12))], window=1, types=[])
    give(increments, WORKER, WORKER)
    assert increments.mask()[0].tolist() == [False, False, False, True], "two of 3 GPUs fit 8, a third does not"


def test_inputs_tell_the_room_that_is_left_and_what_a_steps_time_is_made_of():
    increments = of_two()
    give(increments, BOTH, WORKER)
    row = dict(zip(OF_JOB, increments.inputs()[0, 0, 1:].tolist(), strict=True))
    assert (row["part"], row["load"]) == (0.5, 0.5)
    other = dict(zip(OF_JOB, increments.inputs()[0, 1, 1:].tolist(), strict=True))
    assert other["GPUs left"] == row["GPUs left"] == 0.75
    assert other["room left"] == 1.0, "servers take no room that counts here"
