"""Network coordinates of a thousand simulated nodes: the delay between any two of them, from a few probes of each."""

from __future__ import annotations

from random import Random

from shared.agent.vivaldi import delay_ms
from tests.delays import Net, settled

NODES = 1000
ROUNDS = 240
"""Probes of each node: some 100 s at the shipped rate of at most 3 per second."""


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
