"""The thesis' experiment through a mesh: pods of targets T3 on four nodes, measured late and in part."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from lab.environments.thesis import ThesisCluster
from lab.environments.thesis_workload import EnvPod, NumpyDraws, thesis_pods
from lab.mesh.measured import METRICS, SENSORS, MeasuredResult, MeshSensing, play
from lab.mesh.placement import NamedPolicy
from lab.mesh.world import Agents

__all__ = ["METRICS", "NODES", "SENSORS", "MeasuredResult", "MeshSensing", "episode"]

NODES = 4
MEASURED_S = 900.0


def episode(
    policy: NamedPolicy, workload: str, agents: Agents, sensing: MeshSensing, seed: int,
    delays_ms: Sequence[float] = (),
    times: int = 1,
) -> MeasuredResult:  # fmt: skip
    """One episode of ``uniform`` or ``random``. ``delays_ms``: of the nodes to others, as sensors tell it; none: nobody
    measures it. ``times``: so many workloads, each begins as the one before has come to its last arrival."""
    alike = ThesisCluster.alike(NODES)
    nodes = tuple(replace(node, name=f"worker-{number}") for number, node in enumerate(alike.nodes))
    cluster = ThesisCluster(nodes, alike.limits, np.zeros_like(alike.own))
    pods, begins = _one_after_the_other(workload, NumpyDraws(seed), times)
    return play(
        policy, cluster, pods, agents, sensing, seed, measured_s=begins[-2] + MEASURED_S, delays_ms=delays_ms,
        begins=begins,
    )  # fmt: skip


def _one_after_the_other(workload: str, draws: NumpyDraws, times: int) -> tuple[list[EnvPod], list[float]]:
    """The pods of so many workloads, and when each begins; at last the last arrival of all."""
    pods: list[EnvPod] = []
    begins = [0.0]
    for _ in range(times):
        drawn = thesis_pods(workload, draws, nodes=NODES)
        pods += (dataclasses.replace(pod, at_s=begins[-1] + pod.at_s) for pod in drawn)
        begins.append(pods[-1].at_s)
    return pods, begins
