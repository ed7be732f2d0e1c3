"""Pods of the thesis' experiment as numbers: for the environment, at any number of nodes.

The same draws as ``workload.py`` gives to the API server. A cluster of N nodes gets N/4 times the pods in the same five
minutes, so that the load per node stays what targets T3 fixes. A list of one's own pods serves as well. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np

from lab.environments.node_load import FloatArray
from lab.traces.workload import KINDS, MIB, WorkloadRng, draws
from lab.traces.workload import PODS as PODS_PER_FOUR_NODES
from shared.errors import ConfigError
from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY, PODS
from twin.model.usage import UsageNow

FOUR_NODES = 4
NODE_ALLOCATABLE = {CPU: 4000, MEMORY: 8_000_000_000, PODS: 110}
NODE_LIMITS: FloatArray = np.array([4000.0, 8e9, 1e7, 1e7])
"""Limits in the order of ``node_load.PARTS``: cpu millis, memory bytes, disk write bytes/s, network bits/s."""

REQUESTS = PodClass(requests=((CPU, 100), (MEMORY, 64 * MIB)), score_cpu_millis=100, score_memory_bytes=64 * MIB)
"""What every pod of the experiment requests, whatever it uses."""


@dataclass(frozen=True, slots=True)
class EnvPod:
    """A pod that arrives ``at_s`` after the first one and, once started, runs ``duration_s``.

    ``usage``: what it really uses, which no scheduler sees. ``pod_class.workload``: what it is a copy of, as its image,
    labels or owner tell everybody.
    """

    at_s: float
    duration_s: float
    usage: UsageNow
    pod_class: PodClass = REQUESTS
    priority: int = 0

    def __post_init__(self) -> None:
        if self.at_s < 0 or self.duration_s <= 0:
            raise ConfigError(
                f"pod of {self.pod_class.workload!r}: at_s {self.at_s:g}, duration_s {self.duration_s:g};"
                " give at_s >= 0 and duration_s > 0"
            )


class NumpyDraws:
    """The draws of one seed, as a workload wants them, from numpy's generator."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._uniform, self._normal = rng.random, rng.normal

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return float(self._uniform())

    def gauss(self, mu: float, sigma: float) -> float:
        """Normally distributed."""
        return float(self._normal(mu, sigma))


def usage_array(usage: UsageNow) -> FloatArray:
    """float64 [4], in the order of ``node_load.PARTS``."""
    return np.array(
        [usage.cpu_millis, usage.memory_bytes, usage.disk_write_bytes_per_s, usage.network_bits_per_s], np.float64
    )


def thesis_pods(name: str, rng: WorkloadRng, *, nodes: int = FOUR_NODES) -> list[EnvPod]:
    """The workload ``uniform`` or ``random`` for ``nodes`` nodes, in order of arrival. Other names: ``ConfigError``."""
    count = max(1, round(PODS_PER_FOUR_NODES * nodes / FOUR_NODES))
    faster = FOUR_NODES / nodes
    classes = {kind: msgspec.structs.replace(REQUESTS, workload=f"stress-{kind}") for kind in KINDS}
    return [
        EnvPod(drawn.at_s * faster, drawn.duration_s, KINDS[drawn.kind], classes[drawn.kind])
        for drawn in draws(name, rng, count=count)
    ]


def in_order(pods: Iterable[EnvPod]) -> list[EnvPod]:
    """The pods by time of arrival; pods of one moment stay in the order given. Refuses none at all."""
    result = sorted(pods, key=lambda pod: pod.at_s)
    if not result:
        raise ConfigError("pods: none given; an episode needs at least one pod")
    return result
