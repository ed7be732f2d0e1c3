"""A small trace of openb's format, made by seed: for tests that need no real data."""

from __future__ import annotations

import numpy as np

from lab.worlds.placement.trace_run import parse_lists
from shared.policy.rehearsal.rehearsal import RehearsalTrace

NODES_HEADER = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
MACHINES = (
    (96_000, 393_216, 8, "G2"),
    (32_000, 131_072, 4, "V100"),
    (16_000, 65_536, 2, "T4"),
    (8_000, 32_768, 1, "T4"),
)


def node_list(count: int = 12) -> str:
    rows = [f"node-{i:04d},{','.join(map(str, MACHINES[i % len(MACHINES)]))}\n" for i in range(count)]
    return NODES_HEADER + "".join(rows)


def pod_list(count: int = 80, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(count):
        kind = rng.choice(4, p=[0.2, 0.4, 0.3, 0.1])
        devices, milli = ((0, 0), (1, int(rng.integers(1, 10)) * 100), (1, 1000), (int(rng.choice([2, 4, 8])), 1000))[
            kind
        ]
        cpu, memory = int(rng.integers(1, 9)) * 1000 * max(1, devices), int(rng.integers(1, 17)) * 1024
        spec = "T4|G2" if kind == 1 and rng.random() < 0.2 else ""
        rows.append(f"pod-{index:04d},{cpu},{memory},{devices},{milli},{spec},LS,Running,0,1,0\n")
    return PODS_HEADER + "".join(rows)


def small_trace(nodes: int = 12, pods: int = 80, seed: int = 0) -> RehearsalTrace:
    return parse_lists(pod_list(pods, seed), "pods.csv", node_list(nodes), "nodes.csv")
