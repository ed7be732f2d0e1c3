"""The two learned policies as policies: shapes, orders, sizes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from shared.errors import ConfigError
from shared.experiments.jobs.twin_a import cluster, draw, settings
from shared.jobs.policies.learned.dl2 import Dl2, features_of
from shared.jobs.policies.learned.increments import OF_JOB
from shared.jobs.policies.learned.sets import FEATURES, OUTPUTS, Sets, answer, features, shapes_of
from shared.policy.networks import mlp_shapes
from shared.policy.weights import Card, WeightsFile
from shared.twin.training.simulation import Simulation
from tests.training_jobs import make_nodes, observation, seen_job

HIDDEN = (8,)


def drawn(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def dl2(window=4, types=("resnet-50", "dssm"), outputs=None):
    inputs = window * (len(types) + len(OF_JOB))
    arrays = drawn(mlp_shapes([inputs, *HIDDEN, outputs or 3 * window + 1]))
    return Dl2(WeightsFile(arrays, Card(policy="jobs-dl2", version=1, features=features_of(list(types)))))


def sets(seed=0):
    return Sets(WeightsFile(drawn(shapes_of(HIDDEN), seed), Card(policy="jobs-sets", version=1)))


def test_untrained_networks_ask_for_nothing_that_there_is_not():
    for policy in (dl2(), sets()):
        simulation = Simulation(draw(2, jobs=20), cluster(6).nodes, settings(), 2)
        for _ in range(5):
            assert simulation.apply(policy.decide(simulation.observe())) == ""
            simulation.advance(simulation.next_moment())


@pytest.mark.parametrize(("changes", "words"), [({"outputs": 12}, "no window of 2 types"), ({"types": ()}, None)])
def test_dl2s_weights_must_fit_its_window(changes, words):
    if words is None:
        assert dl2(**changes).name == "jobs-dl2"
        return
    with pytest.raises(ConfigError, match=words):
        dl2(**changes)


def test_weights_of_another_network_are_refused_by_ours():
    with pytest.raises(ConfigError, match="are no network over jobs"):
        Sets(WeightsFile(drawn({"l0.w": (3, 2)}), Card(policy="jobs-sets", version=1)))


def test_reordering_the_jobs_reorders_the_answers_and_changes_nothing_else():
    arrays, rng = drawn(shapes_of((8, 8))), np.random.default_rng(1)
    x, order = rng.normal(size=(9, len(FEATURES))), rng.permutation(9)
    assert answer(arrays, x[order], 3) == pytest.approx(answer(arrays, x, 3)[order], abs=1e-9)
    assert answer(arrays, x, 3).shape == (9, OUTPUTS)


def test_one_network_serves_any_number_of_jobs_nodes_and_types():
    for count in (1, 3, 200):
        simulation = Simulation(draw(1, jobs=count, gap_s=1.0), cluster(count).nodes, settings(), 1)
        assert simulation.apply(sets().decide(simulation.observe())) == ""


def test_jobs_without_parameter_servers_are_divided_too():
    seen = observation(*[seen_job(name) for name in "abc"], nodes=make_nodes(2))
    assert 1 <= sum(one.workers for one in sets().decide(seen).values()) <= 8
    assert sum(one.workers for one in dl2(types=()).decide(seen).values()) <= 8


def test_without_a_job_nothing_is_decided():
    assert sets().decide(observation()) == {}


def test_features_of_a_job_that_only_came_are_nothing_but_its_work():
    row = features(observation(seen_job("a", submitted=600.0)), np.array([3600.0]))[0]
    assert row[:5].tolist() == [0.0, 0.0, 0.0, 0.0, 0.0]
