"""What training jobs could earn by sharing GPUs, at most, by Gavel's table of two jobs on one.

    python -m bench.policies.jobs_sharing [--tables DIR] [--workloads 1-8] [--load 1.0] [--policies marginal,tiresias]

Only jobs that hold a single GPU can share it. Of the GPU time that such jobs have under a policy, each is taken to find
the partner with which the GPU does most, always and at once; then the same work takes so much less of it. Which of
Gavel's models is most like which of Pollux' is an assumption (``lab/jobs/gavel.py``).
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.evaluation.seeds import parse_seeds
from lab.jobs.clusters import POLLUX
from lab.jobs.gavel import BASE, COLOCATED_FILE, ISOLATED_FILE, LIKE, Colocated, Isolated
from lab.jobs.playing import PlayedRun, RunOrder, WorkloadSource, play
from lab.jobs.tables import CONVERGENCE_FILE, THROUGHPUT_FILE
from lab.jobs.workloads import WORKLOADS_FILE
from lab.suites.jobs import LOADS
from lab.worlds.training.simulation import SimulationSettings
from shared.errors import ConclaveError, ConfigError

FILES = (WORKLOADS_FILE, THROUGHPUT_FILE, CONVERGENCE_FILE, ISOLATED_FILE, COLOCATED_FILE)


def best_pairs(files: Mapping[str, str]) -> dict[str, float]:
    """By model of Pollux' tables: what a GPU does with its best partner beside it, in jobs alone on one."""
    isolated, colocated = Isolated.parse(files[ISOLATED_FILE]), Colocated.parse(files[COLOCATED_FILE])
    found: dict[str, float] = {}
    for model, like in LIKE.items():
        sums = [1.0]
        for other in LIKE.values():
            try:
                sums.append(sum(colocated.kept(isolated, BASE, like, other)))
            except ConfigError:
                continue  # out of memory together, or not measured: no partner
        found[model] = max(sums)
    return found


def single_gpu_s(played: PlayedRun, models: Iterable[str]) -> Counter[str]:
    """GPU seconds by model of jobs while they held one GPU; under "" all GPU seconds."""
    found: Counter[str] = Counter()
    held: dict[str, tuple[float, int]] = {}
    names = sorted(models, key=len, reverse=True)
    for change in played.changes:
        since, gpus = held.get(change.job, (change.time, 0))
        model = next(name for name in names if change.job.startswith(name))
        found[""] += gpus * (change.time - since)
        found[model] += (change.time - since) * (gpus == 1)
        held[change.job] = change.time, sum(change.placement.values())
    return found


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(os.environ.get("CONCLAVE_SHARED", "../shared")) / "data" / "dljobs"
    parser.add_argument("--tables", type=Path, default=default)
    parser.add_argument("--workloads", default="1-8")
    parser.add_argument("--load", default="1.0", choices=tuple(LOADS))
    parser.add_argument("--policies", default="marginal,tiresias")
    given = parser.parse_args()
    try:
        files = {name: (given.tables / name).read_text(encoding="utf-8") for name in FILES}
    except OSError as error:
        raise ConfigError(f"--tables: {error}; give the folder with the measured tables") from None
    source = WorkloadSource.of(files[WORKLOADS_FILE], WORKLOADS_FILE, files)
    pairs = best_pairs(files)
    print("a GPU with the best partner, in jobs alone: " + ", ".join(f"{m} {s:.2f}" for m, s in pairs.items()))
    for policy in given.policies.split(","):
        used: Counter[str] = Counter()
        for number in parse_seeds(given.workloads):
            order = RunOrder(
                source=source, workload=(LOADS[given.load], number), cluster=POLLUX, policy=policy, seed=42,
                settings=SimulationSettings(),
            )  # fmt: skip
            used.update(single_gpu_s(play(order), LIKE))
        single = sum(used[model] for model in LIKE) / used[""]
        freed = sum(used[model] * (1.0 - 1.0 / pairs[model]) for model in LIKE) / used[""]
        print(f"{policy}: {single:.1%} of the GPU time is of jobs on one GPU; sharing frees {freed:.1%} at most")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ConclaveError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
