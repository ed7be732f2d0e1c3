"""CPU per placement of 10,000 waiting units over 100 queues, over that of one queue with as many.

    python -m bench.queues [--units 10000] [--queues 100] [--json]

Pure: the tree alone, no processes. A round takes the unit that goes next, charges it, and, as in a full cluster, ends
one that runs and lets a new one arrive. ``--placement-us``: the CPU that a placement costs in the coordinator beside
the tree (``python -m bench.saturation`` gives it); ``ratio_per_placement`` is taken of the sums.
"""

from __future__ import annotations

import argparse
import json
import time
from fractions import Fraction
from random import Random

from shared.model.units.queue import Queue, QueueStrategy
from shared.scheduling.queues.nodes import Charge, WaitingUnit
from shared.scheduling.queues.tree import QueueTree

SHAPES = [(("cpu", cpu), ("memory", gib << 30), ("pods", 1)) for cpu in (500, 1000, 2000, 4000) for gib in (1, 2, 4)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=10_000, help="units that wait at a time (10000)")
    parser.add_argument("--queues", type=int, default=100, help="queues they wait in (100)")
    parser.add_argument("--rounds", type=int, default=20_000, help="placements measured (20000)")
    parser.add_argument("--placement-us", type=float, default=500.0,
                        help="CPU of one placement in the coordinator without queues, microseconds (500)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    args = parser.parse_args()
    one, many = (best(args.units, count, args.rounds) for count in (1, args.queues))
    none = args.placement_us
    found = {
        "units": args.units,
        "queues": args.queues,
        "one_queue_us": round(one, 2),
        "many_queues_us": round(many, 2),
        "ratio_of_the_tree": round(many / one, 3),
        "ratio_per_placement": round((none + many) / (none + one), 3),
    }
    print(json.dumps(found) if args.json else "\n".join(f"{name:22} {value}" for name, value in found.items()))


def best(units: int, queues: int, rounds: int) -> float:
    """Microseconds of CPU per placement; the best of three, as other work on the machine only adds."""
    return min(measure(units, queues, rounds, seed) for seed in range(3))


def measure(units: int, queues: int, rounds: int, seed: int) -> float:
    rng, tree = Random(seed), QueueTree()
    tree.set_capacity({"cpu": 10**8, "memory": 10**14, "pods": 10**6})
    names = [f"q{number}" for number in range(queues)]
    for name in names:
        weight = Fraction(rng.randint(1, 8))
        tree.put_queue(Queue(name, weight=weight, strategy=QueueStrategy.DRF, maximum={"cpu": 10**8}))
    arrivals = 0

    def arrive() -> None:
        nonlocal arrivals
        arrivals += 1
        name = names[rng.randrange(queues)]
        tree.add(WaitingUnit(f"u{arrivals}", "ns", name, rng.randrange(3), arrivals, rng.choice(SHAPES)))

    for _ in range(units):
        arrive()
    running: list[str] = []
    used = 0.0
    for _ in range(rounds):
        began = time.process_time()
        unit = tree.front()
        assert unit is not None
        tree.take(unit, Charge(unit.key, unit.namespace, unit.label, unit.amounts, unit.key, unit.priority))
        if len(running) > 1000:
            tree.release(running.pop(rng.randrange(1000)))
        used += time.process_time() - began
        running.append(unit.key)
        arrive()
    return used / rounds * 1e6


if __name__ == "__main__":
    main()
