"""What foreseeing by the clock is worth beside the fixed rule: the demand of tidal days, the rule alone, no mesh.

    .venv/bin/python -m bench.parts.tidal_foresight --trace-dir DIR [--seeds 500-509]

Each service is spread over six nodes by the seed. Every 15 s a node is read (a step late), and lends by the rule over
what is taken; executors of 8 cores fill what is lent at once, and use of it what jobs do in the mean. Who is sent away
stays two steps more: the grace. Told are CPU used in the hour of the highest demand, requests beyond the line, and how
many were sent away a day, mean ± s.d. over seeds. It is no day of the suite: no pod is placed, none is scaled, nothing
is saved or lost. It is there to choose by, in minutes, on validation seeds; the suite says what comes of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from bench.parts.foresight import Foresight
from bench.stand.figures import table
from lab.evaluation.seeds import parse_seeds
from lab.mesh.tidal.levels import TidalLevels
from lab.mesh.tidal.services import services_of
from lab.traces.tidal import FOLDERS, TidalTraces, day_of, read_traces
from lab.workers import Workers
from services.cli.inputs import is_trace, read_trace
from services.coordinator.lending.window import LoadWindow

Floats = NDArray[np.float64]
REMEDY = "give the folder of all traces"
USED = 0.925
"""What jobs use of what they ask for, in the mean."""
LATE = 3
"""Steps from a rise to the end of whom it sends away: the reading's age, and the grace."""
EVEN = 8.0
"""How evenly a service is spread (Dirichlet)."""
CHOICES = ((76.5, 900.0, 0.0), (78.0, 1800.0, 0.0), (78.0, 3600.0, 0.0), (78.0, 900.0, 60.0), (78.0, 1800.0, 60.0))
"""CPU %, seconds of the window, seconds foreseen."""
EXECUTOR = 8.0
"""Cores of which one that leaves gives up as many."""
HEAD = ("CPU %, window, foreseen", "CPU at the peak, %", "requests beyond the line, %", "executors sent away")


def nodes_of(traces: TidalTraces, levels: TidalLevels, seed: int) -> Floats:
    """Cores that services use on each node at each step."""
    demand = day_of(traces.tides, seed)
    services = services_of(traces.tides, demand[:, 0], levels)
    cores = demand[:, :: round(levels.step_s)] * np.array([[service.peak_cores] for service in services])
    spread = np.random.default_rng(seed).dirichlet(np.full(levels.nodes, EVEN), size=len(services))
    return np.minimum(spread.T @ cores, levels.cores)


def lent(used: Floats, levels: TidalLevels, cpu: float, window_s: float, foresee_s: float) -> Floats:
    """What a node lends at each step."""
    window, foresight = LoadWindow(window_s), Foresight(foresee_s)
    found = np.zeros(len(used))
    for step, cores in enumerate(used.tolist()):
        now_s = step * levels.step_s
        window.add(now_s, (cores, 0.0))
        foresight.add(now_s, (cores, 0.0))
        taken = max(
            cores + foresight.ahead(now_s, (levels.cores, 0.0))[0], window.percentile(levels.rule.percentile)[0]
        )
        found[step] = max(0.0, levels.cores * cpu / 100 - taken)
    return found


def held(free: Floats) -> tuple[Floats, int]:
    """Cores that executors hold of it at each step, those who were sent away for their grace too; and how many were."""
    found, away, there = np.zeros(len(free)), 0, 0.0
    late = [0.0] * LATE
    for step, amount in enumerate(free.tolist()):
        late = [*late[1:], there]
        found[step] = max(late)
        fits = amount // EXECUTOR * EXECUTOR
        away += max(0, round((there - fits) / EXECUTOR))
        there = fits
    return found, away


def day(
    traces: TidalTraces, choices: Sequence[tuple[float, float, float]], seed: int
) -> list[tuple[float, float, float]]:
    """Of each choice CPU at the peak and requests beyond the line, percent; executors that were sent away."""
    levels = TidalLevels()
    hour = round(3600 / levels.step_s)
    nodes = nodes_of(traces, levels, seed)
    peak = int(np.argmax(np.convolve(nodes.sum(axis=0), np.ones(hour), "valid")))
    found = []
    for choice in choices:
        violated, used, gone = 0.0, 0.0, 0
        for online in nodes:
            offline, away = held(lent(online, levels, *choice))
            offline *= USED
            gone += away
            violated += online[online + offline > levels.line * levels.cores].sum()
            used += np.minimum(online + offline, levels.cores)[peak : peak + hour].mean()
        found.append((100 * used / levels.cores / levels.nodes, 100 * violated / nodes.sum(), float(gone)))
    return found


def rows(days: Sequence[list[tuple[float, float, float]]]) -> Iterator[tuple[str, ...]]:
    """A line of each choice."""
    for choice, of in zip(CHOICES, zip(*days, strict=True), strict=True):
        yield (
            ", ".join(f"{one:g}" for one in choice),
            *(f"{fmean(one):.3f} ± {stdev(one):.3f}" for one in zip(*of, strict=True)),
        )


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.parts.tidal_foresight", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--trace-dir", type=Path, required=True)
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("500-509"))
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    files = sorted(file for one in FOLDERS for file in (asked.trace_dir / one).iterdir() if is_trace(file))
    traces = read_traces({file.name.removesuffix(".gz"): read_trace("--trace-dir", file, REMEDY) for file in files})
    with Workers(asked.processes) as workers:
        days = list(workers.map(partial(day, traces, CHOICES), asked.seeds))
    print(*table(HEAD, list(rows(days))), sep="\n")


if __name__ == "__main__":
    main()
