"""The thesis' workload: 105 pods of three kinds onto four nodes, arriving evenly or at random; same seed, same trace.

Numbers are those that targets T3 fixes: every pod requests 100m and 64Mi, whatever it really uses; each runs 270 s
+- 20 %; kinds are 1:1:1, shuffled by seed; gaps are 3 s (``uniform``) or drawn from N(5 s, 2 s) (``random``).
Pure: time is relative to the first arrival and in virtual seconds; randomness comes in as ``rng``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from shared.errors import ConfigError
from twin.model.usage import LIMITS_ANNOTATION, TWIN_NODE_ANNOTATION, USAGE_ANNOTATION, UsageNow, UsageProfile

MIB = 1024 * 1024
PODS = 105
GAP_S = 3.0
RANDOM_GAP_MEAN_S = 5.0
RANDOM_GAP_SD_S = 2.0
DURATION_S = 270.0
DURATION_SPREAD = 0.2

KINDS: dict[str, UsageNow] = {
    "cpu": UsageNow(cpu_millis=300, memory_bytes=40 * MIB),
    "net": UsageNow(cpu_millis=50, memory_bytes=20 * MIB, network_bits_per_s=400_000),
    "disk": UsageNow(cpu_millis=80, memory_bytes=120 * MIB, disk_write_bytes_per_s=500_000),
}

NODE_LIMITS_JSON = '{"disk":10000000,"net":10000000}'
"""10 MB/s of writes, 10 Mbit/s for this traffic."""

Json = dict[str, Any]


class WorkloadRng(Protocol):
    """What of ``random.Random`` a workload draws from."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def gauss(self, mu: float, sigma: float) -> float:
        """A normally distributed float."""
        ...


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod to be created ``at_s`` virtual seconds after the first one."""

    at_s: float
    pod: Json


@dataclass(frozen=True, slots=True)
class DrawnPod:
    """One draw of a workload: when it comes, a key of ``KINDS``, how long it runs."""

    at_s: float
    kind: str
    duration_s: float


def draws(name: str, rng: WorkloadRng, *, count: int = PODS) -> list[DrawnPod]:
    """The workload ``uniform`` or ``random`` as numbers, in order of arrival. Any other name: ``ConfigError``."""
    gaps: dict[str, Callable[[], float]] = {
        "uniform": lambda: GAP_S,
        "random": lambda: max(0.0, rng.gauss(RANDOM_GAP_MEAN_S, RANDOM_GAP_SD_S)),
    }
    if name not in gaps:
        raise ConfigError(f"--workload: {name!r} is not one of uniform, random, openb")
    names = list(KINDS)
    kinds = [names[i % len(names)] for i in range(count)]
    _shuffle(kinds, rng)
    result, at_s = [], 0.0
    for number, kind in enumerate(kinds):
        if number:
            at_s += gaps[name]()
        duration_s = DURATION_S * (1.0 + DURATION_SPREAD * (2.0 * rng.random() - 1.0))
        result.append(DrawnPod(at_s, kind, duration_s))
    return result


def arrivals(
    name: str, rng: WorkloadRng, *, count: int = PODS, scheduler_name: str = "conclave", namespace: str = "default"
) -> list[Arrival]:
    """The same draws as pods to be created. Any name but ``uniform`` and ``random``: ``ConfigError``."""
    return [
        Arrival(
            drawn.at_s,
            stress_pod(
                f"{drawn.kind}-{number:03d}",
                drawn.kind,
                drawn.duration_s,
                scheduler_name=scheduler_name,
                namespace=namespace,
            ),
        )
        for number, drawn in enumerate(draws(name, rng, count=count))
    ]


def _shuffle(items: list[str], rng: WorkloadRng) -> None:
    # Fisher-Yates by rng.random() alone: the order of a seed does not depend on how a library shuffles.
    for last in range(len(items) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        items[last], items[other] = items[other], items[last]


def stress_pod(
    name: str, kind: str, duration_s: float | None, *, scheduler_name: str = "conclave", namespace: str = "default"
) -> Json:
    """One pod of ``kind`` (a key of ``KINDS``) that runs ``duration_s`` virtual seconds, None for ever."""
    return pod_json(
        name,
        {"cpu": "100m", "memory": "64Mi"},
        scheduler_name=scheduler_name,
        namespace=namespace,
        labels={"app": f"stress-{kind}"},
        annotations={USAGE_ANNOTATION: UsageProfile(((0, KINDS[kind]),), duration_s).to_json()},
    )


def pod_json(
    name: str,
    requests: dict[str, str],
    *,
    scheduler_name: str = "conclave",
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Json:
    """A pod of one container. Extended resources are named as limits too, as the API demands."""
    resources: Json = {"requests": requests}
    extended = {key: value for key, value in requests.items() if "/" in key}
    if extended:
        resources["limits"] = extended
    metadata: Json = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulerName": scheduler_name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}],
        },
    }


def node_json(
    name: str,
    capacity: dict[str, str],
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Json:
    """A node that the cluster model manages; allocatable is all of its capacity."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {})},
            "annotations": {TWIN_NODE_ANNOTATION: "true", **(annotations or {})},
        },
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def thesis_nodes(count: int = 4) -> list[Json]:
    """``count`` workers of 4 CPU and 8 GB with the disk and network limits of targets T3."""
    return [
        node_json(
            f"worker-{number}",
            {"cpu": "4", "memory": "8G", "pods": "110"},
            annotations={LIMITS_ANNOTATION: NODE_LIMITS_JSON},
        )
        for number in range(1, count + 1)
    ]
