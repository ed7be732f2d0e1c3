"""The placement experiments: pods come and go as told, nothing infeasible is bound, and a seed is a whole run."""

from __future__ import annotations

import numpy as np
import pytest

from lab.environments.placement import NodeSize, PlacementEnv, Scenario
from lab.environments.placement_scenarios import filled, moving_latency, replacing, training_scenario, waves
from shared.errors import ConfigError

SMALL = NodeSize(cpu_millis=1_000)


def drive(env: PlacementEnv, seed: int = 0, *, masked: bool = True) -> None:
    """Place every pod at random; without ``masked`` anywhere at all."""
    rng = np.random.default_rng(seed)
    while not env.finished:
        rows = env.rows() if masked else np.arange(len(env.pods))
        if len(rows):
            env.place(int(rng.choice(rows)))
        else:
            env.skip()
        assert (env.table.requested <= env.table.allocatable).all()  # E1
        assert env.pods.sum() == len(env._order)  # E2


def test_test_1_creates_all_then_deletes_all():
    env = PlacementEnv(waves(3, 90), 42)
    drive(env)
    assert env.held == [*range(1, 31), *range(29, -1, -1)] * 3


def test_test_2_replaces_the_oldest_once_all_are_there():
    env = PlacementEnv(replacing(3, 50), 42)
    drive(env)
    assert env.held == [*range(1, 31), *([29, 30] * 20)]


def test_the_oldest_pod_leaves_first():
    env = PlacementEnv(Scenario(pods=3, turnover="replace", decisions=9), 1)
    for row in (0, 1, 2):
        env.place(row)
    assert env.pods.tolist() == [0, 1, 1]
    env.place(2)
    assert env.pods.tolist() == [0, 0, 2]


def test_a_full_node_is_not_feasible_and_a_choice_of_it_is_counted_and_dropped():
    env = PlacementEnv(Scenario((SMALL, SMALL), pods=8, decisions=20), 1)
    for _ in range(4):
        env.place(0)
    assert env.rows().tolist() == [1]
    assert not env.place(0).placed
    assert env.infeasible == 1
    assert env.pods.tolist() == [4, 0]


def test_masked_choices_are_never_infeasible_and_unmasked_ones_are():
    """10,000 decisions on nodes that fill up; switching the mask off shows that the count can rise."""
    scenario = Scenario((SMALL,) * 4, pods=15, turnover="replace", decisions=10_000)
    kept, open_ = PlacementEnv(scenario, 1), PlacementEnv(scenario, 1)
    drive(kept)
    drive(open_, masked=False)
    assert kept.infeasible == 0
    assert open_.infeasible > 100


def test_pods_that_fit_nowhere_are_dropped_and_counted():
    env = PlacementEnv(Scenario((SMALL,), pods=6, decisions=6), 1)
    drive(env)
    assert (env.unplaceable, env.infeasible) == (2, 0)


def test_the_same_seed_is_the_same_run_and_another_is_not():
    def trace(seed: int) -> list[int]:
        env = PlacementEnv(moving_latency(5, 60), seed)
        seen = []
        while not env.finished:
            seen += env.table.latency_us[:5].tolist()
            env.place(int(env.rows()[0]))
        return seen

    assert trace(42) == trace(42)
    assert trace(42) != trace(43)


def test_latency_changes_at_two_instants_and_one_of_three_nodes_is_always_within_the_soft_limit():
    env = PlacementEnv(moving_latency(3, 90), 42)
    seen = []
    while not env.finished:
        latency = env.table.latency_us[:3].tolist()
        bands = sorted((value > 20_000) + (value > 30_000) for value in latency)
        assert bands == [0, 1, 2]
        seen.append(tuple(latency))
        env.place(int(env.rows()[0]))
    assert [seen[i] != seen[i - 1] for i in range(1, 90)].count(True) == 2
    assert seen[29] != seen[30]
    assert seen[59] != seen[60]


def test_what_is_seen_lags_by_as_many_decisions_as_told():
    env = PlacementEnv(replacing(3, 30).seen_late(4, 0.0), 1)
    truth = []
    for _ in range(20):
        truth.append(env.table.requested.copy())
        assert (env.seen.requested == truth[max(0, len(truth) - 5)]).all()
        env.place(0)


def test_noise_is_within_its_bound_and_leaves_the_truth_and_the_mask_alone():
    scenario = moving_latency(3, 200)
    noisy, exact = PlacementEnv(scenario.seen_late(0, 0.1), 7), PlacementEnv(scenario, 7)
    differed = False
    for _ in range(60):
        truth = noisy.table.requested[:, :3]
        off = np.abs(noisy.seen.requested[:, :3] - truth)
        assert (off <= 0.1 * truth + 0.5).all()
        differed |= bool(off.any())
        assert (noisy.mask() == exact.mask()).all()
        noisy.place(0)
        exact.place(0)
    assert differed


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sizes": ()}, "scenario.sizes"),
        ({"turnover": "storm"}, "scenario.turnover"),
        ({"pods": 0}, "scenario.pods"),
        ({"noise": 1.0}, "scenario.noise"),
        ({"lag": -1}, "scenario.lag"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused_by_name(changes, named):
    with pytest.raises(ConfigError, match=named):
        Scenario(**changes)


@pytest.mark.parametrize("latency", [True, False])
def test_training_scenarios_always_have_room(latency):
    for seed in range(1000, 1040):
        scenario = training_scenario(np.random.default_rng(seed), latency=latency)
        env = PlacementEnv(scenario, seed)
        drive(env, seed)
        assert env.unplaceable == 0


def test_what_begins_filled_has_its_pods_there_and_replaces_them():
    scenario = filled(10, 50, pods=200)
    env = PlacementEnv(scenario, 1)
    assert env.pods.sum() == 199  # one has left for the first that comes
    assert env.held[:200] == list(range(1, 201))
    assert env.decided == 0
    spreads = {int(np.ptp(PlacementEnv(scenario, seed).pods)) for seed in range(10)}
    assert min(spreads) < 20 < max(spreads)
    while not env.finished:
        env.place(int(env.rows()[0]))
    assert env.pods.sum() == 200
    with pytest.raises(ConfigError, match=r"scenario\.filled"):
        Scenario(turnover="waves", filled=True)
