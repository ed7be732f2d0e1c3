"""The two learned policies as policies: shapes, orders, sizes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from lab.jobs.twin_a import cluster, draw, settings
from lab.worlds.training.simulation import Simulation
from shared.errors import ConfigError
from shared.jobs.policies.learned import dl2 as dl2_policy
from shared.jobs.policies.learned.dl2 import Dl2, features_of
from shared.jobs.policies.learned.increments import Increments
from shared.jobs.policies.learned.sets import FEATURES, OUTPUTS, Sets, answer, features, shapes_of
from shared.policy.weights import Card, WeightsFile
from tests.training_jobs import make_nodes, observation, seen_job

HIDDEN = (8,)


def drawn(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def dl2(types=("resnet-50", "dssm"), of=None):
    arrays = drawn(dl2_policy.shapes_of(len(types) if of is None else of, HIDDEN))
    return Dl2(WeightsFile(arrays, Card(policy="jobs-dl2", version=1, features=features_of(list(types)))))


def sets(seed=0):
    return Sets(WeightsFile(drawn(shapes_of(HIDDEN), seed), Card(policy="jobs-sets", version=1)))


def test_untrained_networks_ask_for_nothing_that_there_is_not():
    for policy in (dl2(), sets()):
        simulation = Simulation(draw(2, jobs=20), cluster(6).nodes, settings(), 2)
        for _ in range(5):
            assert simulation.apply(policy.decide(simulation.observe())) == ""
            simulation.advance(simulation.next_moment())


def test_dl2s_weights_must_fit_its_types():
    with pytest.raises(ConfigError, match="are no network over jobs of 2 types"):
        dl2(of=3)


def test_dl2_says_the_same_of_a_job_wherever_it_stands_and_however_long_its_window_is():
    arrays = drawn(dl2_policy.shapes_of(0, (8, 8)))
    seen = observation(*[seen_job(name, epochs_left=left) for name, left in (("a", 3.0), ("b", 40.0), ("c", 9.0))])
    rows = Increments([seen], window=3, types=[]).inputs()
    longer = Increments([seen], window=7, types=[]).inputs()
    here, turned = (dl2_policy.answer(arrays, one, 3)[0] for one in (rows, rows[:, [2, 0, 1]]))
    assert turned[:9].reshape(3, 3) == pytest.approx(here[:9].reshape(3, 3)[[2, 0, 1]], abs=1e-5)
    assert turned[9] == pytest.approx(here[9], abs=1e-5)
    padded = dl2_policy.answer(arrays, longer, 3)[0]
    assert padded[[*range(9), -1]] == pytest.approx(here, abs=1e-5)


def test_dl2_serves_any_number_of_jobs():
    for count in (1, 3, 200):
        simulation = Simulation(draw(1, jobs=count, gap_s=1.0), cluster(count).nodes, settings(), 1)
        assert simulation.apply(dl2().decide(simulation.observe())) == ""


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
    seen = observation(seen_job("a", submitted=600.0, restart_s=0.0))
    row = features(seen, np.array([3600.0]), np.array([3600.0]))[0]
    assert row[:-1].tolist() == [0.0] * 7


def test_a_job_whose_restart_is_said_to_count_more_keeps_what_it_has():
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes_of((4,)).items()}
    jobs = [seen_job(name, workers=1, placement={"n0": 1}, restart_s=60.0) for name in "ab"]
    seen = observation(*jobs, nodes=make_nodes(2))
    for counted, grows in ((-8.0, True), (8.0, False)):
        arrays["l1.b"] = np.array([0.0, 0.0, counted], np.float32)
        decided = Sets(WeightsFile(dict(arrays), Card(policy="jobs-sets", version=1))).decide(seen)
        assert (sum(one.workers for one in decided.values()) > 2) is grows
