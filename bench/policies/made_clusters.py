"""Made clusters, unlike in nodes, pods and the curve of their day, and what a capture of them holds.

Nodes of some clusters are near and far and pods name limits (``LATENT``), others have GPUs (``GPUS``). A capture is
as ``conclave twin capture`` writes it: kube-default placed the pods, Prometheus saw what nodes use every five minutes,
nobody saw what a pod uses. What pods truly use, and those of days after the capture, only this module knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as with_
from math import cos, pi, sin
from random import Random

import numpy as np
from msgspec.structs import replace

from lab.environments.thesis import ThesisCluster
from lab.environments.thesis_workload import EnvPod
from lab.worlds.placement.table_run import PolicyChooser, TablePod, TableRun
from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_class_of
from shared.model.constraints import PodClass
from shared.model.node import LATENCY_ANNOTATION
from shared.model.pod import LATENCY_HARD_ANNOTATION, LATENCY_SOFT_ANNOTATION
from shared.model.resources import GPU_MILLI, MILLI_PER_DEVICE
from shared.policy.frag.view import GPU_MODEL_LABEL
from shared.policy.heuristics import KubeDefault
from twin.model.capture import PARTS, SCHEMA, Capture, CapturedPod
from twin.model.replay import ReplayedPod, usage_over_time
from twin.model.usage import UsageLimits, UsageNow, UsageProfile

DAY_S, HOUR_S = 86_400.0, 3_600.0
DAYS = 4
STEP_S = 300.0
TEST_S = 2 * HOUR_S
BEGIN_S = 600.0
GIB = 1 << 30
POOL_LABEL = "pool"
OWN = (150.0, 1.0 * GIB, 2e5, 5e5)
"""What each node uses by itself."""


@dataclass(frozen=True, slots=True)
class DeploymentKind:
    """Pods of one Deployment: what they request (milli-cores, MiB) and truly use (milli-cores, MiB, bytes/s, bits/s),
    how long they run (median, seconds), and how many of all they are. ``limits_ms``: of the latency, soft and hard;
    ``gpu_milli``: thousandths of a GPU; ``model``: of which."""

    requests: tuple[int, int]
    use: tuple[float, float, float, float]
    length_s: float
    share: float
    limits_ms: tuple[int, int] | None = None
    gpu_milli: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """``nodes``: (number, cores, GiB) each; ``per_hour``: pods, in the mean; ``curve``: of the day, mean 1;
    ``latencies_ms``: of the nodes in turn; ``gpus``: of each entry of ``nodes`` how many, and which."""

    nodes: tuple[tuple[int, int, int], ...]
    kinds: dict[str, DeploymentKind]
    per_hour: float
    curve: str
    latencies_ms: tuple[int, ...] = ()
    gpus: tuple[tuple[int, str], ...] = ()
    labelled: bool = False
    """Nodes say by ``POOL_LABEL`` of which entry they are."""

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


WEB = DeploymentKind((250, 256), (480.0, 300.0, 1e5, 9e5), 1800.0, 0.4)
CACHE = DeploymentKind((200, 1024), (120.0, 2600.0, 2e4, 1.2e6), 2400.0, 0.25)
BATCH = DeploymentKind((1000, 512), (700.0, 700.0, 1.1e6, 1e5), 1200.0, 0.2)
IDLE = DeploymentKind((500, 512), (60.0, 200.0, 1e4, 1e4), 1500.0, 0.15)
CLUSTERS: dict[str, Made] = {
    "office": Made(((8, 8, 32),), {"web": WEB, "cache": CACHE, "batch": BATCH, "idle": IDLE}, 60.0, "office"),
    "pools": Made(((3, 32, 128), (6, 8, 16)), {"web": WEB, "batch": BATCH, "cache": CACHE, "idle": IDLE}, 90.0, "flat"),
    "night": Made(((4, 8, 64), (4, 16, 32)), {"batch": BATCH, "cache": CACHE, "web": WEB}, 60.0, "night"),
    "bursts": Made(
        ((1, 64, 256), (2, 16, 64), (2, 8, 16), (1, 4, 16)), {"web": WEB, "idle": IDLE, "batch": BATCH}, 70.0, "bursts"
    ),
}


LIMITS_MS = (10, 30)
LATENT: dict[str, Made] = {
    name: with_(
        made, latencies_ms=(4, 45, 8, 20),
        kinds={kind: with_(one, limits_ms=LIMITS_MS) for kind, one in made.kinds.items()},
    )
    for name, made in CLUSTERS.items()
}  # fmt: skip
"""The same with near and far nodes, and pods that say how far is too far."""


def _gpu(cpu: int, memory: int, gpu_milli: int, share: float, model: str = "") -> DeploymentKind:
    return DeploymentKind(
        (cpu, memory), (cpu * 0.8, memory * 0.9, 1e5, 1e5), 3600.0, share, gpu_milli=gpu_milli, model=model
    )


GPUS: dict[str, Made] = {
    "training": Made(
        ((12, 96, 768), (8, 64, 256)),
        {
            "eight": _gpu(64_000, 409_600, 8000, 0.08), "four": _gpu(32_000, 204_800, 4000, 0.12),
            "one": _gpu(8_000, 51_200, 1000, 0.6), "two": _gpu(16_000, 102_400, 2000, 0.2),
        },
        60.0, "office", gpus=((8, "A100"), (4, "V100")),
    ),
    "inference": Made(
        ((24, 32, 128),),
        {
            "quarter": _gpu(2_000, 8_192, 250, 0.35), "half": _gpu(6_000, 16_384, 500, 0.3),
            "whole": _gpu(4_000, 24_576, 1000, 0.25), "pair": _gpu(8_000, 32_768, 2000, 0.1),
        },
        90.0, "night", gpus=((4, "T4"),),
    ),
    "short-of-cpu": Made(
        ((16, 48, 384),),
        {
            "web": _gpu(4_000, 8_192, 0, 0.35), "one": _gpu(4_000, 32_768, 1000, 0.3),
            "hungry": _gpu(12_000, 65_536, 1000, 0.2), "half": _gpu(2_000, 16_384, 500, 0.15),
        },
        90.0, "flat", gpus=((8, "A10"),),
    ),
    "models": Made(
        ((8, 64, 256), (8, 64, 256), (6, 96, 512)),
        {
            "any": _gpu(6_000, 24_576, 1000, 0.4), "a100": _gpu(12_000, 65_536, 1000, 0.2, "A100"),
            "t4-half": _gpu(3_000, 8_192, 500, 0.25, "T4"), "four": _gpu(24_000, 98_304, 4000, 0.15),
        },
        80.0, "bursts", gpus=((4, "T4"), (4, "V100"), (8, "A100")),
    ),
}  # fmt: skip
"""Where GPUs are short of something, each of something else."""


def clusters_for(policy: str) -> Mapping[str, Made]:
    """Those on which there is something for it to learn."""
    return {"el": LATENT, "frag": GPUS}.get(policy, CLUSTERS)


@dataclass(frozen=True, slots=True)
class Truth:
    """A pod as it truly is."""

    name: str
    kind: str
    at_s: float
    length_s: float
    use: UsageNow


def nodes_of(made: Made) -> list[api.KubeNode]:
    """As the API tells them."""
    found = []
    for entry, (number, cores, gib) in enumerate(made.nodes):
        limit = cores * 2_500_000
        for _ in range(number):
            name = f"node-{len(found):02}"
            labels = {"kubernetes.io/hostname": name}
            annotations = {"conclave.io/twin-limits": f'{{"disk":{limit},"net":{limit}}}'}
            amounts = {"cpu": str(cores), "memory": f"{gib}Gi", "pods": "110"}
            if made.labelled:
                labels[POOL_LABEL] = f"{cores}-cores-{gib}-gib"
            if made.latencies_ms:
                annotations[LATENCY_ANNOTATION] = str(made.latencies_ms[len(found) % len(made.latencies_ms)])
            if made.gpus:
                count, labels[GPU_MODEL_LABEL] = made.gpus[entry]
                amounts[GPU_MILLI] = str(count * MILLI_PER_DEVICE)
            meta = api.ObjectMeta(name=name, labels=labels, annotations=annotations)
            found.append(api.KubeNode(meta, status=api.NodeStatus(allocatable=amounts)))
    return found


def cluster_truly(made: Made) -> ThesisCluster:
    """Its nodes, and what they truly offer and use."""
    nodes = tuple(node_from_api(node) for node in nodes_of(made))
    limits = [
        (cores * 1000.0, float(gib * GIB), cores * 2.5e6, cores * 2.5e6) for number, cores, gib in made.nodes
        for _ in range(number)
    ]  # fmt: skip
    return ThesisCluster(nodes, np.array(limits), np.tile(np.array(OWN), (len(nodes), 1)))


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
        use = UsageNow(cpu, memory << 20, disk, network)
        found.append(Truth(f"{name}-{len(found)}", name, at_s, length_s, use))
    return found


def object_of(made: Made, pod: Truth, node: str) -> api.KubePod:
    """As the API tells it."""
    kind = made.kinds[pod.kind]
    cpu, memory = kind.requests
    owners = [api.OwnerReference("apps/v1", "ReplicaSet", pod.kind, pod.kind, controller=True)]
    asks = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"} | ({GPU_MILLI: str(kind.gpu_milli)} if kind.gpu_milli else {})
    names = (LATENCY_SOFT_ANNOTATION, LATENCY_HARD_ANNOTATION)
    annotations = {name: str(limit) for name, limit in zip(names, kind.limits_ms or (), strict=False)}
    return api.KubePod(
        api.ObjectMeta(
            name=pod.name, namespace="default", uid=f"uid-{pod.name}", owner_references=owners, annotations=annotations
        ),
        api.PodSpec(
            node_name=node or None, containers=[api.Container("main", resources=api.ResourceRequirements(asks))],
            node_selector={GPU_MODEL_LABEL: kind.model} if kind.model else None,
        ),
    )  # fmt: skip


def asks_of(made: Made) -> dict[str, PodClass]:
    """What the pods of each kind ask for, and what they are copies of."""
    found = {}
    for kind in made.kinds:
        asked = pod_class_of(object_of(made, Truth("p", kind, 0.0, 1.0, UsageNow()), ""))
        found[kind] = replace(asked, workload=f"default/ReplicaSet:{kind}")
    return found


def captured(made: Made, *, days: float = DAYS, seed: int = 7) -> Capture:
    """What a capture of so many days holds."""
    length_s = round(days * DAY_S, 3)
    pods = pods_of(made, 0.0, length_s - HOUR_S / 4, seed)
    nodes = nodes_of(made)
    classes = asks_of(made)
    jobs = [TablePod(pod.name, pod.at_s, classes[pod.kind], pod.length_s) for pod in pods]
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
        spans.append(ReplayedPod(pod.name, node, start_s, end_s, UsageProfile(((0.0, pod.use),))))
    truth = cluster_truly(made)
    limits = {
        node.name: UsageLimits(*(round(value) for value in row))
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


def later_gpu_pods(made: Made, seed: int) -> list[PodClass]:
    """What the pods of a day after those captured ask for."""
    begin_s = (DAYS + 1 + seed) * DAY_S
    classes = asks_of(made)
    return [classes[pod.kind] for pod in pods_of(made, begin_s, begin_s + DAY_S, 100_000 + seed)]


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
