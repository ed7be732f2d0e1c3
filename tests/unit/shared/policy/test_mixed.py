"""A mixture's choice is told member by member, and the parts add up to the score."""

from __future__ import annotations

import numpy as np
import pytest

from services.cli.explain.text import lines_of
from services.coordinator.inspect.attribution import _mixed
from shared.policy.mixed import mixed_of
from shared.policy.observation import Observation
from shared.policy.registry import make_policy
from shared.scheduling.state.cache import ClusterCache
from tests.builders import make_node, make_pod


def observation() -> Observation:
    cache = ClusterCache()
    for index in range(3):
        cache.upsert_node(make_node(f"n{index}").node())
        cache.table.add_usage(index, make_pod().cpu(f"{index}").pod().pod_class, (), sign=1)
    return Observation(cache.table, make_pod().cpu("500m").pod().pod_class, np.arange(3))


def test_the_members_parts_add_up_to_the_score() -> None:
    told = mixed_of(make_policy("kube-default=0.4,most-allocated=0.6"), observation())
    assert told is not None
    for node in (told.chosen, told.runner_up):
        assert node.score == pytest.approx(sum(member.product for member in node.members))
        assert [member.weight for member in node.members] == pytest.approx([0.4, 0.6])
    assert told.ahead_by > 0


def test_a_node_that_was_not_the_best_is_told_with_what_is_ahead_of_it() -> None:
    policy, seen = make_policy("least-allocated=1"), observation()
    told = mixed_of(policy, seen, row=2)
    assert told is not None
    assert (told.chosen.row, told.runner_up.row) == (2, 0)
    assert told.ahead_by < 0


def test_other_policies_have_no_parts() -> None:
    assert mixed_of(make_policy("kube-default"), observation()) is None


def test_an_explanation_names_each_members_part_in_words() -> None:
    policy, seen = make_policy("kube-default=0.4,most-allocated=0.6"), observation()
    told = mixed_of(policy, seen)
    assert told is not None
    answer = {"pod": "default/p", "state": "pending", "summary": "waits", "reasons": _mixed(policy, told, seen.table)}
    lines = list(lines_of(answer))
    assert any(line.startswith("  as the nodes stand, hybrid@1 gives n") for line in lines)
    assert sum(" x 0.4 = " in line for line in lines) == 2
    assert sum(" x 0.6 = " in line for line in lines) == 2
