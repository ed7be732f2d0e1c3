"""The value of a choice: 1 for the node that the goal likes best, 0 for the worst, none where all are alike."""

from __future__ import annotations

import numpy as np
import pytest

from shared.policy.observation import Observation
from shared.policy.registry import HEURISTICS, LEARNED, goal_of, make_policy
from shared.policy.rollout.costs import balance, packing
from shared.policy.rollout.outcome import GOALS, NEUTRAL, goal_named, values
from shared.policy.rollout.room import RoomMeasure
from shared.scheduling.state.cache import ClusterCache
from tests.builders import make_node, make_pod

POD = make_pod().cpu("1").memory("1Gi").pod().pod_class


def loaded(*pods: int) -> ClusterCache:
    cache = ClusterCache()
    for index, count in enumerate(pods):
        cache.upsert_node(make_node(f"n{index}").allocatable(cpu="8", memory="8Gi").node())
        for number in range(count):
            cache.assume(f"u{index}-{number}", f"n{index}", POD, now=0.0)
    return cache


def test_balance_likes_the_emptiest_node_and_packing_the_fullest():
    table, rows = loaded(3, 0, 5).table, np.arange(3)
    np.testing.assert_allclose(values(balance(table, POD, rows))[[1, 2]], [1, 0])
    np.testing.assert_allclose(values(packing(table, POD, rows))[[1, 2]], [0, 1])


def test_balance_is_the_standard_deviation_over_all_nodes_with_the_pod_there():
    table = loaded(3, 0, 5, 2).table
    costs = balance(table, POD, np.array([0, 1]))
    np.testing.assert_allclose(costs, [np.std([4 / 8, 0, 5 / 8, 2 / 8]), np.std([3 / 8, 1 / 8, 5 / 8, 2 / 8])])


@pytest.mark.parametrize("goal", ["nodes", "packing", "reward: load"])
def test_who_takes_the_node_that_is_measured_to_be_fullest_is_right_though_another_requests_more(goal):
    """Of ``ee`` beside most-allocated: by requests each such choice would lose."""
    table, rows = loaded(6, 3).table, np.arange(2)
    for row, used in ((0, 0.1), (1, 0.5)):
        table.use.put(row, [used, used, 0.0, 0.0], 0, table.requested[:2, row].tolist())
    cost = goal_named(goal)(table, POD, rows, RoomMeasure(table, ()))
    for name, chosen in (("ee", 1), ("most-allocated", 0)):
        score = make_policy(name).decide(Observation(table, POD, rows), np.random.default_rng(1)).score
        assert score.argmax() == chosen
    np.testing.assert_allclose(values(cost), [0, 1])


def test_what_a_load_is_the_mean_of_holds_for_goals_too():
    table, rows = loaded(6, 3).table, np.arange(2)
    for row, disk in ((0, 0.2), (1, 0.7)):
        table.use.put(row, [0.1, 0.1, disk, 0.0], 0, table.requested[:2, row].tolist())
    room = RoomMeasure(table, (), load_parts=("disk",))
    np.testing.assert_allclose(GOALS["packing"](table, POD, rows, room), [1 - 0.2 - 1 / 8, 1 - 0.7 - 1 / 8])
    np.testing.assert_allclose(goal_named("reward: load")(table, POD, rows, room), [-0.2, -0.7])


def test_where_all_nodes_are_alike_no_choice_is_worth_more():
    assert values(balance(loaded(2, 2, 2).table, POD, np.arange(3))) is None
    assert values(np.zeros(0)) is None
    assert values(np.array([0.3])) is None


def test_no_goal_belongs_to_a_policy():
    """A goal is an aim that several policies may have: none is a policy's own scale."""
    assert not set(GOALS) & {*HEURISTICS, *LEARNED}
    for name in (*HEURISTICS, *LEARNED):
        assert goal_of(name) in {"", *GOALS}


def test_neutral_is_balance_and_the_room_that_is_taken():
    table, rows = loaded(3, 0, 5).table, np.arange(3)
    room = RoomMeasure(table, [(make_pod().cpu("4").memory("1Gi").pod().pod_class.requests, 1.0)])
    together = GOALS[NEUTRAL](table, POD, rows, room)
    np.testing.assert_allclose(together, balance(table, POD, rows) + room.taken(table, POD, rows))
