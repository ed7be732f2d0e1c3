"""A simulated network whose delays are known, for tests and benches of network coordinates."""

from __future__ import annotations

import math
from random import Random

from shared.agent.vivaldi import Vivaldi


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
