"""Packing: the emptiest node first, and who keeps its count keeps its place."""

from __future__ import annotations

from shared.jobs.policies.placing import free_of, pack, place_kept
from tests.training_jobs import make_nodes, observation, seen_job


def test_the_emptiest_node_is_taken_first_and_ties_go_to_the_first_named():
    free = {"n0": 2, "n1": 4, "n2": 4}
    assert pack(free, 5) == {"n1": 4, "n2": 1}
    assert free == {"n0": 2, "n1": 0, "n2": 3}


def test_what_does_not_fit_takes_nothing():
    free = {"n0": 2}
    assert pack(free, 3) is None
    assert free == {"n0": 2}


def test_what_is_free_is_what_others_leave():
    assert free_of(make_nodes(), [{"n0": 3}, {"n0": 1, "n1": 1}]) == {"n0": 0, "n1": 3}


def test_who_keeps_its_count_keeps_its_place_and_the_rest_are_packed_around():
    stays, grows = seen_job("stays", placement={"n0": 1}), seen_job("grows", placement={"n1": 1})
    found = place_kept(observation(stays, grows).jobs, make_nodes(), {"stays": 1, "grows": 7})
    assert found["stays"].placement == {"n0": 1}
    assert found["grows"].placement == {"n1": 4, "n0": 3}
