"""What a pod's priority is worth where nodes are short, through a mesh.

    .venv/bin/python -m bench.policies.priorities [--seeds 42-51] [--agents 4,1,per-node] [--costs 0,20] [--load 2]

The thesis' experiment (``uniform``) with ``--load`` times its pods on the same four nodes, by sensors; of each kind one
workload in four pods has a higher priority. A node that is short slows what runs there: told is the share of their
work that pods of either priority get done, mean ± s.d. over seeds, and the imbalance. ``--costs``: of marl-dqn, what a
score is lower by at most where a pod would take from others of higher priority; 0: priorities do not count.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, stdev

import msgspec
import numpy as np

from bench.stand.figures import table
from lab.environments.thesis import ThesisCluster
from lab.environments.thesis_workload import EnvPod, NumpyDraws, thesis_pods
from lab.evaluation.seeds import parse_seeds
from lab.mesh.measured import SENSORS, play
from lab.mesh.placement import NamedPolicy
from lab.mesh.suites import KUBE_DEFAULT
from lab.mesh.world import Agents
from lab.workers import Workers
from shared.policy.marl.policy import MOST_RANK_COST, NAME, MarlDqn
from shared.policy.weights import shipped

NODES = 4
MEASURED_S = 900.0
EVERY = 4
"""One pod in so many has the higher priority."""
ASKED = 4
"""Pods request so much less than in the experiment: use is short, not what is requested, and nobody is evicted."""
LOW, HIGH = 0, 1000
HEAD = ("policy, agents", "work done, high", "work done, low", "all", "imbalance")


@dataclass(frozen=True, slots=True)
class PriorityRanking(NamedPolicy):
    """What it takes from pods of higher priority costs so much at most."""

    cost: float = MOST_RANK_COST

    def make(self) -> MarlDqn:
        """Anew, for one agent."""
        policy = MarlDqn(shipped(NAME))
        policy.most_rank_cost = self.cost
        return policy


def pods_of(seed: int, load: float) -> list[EnvPod]:
    """The scene's pods. Which are of the higher priority does not depend on the policy."""
    drawn = thesis_pods("uniform", NumpyDraws(seed), nodes=round(NODES * load))
    high = np.random.default_rng((seed, 80)).random(len(drawn)) < 1 / EVERY
    return [_ranked(pod, high=one) for pod, one in zip(drawn, high.tolist(), strict=True)]


def _ranked(pod: EnvPod, *, high: bool) -> EnvPod:
    workload = f"{pod.pod_class.workload}-first" if high else pod.pod_class.workload
    requests = tuple((name, amount // ASKED) for name, amount in pod.pod_class.requests)
    asking = msgspec.structs.replace(pod.pod_class, workload=workload, requests=requests)
    return replace(pod, priority=HIGH if high else LOW, pod_class=asking)


def episode(policy: NamedPolicy, agents: Agents, load: float, seed: int) -> tuple[float, float, float, float]:
    """Work done by pods of high and of low priority and by all, and the imbalance."""
    pods = pods_of(seed, load)
    found = play(policy, ThesisCluster.alike(NODES), pods, agents, SENSORS, seed, measured_s=MEASURED_S)
    high, low = (
        [done for pod, done in zip(pods, found.work, strict=True) if pod.priority == rank] for rank in (HIGH, LOW)
    )
    return fmean(high), fmean(low), fmean(found.work), found.imbalance


def told(values: Sequence[float]) -> str:
    """Mean ± sample standard deviation."""
    return f"{fmean(values):.4f}" + (f" ± {stdev(values):.4f}" if len(values) > 1 else "")


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.policies.priorities", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("42-51"))
    parser.add_argument("--agents", default="4,1,per-node")
    parser.add_argument("--costs", default=f"0,{MOST_RANK_COST:g}")
    parser.add_argument("--load", type=float, default=2.0)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    costs = options.costs.split(",")
    policies: dict[str, NamedPolicy] = {
        f"{NAME}, cost {cost}": PriorityRanking(NAME, cost=float(cost)) for cost in costs
    }
    policies[KUBE_DEFAULT] = NamedPolicy(KUBE_DEFAULT)
    lines = []
    with Workers(options.processes) as workers:
        for name, policy in policies.items():
            for agents in map(Agents.parse, options.agents.split(",")):
                found = list(workers.map(partial(episode, policy, agents, options.load), options.seeds))
                lines.append((f"{name}, {agents}", *(told(values) for values in zip(*found, strict=True))))
                print(*lines[-1], sep="  ", flush=True)
    print(*table(HEAD, lines), sep="\n")


if __name__ == "__main__":
    main()
