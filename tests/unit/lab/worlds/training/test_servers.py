"""Parameter servers: their formula, and jobs of the simulation whose workers and servers are chosen apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.jobs.twin_a import KINDS, cluster, draw, settings
from lab.worlds.training.simulation import Simulation, run
from shared.jobs.observation import JobAllocation, ServedSpeed
from shared.jobs.policies.drf import Drf

RESNET = KINDS["resnet-50"]


def simulation(**changes):
    """One resnet-50 job on two nodes: 4 GPUs, 8 places."""
    job = next(job for job in draw(1) if job.model.name == "resnet-50")
    return Simulation([replace(job, name="a", submitted=0.0)], cluster(2).nodes, settings(**changes), 0)


def test_more_workers_than_the_best_number_are_slower():
    rates = [RESNET.rate(workers, 20) for workers in range(1, 13)]
    assert max(rates) == rates[1]
    assert rates[11] < rates[0]


@pytest.mark.parametrize(("workers", "samples_per_s"), [(1, 62.1), (2, 67.8), (12, 33.0)])
def test_resnet_50_is_as_fast_as_dl2_tells(workers, samples_per_s):
    assert RESNET.rate(workers, 20) == pytest.approx(samples_per_s, abs=0.1)


@pytest.mark.parametrize(("workers", "servers"), [(0, 1), (1, 0), (13, 1), (1, 21)])
def test_beyond_its_counts_a_model_cannot_run(workers, servers):
    assert RESNET.times.step_s(workers, servers) is None


def test_where_nobody_chose_each_worker_has_a_server():
    one = simulation()
    assert one.apply({"a": JobAllocation(workers=2)}) == ""
    seen = one.observe().jobs[0]
    assert (seen.workers, seen.servers, seen.most_servers) == (2, 2, 20)
    assert isinstance(seen.speed, ServedSpeed)
    assert seen.speed.samples_per_s((2,), 32, "") == seen.speed.served(2, 2, 32)


def test_workers_and_servers_share_the_places_of_the_nodes():
    one = simulation()
    assert one.apply({"a": JobAllocation(workers=2, servers=6)}) == ""
    assert one.apply({"a": JobAllocation(workers=2, servers=7)}) == "9 workers and servers, there is room for 8"
    assert one.observe().jobs[0].servers == 6


def test_a_job_without_a_server_that_it_needs_is_refused():
    assert "not measured on 2 with batch 32" in simulation().apply({"a": JobAllocation(workers=2, servers=0)})


def test_other_servers_are_a_change_and_go_into_the_schedule():
    one = simulation()
    one.apply({"a": JobAllocation(workers=1, servers=2)})
    one.apply({"a": JobAllocation(workers=1, servers=3)})
    assert [(change.event, change.servers) for change in one.changes] == [("submit", 0), ("start", 2), ("move", 3)]


def test_epochs_left_fall_to_none_as_the_work_is_done():
    one = simulation()
    before = one.observe().jobs[0].epochs_left
    one.apply({"a": JobAllocation(workers=2, servers=6)})
    one.advance(600.0)
    seen = one.observe().jobs
    assert not seen or 0.0 < seen[0].epochs_left < before
    assert run(one, Drf(), 0)[0].ended is not None


def test_a_mistaken_speed_is_off_by_no_more_than_was_said_and_always_alike():
    speed = simulation(speed_error=0.2).observe().jobs[0].speed
    true = RESNET.rate(2, 6)
    assert speed.served(2, 6, 32) != true
    assert speed.served(2, 6, 32) == speed.served(2, 6, 32) == pytest.approx(true, rel=0.2)
