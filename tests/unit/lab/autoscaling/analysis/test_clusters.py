"""Behaviours: as pure and as stable as the stretches are, and neither where there is nothing to find."""

from __future__ import annotations

import numpy as np
import pytest

from lab.autoscaling.analysis.clusters import behaviours, purity
from lab.autoscaling.analysis.trajectories import Stretch

ROLES = {"calm": 0.0, "surge": 5.0, "failing": -5.0}


def stretches(*, noise: float, shuffled: bool = False) -> list[Stretch]:
    """Thirty of each role on each of four seeds; ``shuffled``: roles are given at random."""
    rng = np.random.default_rng(3)
    made = []
    for seed in range(4):
        for role, level in ROLES.items():
            for _ in range(30):
                told = str(rng.choice(list(ROLES))) if shuffled else role
                series = level + noise * rng.normal(size=(int(rng.integers(1, 6)), 2))
                made.append(Stretch(seed, "a", told, series))
    return made


def test_roles_that_behave_apart_are_pure_and_the_same_on_every_seed():
    found = behaviours(stretches(noise=0.3))
    assert found.purity == 1.0
    assert found.stability == pytest.approx(1.0)
    assert found.most_frequent == pytest.approx(1 / 3)
    assert [sum(one.roles.values()) for one in found.clusters] == [120, 120, 120]


def test_roles_that_say_nothing_of_behaviour_are_not_pure():
    assert behaviours(stretches(noise=0.3, shuffled=True)).purity < 0.5


def test_behaviours_that_are_noise_are_not_stable():
    assert behaviours(stretches(noise=50.0)).stability < 0.5


def test_one_seed_has_no_stability():
    assert behaviours([one for one in stretches(noise=0.3) if one.seed == 0]).stability is None


def test_purity_is_the_share_of_the_most_frequent_role_of_each_cluster():
    assert purity(np.array([0, 0, 0, 1]), ["x", "x", "y", "y"]) == 0.75
