"""Do runs of many times the shipped length stay converged? The shipped recipes, nothing else changed.

    nice -n 15 python -m bench.policies.long_runs                     # el, ee, lb, marl-dqn; 10 times; half an hour
    nice -n 15 python -m bench.policies.long_runs el --times 10 --seeds 1001-1002

Schedules (exploration, Adam's step) are stretched with the length, and no run ends early. The run is validated
(seeds 500-509) after each shipped length: told are the best of those, the worst and the last of the second half, and
the least of a run of the shipped length beside them. A run has stayed converged where the worst of the second half is
near the best. Lower is better: regret to the oracle, of ``marl-dqn`` imbalance. Test seeds are not looked at.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from lab.evaluation.seeds import parse_seeds
from lab.learner.deepsets.ppo import PpoRun
from lab.learner.deepsets.settings import settings_for
from lab.learner.deepsets.training import DeepSetsRun
from lab.learner.marl import settings as marl
from lab.learner.marl.training import MarlRun
from lab.learner.training.runner import check_seed
from shared.errors import ConclaveError

POLICIES = ("el", "ee", "lb", marl.NAME)
TIMES = 10
FIGURES = ("validation/regret", "validation/imbalance")
Run = DeepSetsRun | PpoRun | MarlRun


@dataclass(frozen=True, slots=True)
class Course:
    """What the validations of one run gave, in order; ``steps`` done when it ended."""

    values: tuple[float, ...]
    steps: int
    cpu_s: float

    @property
    def late(self) -> tuple[float, ...]:
        """The second half."""
        return self.values[len(self.values) // 2 :]


def run_of(policy: str, seed: int, times: int) -> Run:
    """The shipped recipe, ``times`` as long; validated as often per shipped length as the shipped run is."""
    if policy == marl.NAME:
        agents = marl.settings_for(policy, seed)
        return MarlRun(agents if times == 1 else replace(agents, rounds=times * agents.rounds, patience=sys.maxsize))
    sets = settings_for(policy, seed)
    sets = replace(sets, decisions=times * sets.decisions)
    return DeepSetsRun(sets) if sets.ppo is None else PpoRun(sets)


def course(run: Run) -> Course:
    """Play it to its end."""
    started_s, found = time.process_time(), []
    for report in run.run():
        found += [report.scalars[name] for name in FIGURES if name in report.scalars]
    return Course(tuple(found), run.done, time.process_time() - started_s)


def line(policy: str, seed: int, short: Course, long: Course) -> str:
    """A row of the table."""
    figures = (min(short.values), min(long.values), max(long.late), long.values[-1])
    cells = " | ".join(f"{figure:.4f}" for figure in figures)
    return f"| `{policy}` | {seed} | {short.steps:,} | {long.steps:,} | {cells} | {long.cpu_s:.0f} |"


def table(policies: Sequence[str], seeds: Sequence[int], times: int) -> Iterator[str]:
    """Line by line, as runs end."""
    yield "| policy | training seed | steps, shipped | steps here | best, shipped | best | worst late | last | CPU s |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for policy in policies:
        for seed in seeds:
            yield line(policy, seed, course(run_of(policy, seed, 1)), course(run_of(policy, seed, times)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", default=list(POLICIES), metavar="POLICY", help=", ".join(POLICIES))
    parser.add_argument("--times", type=int, default=TIMES, help="how many times the shipped length")
    parser.add_argument("--seeds", default="1001", help="training seeds")
    given = parser.parse_args()
    torch.set_num_threads(1)
    try:
        seeds = parse_seeds(given.seeds)
        for seed in seeds:
            check_seed(seed)
        for told in table(given.policies, seeds, given.times):
            print(told, flush=True)
    except ConclaveError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
