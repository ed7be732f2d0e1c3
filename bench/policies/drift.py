"""Does marl-dqn drift where it decides for longer than any episode of its training, through a mesh?

    .venv/bin/python -m bench.policies.drift [--seeds 42-51] [--agents 4,1,per-node] [--times 10] [--processes 1]

The thesis' workload (``uniform``, ``random``) so many times, one after the other, by sensors that are late and noisy,
through coordinator, agents and binder as bytes, in virtual time. Imbalance of the second workload (the first begins on
empty nodes) and of the last one, of marl-dqn and kube-default; the last over the second is what it drifts by.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from statistics import fmean, stdev

from bench.stand.figures import table
from lab.evaluation.seeds import parse_seeds
from lab.mesh import thesis
from lab.mesh.placement import NamedPolicy
from lab.mesh.suites import KUBE_DEFAULT, WORKLOADS
from lab.mesh.world import Agents
from lab.workers import Workers

POLICIES = ("marl-dqn", KUBE_DEFAULT)
HEAD = ("policy, workload, agents", "second", "middle ones", "last", "last over second")


def told(values: Sequence[float]) -> str:
    """Mean ± sample standard deviation."""
    return f"{fmean(values):.4f}" + (f" ± {stdev(values):.4f}" if len(values) > 1 else "")


def row(policy: str, workload: str, agents: Agents, each: Sequence[Sequence[float]]) -> Sequence[str]:
    """A line; ``each``: by seed the imbalance of each workload."""
    second, last = [one[1] for one in each], [one[-1] for one in each]
    middle = [fmean(one[2:-1] or one[1:]) for one in each]
    over = [b / a for a, b in zip(second, last, strict=True)]
    return f"{policy}, {workload}, {agents}", told(second), told(middle), told(last), told(over)


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.policies.drift", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("42-51"))
    parser.add_argument("--agents", default="4,1,per-node")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    if options.times < 2:
        parser.error("--times: give 2 at least, the last is compared with the second")
    lines = []
    with Workers(options.processes) as workers:
        for policy in POLICIES:
            for workload in WORKLOADS:
                for agents in map(Agents.parse, options.agents.split(",")):
                    one = partial(
                        thesis.episode, NamedPolicy(policy), workload, agents, thesis.SENSORS, times=options.times
                    )  # fmt: skip
                    each = [found.each for found in workers.map(one, options.seeds)]
                    lines.append(row(policy, workload, agents, each))
                    print(*lines[-1], sep="  ", flush=True)
    print(*table(HEAD, lines), sep="\n")


if __name__ == "__main__":
    main()
