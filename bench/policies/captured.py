"""Policies trained on captured clusters, beside the shipped ones, on later days of the same clusters.

    .venv/bin/python -m bench.policies.captured [--policies marl-dqn,lb] [--clusters office,...] [--seeds 42-46]
        [--agents 1,4] [--train-seed 1000] [--steps N] [--algorithm ppo] [--write FOLDER]

Four made clusters, unlike in nodes, pods and the curve of their day. Of each, days are captured as ``conclave twin
capture`` would: kube-default places the pods, Prometheus sees what nodes use every five minutes, nobody sees what a
pod uses. ``conclave train --cluster`` learns from that capture alone and chooses by its last day. Then two hours of a
*later* day, drawn by a test seed, are played through coordinator, agents and binder as bytes, with sensors, what pods
truly use: figures are means over seeds +- s.d., of the trained policy and of the shipped one on the same pods, and of
their ratio. Virtual time: figures do not depend on the machine. ``--write``: the captures alone, as files.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from math import cos, pi, sin
from pathlib import Path
from random import Random

import click
import numpy as np
import torch
from msgspec.structs import replace

from lab.environments.thesis import Cluster
from lab.environments.thesis_workload import EnvPod
from lab.evaluation.seeds import parse_seeds
from lab.learner.__main__ import TRAINERS
from lab.learner.training.runner import TrainRequest
from lab.mesh.measured import SENSORS, Result, play
from lab.mesh.placement import Named
from lab.mesh.world import Agents
from lab.worlds.placement.table_run import Job, PolicyChooser, TableRun
from shared.kube import objects as api
from shared.kube.convert import node_from_api, pod_class_of
from shared.model.constraints import PodClass
from shared.policy.heuristics import KubeDefault
from shared.policy.weights import decode
from twin.model.capture import PARTS, SCHEMA, Capture, CapturedPod, encode
from twin.model.replay import Placed, usage_over_time
from twin.model.usage import Limits, Profile, Usage

DAY_S, HOUR_S = 86_400.0, 3_600.0
DAYS = 4
STEP_S = 300.0
TEST_S = 2 * HOUR_S
BEGIN_S = 600.0
GIB = 1 << 30
OWN = (150.0, 1.0 * GIB, 2e5, 5e5)
"""What each node uses by itself."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Pods of one Deployment: what they request (milli-cores, MiB) and truly use (milli-cores, MiB, bytes/s, bits/s),
    how long they run (median, seconds), and how many of all they are."""

    requests: tuple[int, int]
    use: tuple[float, float, float, float]
    length_s: float
    share: float


@dataclass(frozen=True, slots=True)
class Made:
    """``nodes``: (number, cores, GiB) each; ``per_hour``: pods, in the mean; ``curve``: of the day, mean 1."""

    nodes: tuple[tuple[int, int, int], ...]
    kinds: dict[str, Kind]
    per_hour: float
    curve: str

    def rate(self, at_s: float) -> float:
        """Pods a second."""
        hour = at_s % DAY_S / HOUR_S
        curves = {
            "office": max(0.2, 1 + 0.9 * sin((hour - 9) / 24 * 2 * pi)),
            "night": 1 + 0.7 * cos(hour / 24 * 2 * pi),
            "bursts": 3.0 if hour % 2 < 0.5 else 0.33,
            "flat": 1.0,
        }
        return self.per_hour / HOUR_S * curves[self.curve]


WEB = Kind((250, 256), (480.0, 300.0, 1e5, 9e5), 1800.0, 0.4)
CACHE = Kind((200, 1024), (120.0, 2600.0, 2e4, 1.2e6), 2400.0, 0.25)
BATCH = Kind((1000, 512), (700.0, 700.0, 1.1e6, 1e5), 1200.0, 0.2)
IDLE = Kind((500, 512), (60.0, 200.0, 1e4, 1e4), 1500.0, 0.15)
CLUSTERS: dict[str, Made] = {
    "office": Made(((8, 8, 32),), {"web": WEB, "cache": CACHE, "batch": BATCH, "idle": IDLE}, 60.0, "office"),
    "pools": Made(((3, 32, 128), (6, 8, 16)), {"web": WEB, "batch": BATCH, "cache": CACHE, "idle": IDLE}, 90.0, "flat"),
    "night": Made(((4, 8, 64), (4, 16, 32)), {"batch": BATCH, "cache": CACHE, "web": WEB}, 60.0, "night"),
    "bursts": Made(
        ((1, 64, 256), (2, 16, 64), (2, 8, 16), (1, 4, 16)), {"web": WEB, "idle": IDLE, "batch": BATCH}, 70.0, "bursts"
    ),
}


@dataclass(frozen=True, slots=True)
class Truth:
    """A pod as it truly is."""

    name: str
    kind: str
    at_s: float
    length_s: float
    use: Usage


def nodes_of(made: Made) -> list[api.Node]:
    """As the API tells them."""
    found = []
    for number, cores, gib in made.nodes:
        limit = cores * 2_500_000
        for _ in range(number):
            name = f"node-{len(found):02}"
            found.append(
                api.Node(
                    api.ObjectMeta(
                        name=name, labels={"kubernetes.io/hostname": name},
                        annotations={"conclave.io/twin-limits": f'{{"disk":{limit},"net":{limit}}}'},
                    ),
                    status=api.NodeStatus(allocatable={"cpu": str(cores), "memory": f"{gib}Gi", "pods": "110"}),
                )
            )  # fmt: skip
    return found


def cluster_truly(made: Made) -> Cluster:
    """Its nodes, and what they truly offer and use."""
    nodes = tuple(node_from_api(node) for node in nodes_of(made))
    limits = [
        (cores * 1000.0, float(gib * GIB), cores * 2.5e6, cores * 2.5e6) for number, cores, gib in made.nodes
        for _ in range(number)
    ]  # fmt: skip
    return Cluster(nodes, np.array(limits), np.tile(np.array(OWN), (len(nodes), 1)))


def pods_of(made: Made, since_s: float, until_s: float, seed: int) -> list[Truth]:
    """The pods that come in a stretch of time, by thinning the highest rate (Lewis and Shedler 1979)."""
    rng = np.random.default_rng((seed, 11))
    most = made.per_hour / HOUR_S * 3.0
    shares = np.array([kind.share for kind in made.kinds.values()])
    found: list[Truth] = []
    at_s = since_s
    while (at_s := at_s + float(rng.exponential(1 / most))) < until_s:
        if rng.random() >= made.rate(at_s) / most:
            continue
        name = list(made.kinds)[int(rng.choice(len(shares), p=shares / shares.sum()))]
        kind = made.kinds[name]
        off = float(rng.lognormal(0.0, 0.15))
        cpu, memory, disk, network = (round(value * off) for value in kind.use)
        length_s = float(np.clip(rng.lognormal(np.log(kind.length_s), 0.6), 60.0, 4 * HOUR_S))
        use = Usage(cpu, memory << 20, disk, network)
        found.append(Truth(f"{name}-{len(found)}", name, at_s, length_s, use))
    return found


def object_of(made: Made, pod: Truth, node: str) -> api.Pod:
    """As the API tells it."""
    cpu, memory = made.kinds[pod.kind].requests
    owners = [api.OwnerReference("apps/v1", "ReplicaSet", pod.kind, pod.kind, controller=True)]
    resources = api.ResourceRequirements({"cpu": f"{cpu}m", "memory": f"{memory}Mi"})
    return api.Pod(
        api.ObjectMeta(name=pod.name, namespace="default", uid=f"uid-{pod.name}", owner_references=owners),
        api.PodSpec(node_name=node or None, containers=[api.Container("main", resources=resources)]),
    )


def asks_of(made: Made) -> dict[str, PodClass]:
    """What the pods of each kind ask for, and what they are copies of."""
    found = {}
    for kind in made.kinds:
        asked = pod_class_of(object_of(made, Truth("p", kind, 0.0, 1.0, Usage()), ""))
        found[kind] = replace(asked, workload=f"default/ReplicaSet:{kind}")
    return found


def captured(made: Made, *, days: float = DAYS, seed: int = 7) -> Capture:
    """What a capture of so many days holds."""
    length_s = round(days * DAY_S, 3)
    pods = pods_of(made, 0.0, length_s - HOUR_S / 4, seed)
    nodes = nodes_of(made)
    classes = asks_of(made)
    jobs = [Job(pod.name, pod.at_s, classes[pod.kind], pod.length_s) for pod in pods]
    run = TableRun([node_from_api(node) for node in nodes], jobs, PolicyChooser(KubeDefault(), Random(seed)))
    where = {step.job.uid: (step.node, step.at_s) for step in run}
    told, spans = [], []
    for pod in pods:
        node, start_s = where.get(pod.name, ("", 0.0))
        if not node:
            continue
        start_s, end_s = round(start_s, 3), round(start_s + pod.length_s, 3)
        ended = end_s if end_s <= length_s else None
        told.append(CapturedPod(object_of(made, pod, node), round(pod.at_s, 3), start_s, ended))
        spans.append(Placed(pod.name, node, start_s, end_s, Profile(((0.0, pod.use),))))
    truth = cluster_truly(made)
    limits = {
        node.name: Limits(*(round(value) for value in row))
        for node, row in zip(truth.nodes, truth.limits.tolist(), strict=True)
    }
    steps = int(length_s // STEP_S) + 1
    seen = usage_over_time(limits, spans, [step * STEP_S for step in range(steps)]) + truth.own[:, None, :]
    seen = np.minimum(seen, truth.limits[:, None, :])  # a kernel counts no more than there is
    series = {
        node.name: {part: seen[row, :, column].tolist() for column, part in enumerate(PARTS)}
        for row, node in enumerate(truth.nodes)
    }
    return Capture(SCHEMA, "2026-01-05T00:00:00+00:00", length_s, nodes, told, STEP_S, series)


def later_day(made: Made, seed: int) -> list[EnvPod]:
    """Two hours of a day after those captured, from a moment that the seed draws; what stood then comes first."""
    rng = np.random.default_rng((seed, 12))
    begin_s = (DAYS + 1 + seed) * DAY_S + float(rng.uniform(0, DAY_S - TEST_S))
    classes = asks_of(made)
    found = []
    for pod in pods_of(made, begin_s - 4 * HOUR_S, begin_s + TEST_S, 100_000 + seed):
        end_s = min(pod.at_s + pod.length_s, begin_s + TEST_S)
        at_s = pod.at_s if pod.at_s >= begin_s else begin_s - float(rng.uniform(0, BEGIN_S))
        if end_s > at_s + 1 and pod.at_s + pod.length_s > begin_s:
            found.append(EnvPod(at_s - begin_s + BEGIN_S, end_s - at_s, pod.use, classes[pod.kind]))
    return sorted(found, key=lambda pod: pod.at_s)


FIGURE = {"marl-dqn": "imbalance", "lb": "load_spread", "ee": "nodes_in_use", "el": "nodes_in_use"}
"""What each is judged by; lower is better."""


def played(policy: Named, made: Made, agents: Agents, seed: int) -> Result:
    """One test through the mesh."""
    pods = later_day(made, seed)
    last_s = max(pod.at_s + pod.duration_s for pod in pods)
    return play(policy, cluster_truly(made), pods, agents, SENSORS, seed, measured_s=last_s)


def trained(policy: str, made: Made, args: argparse.Namespace) -> Named:
    """The policy trained on the made cluster's capture, by the trainer of ``conclave train``."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "capture.json.gz"
        file.write_bytes(encode(captured(made)))
        out = Path(folder) / "out"
        out.mkdir()
        request = TrainRequest(
            policy, out, (args.train_seed,), cluster=file, algorithm=args.algorithm, steps=args.steps or None
        )
        TRAINERS[policy](request)
        return Named(policy, decode((out / f"{policy}.npz").read_bytes(), policy=policy))


