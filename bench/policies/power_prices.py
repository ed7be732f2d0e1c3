"""What ``power`` saves and gives up on openb by the price of a watt; the shipped one was settled on default, seed 500.

    .venv/bin/python -m bench.policies.power_prices --trace-dir DIR [--seeds 500-504] [--prices 0.1] [--traces cpu050]

One decider, PWR's figures (``shared/model/power.py``). Per trace and price: kilowatts on the way from no GPU asked for
to all, percent saved of ``frag``'s and of ``fgd``'s, points of all GPUs allocated at 130 % demand less ``frag``'s. The
rule for choosing, written before the runs and not yet played on all traces and seeds: the smallest price that saves
10 % of ``frag``'s on every trace for at most 0.5 points; where none does, the one that saves most in the mean at no
more than 0.5 points on any trace. Figures do not depend on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from lab.evaluation.seeds import parse_seeds
from lab.suites.openb import read_traces
from lab.worlds.placement.gpu_power import PowerScorer, kilowatts
from lab.worlds.placement.trace_run import scorer_of
from shared.policy.rehearsal.episode import Scorer
from shared.policy.rehearsal.rehearsal import RehearsalTrace, play
from shared.policy.weights import shipped

PRICES = (0.0005, 0.001, 0.002, 0.004, 0.008)


def figures(trace: RehearsalTrace, make: Callable[[], Scorer | None], seeds: Sequence[int]) -> tuple[float, float]:
    """(mean kilowatts, percent allocated), mean over the seeds."""
    found = [play(trace, make(), seed) for seed in seeds]
    drawn = np.mean([kilowatts(trace, one).mean() for one in found])
    return float(drawn), float(np.mean([one.allocation() for one in found]))


def main() -> None:
    """Print the table, a line when it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace-dir", type=Path, required=True)
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("500-504"))
    parser.add_argument("--prices", type=lambda text: tuple(map(float, text.split(","))), default=PRICES)
    parser.add_argument("--traces", type=lambda text: tuple(text.split(",")), default=())
    given = parser.parse_args()
    traces = read_traces({file.name: file.read_text() for file in given.trace_dir.glob("*.csv")})
    print("trace, price: kW, % saved of frag's, of fgd's, points less frag")
    for name in given.traces or traces:
        trace, weights = traces[name], shipped("frag")
        bases = {who: figures(trace, partial(scorer_of, who, trace), given.seeds) for who in ("frag", "fgd")}
        for who, (drawn, allocated) in bases.items():
            print(f"{name}, {who}: {drawn:.1f}, allocated {allocated:.2f}", flush=True)
        for price in given.prices:
            make = partial(PowerScorer, trace, weights, price=price)
            drawn, allocated = figures(trace, make, given.seeds)
            saved = [100 * (1 - drawn / bases[who][0]) for who in ("frag", "fgd")]
            lost = allocated - bases["frag"][1]
            print(f"{name}, {price:g}: {drawn:.1f}, {saved[0]:+.2f}, {saved[1]:+.2f}, {lost:+.2f}", flush=True)


if __name__ == "__main__":
    main()
