"""``python -m bench.policies.hybrid_scales``: how scores of policies without bounds spread (``policy/hybrid/``).

Each policy with its shipped weights decides on scenes of seeds 1000-1003, of a kind that it is made for, and all scores
that it gives to candidates are kept; printed are their 1st and 99th percentile, rounded to two digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
from numpy.typing import NDArray

from lab.environments.placement import PlacementEnv
from lab.environments.placement_scenarios import training_scenario
from lab.evaluation.behaviour import thesis_scene
from lab.worlds.placement.measured_world import MeasuredWorld, limits_of, named_policy
from lab.worlds.placement.placement_rollout import choose
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.resources import CPU, GPU_MILLI, MEMORY, PODS
from shared.policy.observation import Observation
from shared.policy.registry import make_policy
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.node_table import NodeTable

SEEDS = range(1000, 1004)
GPU_POLICIES, SETS, MEASURED = ("best-fit", "fgd", "frag"), ("ee", "el", "lb"), ("marl-dqn", "marl-dqn-published")
SCENARIOS = 6
"""Drawn per seed for the Deep Sets policies."""
GPU_NODES, DEVICES, GPU_PODS = 24, 8, 200
PERCENTILES = (1, 99)


def main() -> None:
    """Print a row per policy."""
    for names, scores in ((GPU_POLICIES, gpu_scores), (SETS, set_scores), (MEASURED, measured_scores)):
        for name in names:
            found = np.concatenate([part for seed in SEEDS for part in scores(name, seed)])
            low, high = (float(f"{value:.2g}") for value in np.percentile(found, PERCENTILES))
            print(f'    "{name}": ({low:g}, {high:g}),  # {len(found)} scores')


def set_scores(name: str, seed: int) -> Iterator[NDArray[np.float64]]:
    """On placement scenarios, with latency limits for ``el``."""
    rng, policy = np.random.default_rng(seed), make_policy(name)
    for _ in range(SCENARIOS):
        env = PlacementEnv(training_scenario(rng, latency=name == "el"), seed)
        for rows in env.offers():
            verdicts = policy.decide(Observation(env.seen, env.pod_class, rows), rng)
            yield verdicts.score
            env.place(int(rows[choose(verdicts, rng)]))


def measured_scores(name: str, seed: int) -> Iterator[NDArray[np.float64]]:
    """On the thesis' random workload, with measurements."""
    scene = thesis_scene(seed)
    world = MeasuredWorld(limits_of(scene.nodes), scene.profiles)
    policy, rng = named_policy(name, world.store), np.random.default_rng(seed)
    for step in world.run(scene.nodes, scene.jobs, name, rng):
        yield policy.decide(step.observation, rng).score
        world.bound(step)


def gpu_scores(name: str, seed: int) -> Iterator[NDArray[np.float64]]:
    """On machines of eight devices that fill with shares, whole devices and several of them."""
    rng, draws, policy = np.random.default_rng(seed), Random(seed), make_policy(name)
    table = NodeTable(GPU_NODES)
    for number in range(GPU_NODES):
        amounts = {CPU: 96_000, MEMORY: 512 << 30, PODS: 110, GPU_MILLI: 1000 * DEVICES}
        table.upsert(Node(name=f"gpu-{number:03d}", allocatable=amounts))
    feasibility = FeasibilityCache(table)
    for _ in range(GPU_PODS):
        milli = int(rng.choice([200, 500, 1000, 2000, 4000, 8000], p=[0.25, 0.2, 0.35, 0.1, 0.05, 0.05]))
        cpu, memory = int(rng.integers(1, 13)) * 1000, int(rng.integers(2, 65)) << 30
        pod_class = PodClass(
            ((GPU_MILLI, milli), (CPU, cpu), (MEMORY, memory)), score_cpu_millis=cpu, score_memory_bytes=memory
        )
        rows = np.flatnonzero(feasibility.of(pod_class).mask)
        if not len(rows):
            continue
        verdicts = policy.decide(Observation(table, pod_class, rows), draws)
        yield verdicts.score
        row = int(rows[choose(verdicts, rng)])
        table.add_usage(row, pod_class, table.pick_devices(row, milli), sign=1)


if __name__ == "__main__":
    main()
