"""Pods that use a part of what they request, or all of it, on unlike nodes, through a mesh: what is balanced, and how
many nodes are in use, by requests and by measured use.

Every pod requests the same. What it uses is its workload's, a tenth, a half or all of it, of cpu and of memory apart:
who balances requests leaves to chance on which nodes those come together that use all. Pure.
"""

from __future__ import annotations

import numpy as np

from lab.environments.placement import MIB
from lab.environments.thesis import ThesisCluster
from lab.environments.thesis_workload import EnvPod
from lab.mesh.measured import MeasuredResult, MeshSensing, play
from lab.mesh.placement import NamedPolicy
from lab.mesh.world import Agents
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.resources import CPU, MEMORY, PODS
from twin.model.usage import UsageNow

CORES = (8, 8, 8, 8, 16, 16, 16, 16)
"""Of the nodes, with 2 GiB a core."""
CPU_MILLIS, MEMORY_BYTES = 500, 1024 * MIB
USED = (0.1, 0.5, 1.0)
"""Parts of its request that a workload uses."""
ARRIVALS, GAP_S, LIVES_S = 300, 3.0, 360.0
"""Pods, seconds between two, and for how long one runs on average: 120 at a time, which ask for six tenths."""


def episode(policy: NamedPolicy, agents: Agents, sensing: MeshSensing, seed: int) -> MeasuredResult:
    """From the first pod until the last has ended."""
    nodes = tuple(
        Node(name=f"node-{place}", allocatable={CPU: 1000 * cores, MEMORY: cores * 2048 * MIB, PODS: 110})
        for place, cores in enumerate(CORES)
    )
    limits = np.array([(1000.0 * cores, cores * 2048.0 * MIB, 1e7, 1e7) for cores in CORES])
    cluster = ThesisCluster(nodes, limits, np.zeros_like(limits))
    return play(policy, cluster, _pods(seed), agents, sensing, seed, measured_s=2 * ARRIVALS * GAP_S)


def _pods(seed: int) -> list[EnvPod]:
    rng = np.random.default_rng(seed)
    found = []
    for number in range(ARRIVALS):
        cpu, memory = rng.choice(USED), rng.choice(USED)
        asks = PodClass(
            requests=((CPU, CPU_MILLIS), (MEMORY, MEMORY_BYTES)), score_cpu_millis=CPU_MILLIS,
            score_memory_bytes=MEMORY_BYTES, workload=f"uses-{cpu}-{memory}",
        )  # fmt: skip
        usage = UsageNow(cpu_millis=round(CPU_MILLIS * cpu), memory_bytes=round(MEMORY_BYTES * memory))
        found.append(EnvPod(number * GAP_S, float(rng.uniform(0.5, 1.5)) * LIVES_S, usage, asks))
    return found
