"""Which levels of lending the tidal day is played with: chosen on validation seeds, by a rule.

    .venv/bin/python -m bench.policies.tidal_levels --trace-dir DIR [--seeds 500-509] [--agents 4]

Each choice is a threshold of CPU, the change that is written at once, and the margin of who gives way. Told are the
figures that have goals, mean ± s.d. over seeds, and the *slack*: the least distance from a goal, in standard errors of
the mean. The choice with the greatest slack is played on test seeds (``conclave evaluate --suite tidal``), once.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from bench.stand.figures import table
from lab.evaluation.seeds import parse_seeds
from lab.mesh.tidal.day import ALONE, LENT
from lab.mesh.tidal.levels import TidalLevels
from lab.mesh.tidal.suite import LOST, MORE_VIOLATIONS, PEAK_CPU, play
from lab.mesh.world import Agents
from lab.traces.tidal import FOLDERS, read_traces
from lab.workers import Workers
from services.cli.inputs import is_trace, read_trace

REMEDY = "give the folder of all traces"
HEAD = ("CPU %, change %, margin %", "CPU at the peak", "violated, above alone", "work lost", "slack, s.e.")


@dataclass(frozen=True, slots=True)
class LendingChoice:
    """Percent, all three."""

    cpu: float
    change: float
    margin: float

    def levels(self) -> TidalLevels:
        """The day's, lent by these."""
        usual = TidalLevels()
        rule = replace(usual.rule, cpu_percent=self.cpu, change_percent=self.change)
        return replace(usual, rule=rule, offline_margin=self.margin / 100)


CHOICES = (LendingChoice(76.5, 3, 1), LendingChoice(76.5, 1, 1), LendingChoice(76.5, 1, 0), LendingChoice(77, 1, 0))


def slack(values: Sequence[float], goal: float) -> float:
    """How far the mean lies above the goal, in its standard errors."""
    return (fmean(values) - goal) / (stdev(values) / sqrt(len(values)) or 1e-9)


def row(lent: LendingChoice, days: Sequence[Mapping[str, float]], alone: Sequence[float]) -> tuple[str, ...]:
    """One line of the table."""
    peak, lost = [day["cpu_peak"] for day in days], [day["lost"] for day in days]
    more = [day["violations"] - less for day, less in zip(days, alone, strict=True)]
    least = min(
        slack(peak, PEAK_CPU), slack([-one for one in more], -MORE_VIOLATIONS), slack([-one for one in lost], -LOST)
    )
    shown = (f"{fmean(one):.3f} ± {stdev(one):.3f}" for one in (peak, more, lost))
    return f"{lent.cpu:g}, {lent.change:g}, {lent.margin:g}", *shown, f"{least:+.1f}"


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.policies.tidal_levels", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--trace-dir", type=Path, required=True)
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("500-509"))
    parser.add_argument("--agents", default="4")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    agents, rows = Agents.parse(asked.agents), []
    files = sorted(file for one in FOLDERS for file in (asked.trace_dir / one).iterdir() if is_trace(file))
    traces = read_traces({file.name.removesuffix(".gz"): read_trace("--trace-dir", file, REMEDY) for file in files})
    with Workers(asked.processes) as workers:
        services = workers.map(partial(play, traces, TidalLevels(), ALONE, agents), asked.seeds)
        alone = [day.figures["violations"] for day in services]
        for lent in CHOICES:
            days = workers.map(partial(play, traces, lent.levels(), LENT, agents), asked.seeds)
            rows.append(row(lent, [day.figures for day in days], alone))
            print(*rows[-1], sep=" | ", flush=True)
    print(*table(HEAD, rows), sep="\n")


if __name__ == "__main__":
    main()
