"""What ``bench.policies.captured`` plays is known before anything is trained."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.policies.captured import POLICIES, chosen_clusters, ratios
from bench.policies.made_clusters import CLUSTERS, GPUS, LATENT
from shared.errors import ConfigError


def test_each_policy_has_those_of_the_named_clusters_that_are_its_own() -> None:
    chosen = chosen_clusters(POLICIES, "night,office")
    assert {policy: list(made) for policy, made in chosen.items()} == {
        "ee": ["night", "office"], "el": ["night", "office"], "frag": [], "lb": ["night", "office"],
        "marl-dqn": ["night", "office"],
    }  # fmt: skip
    assert chosen["el"]["office"] is LATENT["office"]


def test_without_names_each_has_all_of_its_own() -> None:
    assert chosen_clusters("lb,frag", "") == {"lb": CLUSTERS, "frag": GPUS}


@pytest.mark.parametrize(
    ("policies", "clusters", "told"),
    [
        ("lb", "training", "--clusters: 'training' is none of lb; choose of office,pools,night,bursts"),
        ("lb,ee", "office,", "--clusters: '' is none of lb,ee; choose of office"),
        ("lb,power", "", "--policies: 'power' is not learned here; choose of ee,el,frag,lb,marl-dqn"),
    ],
)
def test_what_no_policy_has_is_refused_with_what_there_is(policies: str, clusters: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        chosen_clusters(policies, clusters)


def test_where_nothing_was_lost_before_and_after_the_ratio_is_one() -> None:
    found = ratios(np.array([0.0, 2.0, 0.0]), np.array([0.0, 1.0, 3.0]))
    assert found.tolist() == [1.0, 0.5, math.inf]
