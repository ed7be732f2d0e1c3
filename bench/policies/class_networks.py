"""What networks of classes of nodes earn: ``marl-dqn`` with one network, and with one for each pool, on unlike nodes.

    .venv/bin/python -m bench.policies.class_networks [--clusters pools,night,bursts] [--seeds 47-56] [--agents 4]
        [--train-seed 1000] [--steps N]

The made clusters of ``captured.py`` whose nodes are unlike, each node labelled with its pool. Three policies on each:
the shipped weights, one shared network trained there (``conclave train marl-dqn --cluster``), and a network for each
pool (``--per pool``), both from the shipped weights, by the same rounds, on the same capture, and kept by the same
rule. Then two hours of a later day by test seed, played through coordinator, agents and binder as bytes, with sensors,
what pods truly use. Imbalance, mean +- s.d. over seeds; ratios are of the same pods. Virtual time: figures do not
depend on the machine.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import click
import numpy as np
import torch

from bench.policies.captured import Costs, played, ratios, same, trained
from bench.policies.made_clusters import CLUSTERS, POOL_LABEL
from lab.evaluation.seeds import parse_seeds
from lab.mesh.placement import NamedPolicy
from lab.mesh.world import Agents
from shared.policy.marl.policy import NAME


def told(values: Costs) -> str:
    """Mean and spread."""
    return f"{values.mean():.4f} +- {values.std(ddof=1):.4f}"


def main() -> None:
    """Train, play, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", default="pools,night,bursts")
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("47-56"))
    parser.add_argument("--agents", default="4")
    parser.add_argument("--train-seed", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=0)
    args = parser.parse_args()
    args.algorithm = ""
    for name in args.clusters.split(","):
        if name not in CLUSTERS:
            parser.error(f"--clusters: {name!r} is not known; choose of {','.join(CLUSTERS)}")
    torch.set_num_threads(1)
    click.echo(
        "cluster  agents    shipped            shared, trained    by pool            by pool / shared, / shipped"
    )
    for name in args.clusters.split(","):
        made = replace(CLUSTERS[name], labelled=True)
        policies = [NamedPolicy(NAME), trained(NAME, made, args), trained(NAME, made, args, per=POOL_LABEL)]
        for agents in map(Agents.parse, args.agents.split(",")):
            costs: list[Costs] = []
            for place, policy in enumerate(policies):
                stayed = place > 0 and same(policy)
                costs.append(costs[0] if stayed else np.array([played(policy, made, agents, s) for s in args.seeds]))
            figures = "  ".join(map(told, costs))
            over = ", ".join(told(ratios(before, costs[2])) for before in (costs[1], costs[0]))
            click.echo(f"{name:8} {agents!s:8}  {figures}  {over}")


if __name__ == "__main__":
    main()
