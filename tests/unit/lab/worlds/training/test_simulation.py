"""A cluster of training jobs: what a job gets done, what a restart costs, and which decisions are refused whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.worlds.training.simulation import Simulation, SimulationSettings, run
from shared.jobs.observation import JobAllocation
from shared.jobs.policies.orders import Fifo
from tests.training_jobs import make_nodes, training_job


def made(*jobs, nodes=None, **settings):
    return Simulation(jobs, nodes or make_nodes(), SimulationSettings(**settings), seed=0)


def on(node_workers, batch=None):
    return JobAllocation(workers=sum(node_workers.values()), placement=node_workers, batch=batch)


def needed_s(job, workers, batch):
    dealt = job.model.deal(sum(workers), batch)
    return job.model.convergence.steps_left(0.0, dealt.batch) * job.model.step_s(workers, dealt)


def test_a_job_alone_takes_its_restart_and_the_time_of_its_steps():
    job = training_job("a")
    simulation = made(job)
    assert simulation.apply({"a": on({"n0": 2})}) == ""
    while not simulation.done:
        simulation.advance(simulation.next_moment())
    outcome = simulation.outcomes[0]
    assert outcome.ended == pytest.approx(30.0 + needed_s(job, (2,), 64))
    assert outcome.attained_s == pytest.approx(2 * outcome.ended)
    assert outcome.restarts == 0


def test_what_was_learned_stays_over_a_move_and_the_restart_is_paid_again():
    job = training_job("a")
    simulation = made(job)
    simulation.apply({"a": on({"n0": 2})})
    simulation.advance(60.0)
    before = simulation.observe().jobs[0].progress
    simulation.apply({"a": on({"n1": 2})})
    simulation.advance(90.0)
    assert simulation.observe().jobs[0].progress == before > 0.0
    while not simulation.done:
        simulation.advance(simulation.next_moment())
    assert simulation.outcomes[0].ended == pytest.approx(60.0 + needed_s(job, (2,), 64))
    assert simulation.outcomes[0].restarts == 1


def test_the_same_decision_again_changes_nothing():
    simulation = made(training_job("a"))
    simulation.apply({"a": on({"n0": 1, "n1": 1})})
    simulation.advance(60.0)
    simulation.apply({"a": on({"n1": 1, "n0": 1})})
    simulation.apply({})
    assert [change.event for change in simulation.changes] == ["submit", "start"]
    assert simulation.observe().jobs[0].since_change_s == 60.0


def test_a_new_batch_costs_no_restart():
    job = training_job("a", batch=32, batch_range=(32, 256))
    simulation = made(job)
    simulation.apply({"a": on({"n0": 2}, batch=128)})
    simulation.advance(60.0)
    simulation.apply({"a": JobAllocation(workers=2, placement={"n0": 2}, batch=256)})
    assert [change.event for change in simulation.changes] == ["submit", "start", "batch"]
    assert simulation.observe().jobs[0].batch_now == 256


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        pytest.param({"a": on({"n0": 3}), "b": on({"n0": 2})}, "node n0: 1 GPUs more than it has", id="node"),
        pytest.param({"a": on({"n9": 1})}, "no node 'n9'", id="unknown node"),
        pytest.param({"c": on({"n0": 1})}, "c: no such job", id="unknown job"),
        pytest.param({"a": on({"n0": 4, "n1": 4, "n2": 1})}, "it takes 1 to 8", id="above the maximum"),
        pytest.param({"a": JobAllocation(workers=2, placement={"n0": 1})}, "but 1 are placed", id="partly placed"),
        pytest.param({"a": on({"n0": 3, "n1": -1})}, "fewer than no workers", id="negative"),
        pytest.param({"a": on({"n0": 2}, batch=128)}, "its batch is fixed", id="batch"),
        pytest.param({"a": on({"n0": 4, "n1": 4, "n2": 0}, batch=None)}, "small was not measured", id="unmeasured"),
        pytest.param({"a": JobAllocation(workers=8), "b": JobAllocation(workers=5)}, "no room for 5", id="no room"),
    ],
)
def test_a_decision_with_one_fault_is_refused_whole_and_the_last_one_stands(decision, words):
    simulation = made(training_job("a", batch=32), training_job("b"), nodes=make_nodes(3))
    simulation.apply({"b": on({"n2": 2})})
    before = simulation.observe()
    assert words in simulation.apply(decision)
    assert simulation.observe() == before
    assert len(simulation.refused) == 1


def test_who_is_not_named_keeps_what_it_has():
    simulation = made(training_job("a"), training_job("b"))
    simulation.apply({"a": on({"n0": 2})})
    assert "node n0" in simulation.apply({"b": on({"n0": 3})})
    assert simulation.apply({"b": JobAllocation(workers=6)}) == ""
    placed = {job.name: dict(job.placement) for job in simulation.observe().jobs}
    assert placed == {"a": {"n0": 2}, "b": {"n1": 4, "n0": 2}}


def test_no_workers_stop_a_job_at_its_checkpoint():
    simulation = made(training_job("a"))
    simulation.apply({"a": on({"n0": 2})})
    simulation.advance(60.0)
    simulation.apply({"a": JobAllocation(workers=0)})
    before = simulation.observe().jobs[0]
    simulation.advance(600.0)
    after = simulation.observe().jobs[0]
    assert (after.progress, after.attained_s, after.workers) == (before.progress, before.attained_s, 0)


def test_two_jobs_over_the_same_nodes_slow_each_other_only_with_interference():
    def progress(interference):
        simulation = made(training_job("a"), training_job("b"), interference=interference)
        simulation.apply({"a": on({"n0": 1, "n1": 1}), "b": on({"n0": 1, "n1": 1})})
        simulation.advance(90.0)
        return simulation.observe().jobs[0].progress

    convergence = training_job("a").model.convergence
    steps = [convergence.steps(share * convergence.total, 64) for share in (progress(0.0), progress(0.5))]
    assert steps[1] == pytest.approx(steps[0] / 2)


def test_reports_lag_by_so_many_decisions_but_what_stands_is_known():
    fresh, late = made(training_job("a", "large")), made(training_job("a", "large"), lag_rounds=2)
    seen = []
    for simulation in (fresh, late):
        simulation.observe()
        simulation.apply({"a": on({"n0": 2})})
        for moment in (60.0, 120.0, 180.0):
            simulation.advance(moment)
            seen.append(simulation.observe().jobs[0])
    assert [job.progress for job in seen[3:]] == [0.0, 0.0, seen[0].progress]
    assert [job.workers for job in seen] == [2] * 6


def test_at_events_a_policy_is_asked_when_jobs_come_and_end_and_at_rounds_every_round():
    jobs = [training_job("a"), training_job("b", submitted=45.0)]
    at_rounds, at_events = made(*jobs), made(*jobs, rounds=False, events=True)
    assert at_rounds.next_moment() == 60.0
    assert at_events.next_moment() == 45.0
    at_events.apply({"a": on({"n0": 2})})
    at_events.advance(45.0)
    assert at_events.next_moment() == pytest.approx(30.0 + needed_s(jobs[0], (2,), 64))


def test_rounds_with_nobody_there_are_passed_over():
    simulation = made(training_job("a", submitted=3_601.0))
    assert simulation.next_moment() == 3_660.0


def test_a_run_that_starves_a_job_is_given_up():
    class Nobody(Fifo):
        def decide(self, seen):
            return {}

    outcomes = run(made(training_job("a"), most_s=600.0), Nobody(), seed=0)
    assert [(one.ended, one.completion_s) for one in outcomes] == [(None, float("inf"))]


def test_the_same_seed_gives_the_same_run():
    jobs = [training_job(f"j{at}", submitted=20.0 * at) for at in range(6)]
    runs = [made(*jobs, speed_error=0.2) for _ in range(2)]
    assert run(runs[0], Fifo(), 1) == run(runs[1], Fifo(), 1)
    assert runs[0].changes == runs[1].changes


def test_names_that_are_there_twice_are_refused():
    with pytest.raises(ValueError, match="one name"):
        made(training_job("a"), training_job("a"))
    with pytest.raises(ValueError, match="one name"):
        made(training_job("a"), nodes=(*make_nodes(1), replace_name("n0")))


def replace_name(name):
    return type(make_nodes(1)[0])(name=name, gpus=1)


def test_a_policy_that_is_never_asked_is_refused():
    with pytest.raises(ValueError, match="asked at rounds"):
        Simulation([], make_nodes(), replace(SimulationSettings(), rounds=False), seed=0)