def main() -> None:
    """Train, play, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default="marl-dqn,lb")
    parser.add_argument("--clusters", default=",".join(CLUSTERS))
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("42-46"))
    parser.add_argument("--agents", default="1,4")
    parser.add_argument("--train-seed", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--algorithm", default="")
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = {name: CLUSTERS[name] for name in args.clusters.split(",")}
    if args.write is not None:
        args.write.mkdir(parents=True, exist_ok=True)
        for name, made in chosen.items():
            (args.write / f"{name}.json.gz").write_bytes(encode(captured(made)))
        return
    click.echo("policy    cluster  agents  shipped          trained          trained / shipped")
    for policy in args.policies.split(","):
        for name, made in chosen.items():
            ours, theirs = trained(policy, made, args), Named(policy)
            for agents in map(Agents.parse, args.agents.split(",")):
                found = [
                    [getattr(played(one, made, agents, seed), FIGURE[policy]) for one in (theirs, ours)]
                    for seed in args.seeds
                ]
                before, after = np.array(found).T
                told = "  ".join(f"{values.mean():.4f} +- {values.std(ddof=1):.4f}" for values in (before, after))
                ratio = after / before
                click.echo(f"{policy:9} {name:8} {agents!s:6}  {told}  {ratio.mean():.3f} +- {ratio.std(ddof=1):.3f}")


if __name__ == "__main__":
    main()
