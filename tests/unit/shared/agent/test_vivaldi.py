"""Network coordinates on simulated delays: near the truth for any two nodes, unmoved by what cannot be."""

from __future__ import annotations

import math
from itertools import combinations
from random import Random

import pytest

from shared.agent.vivaldi import FILTER, MOST_STEP_MS, Coordinate, Vivaldi, delay_ms

NODES = 1000
ROUNDS = 160
"""Probes of each node: 80 s at the shipped 2 per second."""


class Net:
    """Nodes in zones of regions: a backbone between regions, racks within, an access delay of each node; each probe is
    up to 10 % slower than the truth, one in thirty 20 ms."""

    def __init__(self, nodes: int, seed: int) -> None:
        rng = Random(seed)
        regions = [(rng.uniform(0, 120), rng.uniform(0, 60), 0.0) for _ in range(4)]
        zones = [tuple(x + rng.gauss(0, 0.6) for x in rng.choice(regions)) for _ in range(12)]
        self.at = [tuple(x + rng.gauss(0, 0.05) for x in rng.choice(zones)) for _ in range(nodes)]
        self.access = [rng.uniform(0.05, 0.5) for _ in range(nodes)]
        self.rng = rng

    def truth(self, a: int, b: int) -> float:
        return math.dist(self.at[a], self.at[b]) + self.access[a] + self.access[b]

    def probe(self, a: int, b: int) -> float:
        slow = 20.0 if self.rng.random() < 1 / 30 else 0.0
        return self.truth(a, b) * self.rng.uniform(1.0, 1.1) + slow


def settled(net: Net, nodes: int, rounds: int, seed: int, *, neighbours: int = 32) -> list[Vivaldi]:
    rng = Random(seed)
    found = [Vivaldi(rng) for _ in range(nodes)]
    known = [[rng.randrange(nodes) for _ in range(neighbours)] for _ in range(nodes)]
    for _ in range(rounds):
        for here, one in enumerate(found):
            peer = rng.choice(known[here])
            if peer != here:
                one.take(peer, net.probe(here, peer), found[peer].here)
    return found


def test_any_two_of_a_thousand_nodes_are_within_10_percent_or_1_ms() -> None:
    net = Net(NODES, seed=42)
    found = settled(net, NODES, ROUNDS, seed=43)
    rng = Random(44)
    off = []
    for _ in range(20_000):
        a, b = rng.sample(range(NODES), 2)
        truth = net.truth(a, b)
        off.append(abs(delay_ms(found[a].here, found[b].here) - truth) / max(0.1 * truth, 1.0))
    off.sort()
    assert off[int(0.95 * len(off))] <= 1.0


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
