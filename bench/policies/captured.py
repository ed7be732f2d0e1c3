"""Policies trained on captured clusters, beside the shipped ones, on later days of the same clusters.

    .venv/bin/python -m bench.policies.captured [--policies marl-dqn,lb] [--clusters office,...] [--seeds 42-46]
        [--agents 1,4] [--train-seed 1000] [--steps N] [--algorithm ppo] [--write FOLDER]

Four made clusters (``made_clusters.py``) for each policy: unlike in nodes, pods and the curve of their day; for ``el``
with near and far nodes, for ``frag`` with GPUs. Days of each are captured; ``conclave train --cluster`` learns from
that capture alone and chooses by its last day. Then two hours of a *later* day, drawn by a test seed, are played
through coordinator, agents and binder as bytes, with sensors, what pods truly use: figures are means over seeds
+- s.d., of the trained policy and of the shipped one on the same pods, and of their ratio. For ``frag`` a later day's
pods come until they ask for 130 % of the GPUs. Virtual time: figures do not depend on the machine. ``--write``: the
captures alone, as files.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import click
import numpy as np
import torch
from numpy.typing import NDArray

from bench.policies.made_clusters import Made, captured, cluster_truly, clusters_for, later_day, later_gpu_pods
from lab.evaluation.seeds import parse_seeds
from lab.learner.__main__ import TRAINERS
from lab.learner.frag.captured import lists_of
from lab.learner.training.runner import TrainRequest
from lab.mesh import openb
from lab.mesh.measured import SENSORS, play
from lab.mesh.placement import NamedPolicy
from lab.mesh.world import Agents
from lab.worlds.placement.captured_cluster import cluster_of
from shared.errors import ConfigError
from shared.policy.frag.fragmentation import typical_demand
from shared.policy.frag.policy import request_of
from shared.policy.frag.value import NAME as FRAG
from shared.policy.rehearsal.rehearsal import RehearsalTrace
from shared.policy.rehearsal.submission import pods_of
from shared.policy.weights import decode, shipped
from twin.model.capture import encode

Costs = NDArray[np.float64]
POLICIES = "ee,el,frag,lb,marl-dqn"
FIGURE = {"marl-dqn": "imbalance", "lb": "load_spread", "ee": "nodes_in_use", "el": "reward_missed"}
"""What each is judged by, ``frag`` by the percent of the GPUs that nobody holds; lower is better."""


def played(policy: NamedPolicy, made: Made, agents: Agents, seed: int) -> float:
    """What one test through the mesh cost."""
    if policy.name == FRAG:
        nodes, _, _ = lists_of(cluster_of(captured(made), "made"), "made")
        pods = pods_of([request_of(one, nodes.models) for one in later_gpu_pods(made, seed)])
        trace = RehearsalTrace(nodes, pods, typical_demand(pods.classes, pods.counts))
        return 100.0 - openb.allocated(trace, policy, agents, seed)
    pods_ = later_day(made, seed)
    last_s = max(pod.at_s + pod.duration_s for pod in pods_)
    result = play(policy, cluster_truly(made), pods_, agents, SENSORS, seed, measured_s=last_s)
    return float(getattr(result, FIGURE[policy.name]))


def trained(policy: str, made: Made, args: argparse.Namespace, *, per: str = "") -> NamedPolicy:
    """The policy trained on the made cluster's capture, by the trainer of ``conclave train``; with ``per`` a network
    for each value of that label of nodes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "capture.json.gz"
        file.write_bytes(encode(captured(made)))
        out = Path(folder) / "out"
        out.mkdir()
        request = TrainRequest(
            policy, out, (args.train_seed,), cluster=file, algorithm=args.algorithm, steps=args.steps or None, per=per
        )
        TRAINERS[policy](request)
        return NamedPolicy(policy, decode((out / f"{policy}.npz").read_bytes(), policy=policy))


def same(ours: NamedPolicy) -> bool:
    """Whether the shipped weights stayed: then so do the placements."""
    assert ours.weights is not None
    arrays, theirs = ours.weights.arrays, shipped(ours.name).arrays
    return arrays.keys() == theirs.keys() and all(np.array_equal(arrays[name], theirs[name]) for name in theirs)


def chosen_clusters(policies: str, clusters: str) -> dict[str, dict[str, Made]]:
    """By policy, those of ``clusters`` that it has; "": all. ``ConfigError``: a policy is not learned here, or none of
    them has such a cluster."""
    for policy in policies.split(","):
        if policy not in POLICIES.split(","):
            raise ConfigError(f"--policies: {policy!r} is not learned here; choose of {POLICIES}")
    made_of = {policy: clusters_for(policy) for policy in policies.split(",")}
    known = list(dict.fromkeys(name for made in made_of.values() for name in made))
    names = clusters.split(",") if clusters else known
    for name in names:
        if name not in known:
            raise ConfigError(f"--clusters: {name!r} is none of {policies}; choose of {','.join(known)}")
    return {policy: {name: made[name] for name in names if name in made} for policy, made in made_of.items()}


def ratios(before: Costs, after: Costs) -> Costs:
    """Of costs, 1 where they are equal, as where there is none."""
    equal = after == before
    with np.errstate(divide="ignore"):
        found: Costs = np.where(equal, 1.0, after / np.where(equal, 1.0, before))
    return found


def main() -> None:
    """Train, play, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--clusters", default="")
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("42-46"))
    parser.add_argument("--agents", default="1,4")
    parser.add_argument("--train-seed", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--algorithm", default="")
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    try:
        chosen = chosen_clusters(args.policies, args.clusters)
    except ConfigError as error:
        parser.error(str(error))
    click.echo("policy    cluster       agents  shipped          trained          trained / shipped")
    for policy, clusters in chosen.items():
        for name, made in clusters.items():
            if args.write is not None:
                args.write.mkdir(parents=True, exist_ok=True)
                (args.write / f"{policy}-{name}.json.gz").write_bytes(encode(captured(made)))
                continue
            ours, theirs = trained(policy, made, args), NamedPolicy(policy)
            for agents in map(Agents.parse, args.agents.split(",")):
                before = np.array([played(theirs, made, agents, seed) for seed in args.seeds])
                after = before if same(ours) else np.array([played(ours, made, agents, seed) for seed in args.seeds])
                told = "  ".join(f"{values.mean():.4f} +- {values.std(ddof=1):.4f}" for values in (before, after))
                ratio = ratios(before, after)
                click.echo(f"{policy:9} {name:12} {agents!s:6}  {told}  {ratio.mean():.3f} +- {ratio.std(ddof=1):.3f}")


if __name__ == "__main__":
    main()
