"""CPU seconds of one decision of a policy for training jobs: the first one, with no speeds in memory, and the next.

.venv/bin/python -m bench.policies.jobs_decision [POLICY] [--jobs 2000] [--nodes 200] [--tables DIR]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from lab.jobs.clusters import uniform
from lab.jobs.playing import WorkloadSource
from lab.jobs.workloads import WORKLOADS_FILE, jobs_of
from lab.worlds.training.simulation import Simulation, SimulationSettings
from shared.jobs.observation import JobsObservation
from shared.jobs.registry import make


def observation(tables: Path, jobs: int, nodes: int) -> JobsObservation:
    """So many of Pollux' jobs, all of which have just come, on nodes of 4 GPUs; nothing was asked of their speeds."""
    texts = {file.name: file.read_text() for file in tables.glob("pollux_*.csv")}
    source = WorkloadSource.of(texts[WORKLOADS_FILE], WORKLOADS_FILE, texts)
    rows = tuple(row for workload in source.read().values() for row in workload)[:jobs]
    cluster = uniform(nodes, 4)
    made = [
        replace(job, name=f"{job.name}-{number}", submitted=0.0)
        for number, job in enumerate(jobs_of(rows, gpus=cluster.gpus, adaptive=True))
    ]
    simulation = Simulation(made, cluster.nodes, SimulationSettings(), seed=0)
    simulation.advance(1.0)
    return simulation.observe()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.policies.jobs_decision")
    parser.add_argument("policy", nargs="?", default="marginal")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--tables", type=Path, default=Path("../shared/data/dljobs"))
    given = parser.parse_args()
    seen = observation(given.tables, given.jobs, given.nodes)
    policy = make(given.policy)
    policy.reset(0)
    for which in ("first", "second"):
        began = time.thread_time()
        policy.decide(seen)
        took_s = time.thread_time() - began
        print(f"{given.policy}, {len(seen.jobs)} jobs on {given.nodes} nodes, {which}: {took_s:.2f} s CPU")


if __name__ == "__main__":
    main()
