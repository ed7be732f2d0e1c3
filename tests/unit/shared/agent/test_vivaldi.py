"""Network coordinates on simulated delays: near the truth, unmoved by what cannot be."""

from __future__ import annotations

import math
from itertools import combinations
from random import Random

import pytest

from shared.agent.vivaldi import FILTER, MOST_STEP_MS, Coordinate, Vivaldi, delay_ms
from tests.delays import Net, settled


def test_four_nodes_find_their_place_whatever_order_they_come_in() -> None:
    net = Net(4, seed=7)
    found = settled(net, 4, 400, seed=8, neighbours=8)
    for a, b in combinations(range(4), 2):
        assert abs(delay_ms(found[a].here, found[b].here) - net.truth(a, b)) <= max(0.15 * net.truth(a, b), 1.0)


@pytest.mark.parametrize(
    ("rtt_ms", "theirs"),
    [
        (math.nan, Coordinate()),
        (math.inf, Coordinate()),
        (-1.0, Coordinate()),
        (0.0, Coordinate()),
        (1e9, Coordinate()),
        (5.0, Coordinate(at=(math.nan, 0.0, 0.0))),
        (5.0, Coordinate(at=(1e300, 0.0, 0.0))),
        (5.0, Coordinate(at=(1.0,))),
        (5.0, Coordinate(height=-1.0)),
        (5.0, Coordinate(error=math.nan)),
    ],
)
def test_what_cannot_be_changes_nothing(rtt_ms: float, theirs: Coordinate) -> None:
    one = Vivaldi(Random(1))
    before = one.here
    assert not one.take("peer", rtt_ms, theirs)
    assert one.here == before
    assert one.samples == 0


def test_one_slow_answer_moves_nobody() -> None:
    there = Coordinate(at=(10.0, 0.0, 0.0), height=0.1, error=0.1)
    one = Vivaldi(Random(1))
    for _ in range(60):
        one.take("peer", 10.0, there)
    before = one.here
    one.take("peer", 5_000.0, there)
    assert math.dist(before.at, one.here.at) < 0.2


def test_a_peer_that_lies_moves_a_node_by_a_bounded_step() -> None:
    one = Vivaldi(Random(1))
    for number in range(FILTER):
        before = one.here
        one.take("liar", 9_000.0, Coordinate(at=(-9_000.0, 9_000.0, 0.0), error=0.0))
        assert math.dist(before.at, one.here.at) <= MOST_STEP_MS + 1e-6, number
