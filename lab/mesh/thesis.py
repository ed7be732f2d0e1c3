"""The thesis' experiment through a mesh: pods of targets T3 on four nodes, measured late and in part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from lab.environments.thesis import Cluster
from lab.environments.thesis_workload import Draws, thesis_pods
from lab.mesh.measured import METRICS, SENSORS, Result, Sensing, play
from lab.mesh.placement import Named
from lab.mesh.world import Agents

__all__ = ["METRICS", "NODES", "SENSORS", "Result", "Sensing", "episode"]

NODES = 4
MEASURED_S = 900.0


def episode(
    policy: Named, workload: str, agents: Agents, sensing: Sensing, seed: int, delays_ms: Sequence[float] = ()
) -> Result:
    """One episode of ``uniform`` or ``random``. ``delays_ms``: of the nodes to others, as sensors tell it; none: nobody
    measures it."""
    alike = Cluster.alike(NODES)
    nodes = tuple(replace(node, name=f"worker-{number}") for number, node in enumerate(alike.nodes))
    cluster = Cluster(nodes, alike.limits, np.zeros_like(alike.own))
    pods = thesis_pods(workload, Draws(seed), nodes=NODES)
    return play(policy, cluster, pods, agents, sensing, seed, measured_s=MEASURED_S, delays_ms=delays_ms)
