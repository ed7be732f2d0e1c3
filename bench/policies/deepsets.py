"""The Deep Sets policies: CPU per decision, and infeasible choices in a million decisions. No I/O.

    .venv/bin/python -m bench.policies.deepsets [--decisions 1000000]

CPU time, median of 1,000 calls. "network": features are there, Q-values wanted; "decide": from the node table to
verdicts. The million runs on nodes that fill up (four to twelve, of three sizes), the pods of training scenarios, each
choice checked by plain arithmetic apart from the filters that made the mask.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from lab.environments.placement import PlacementEnv
from lab.environments.placement_scenarios import moving_latency, training_scenario
from lab.worlds.placement.placement_rollout import choose, policy_decider
from shared.policy.deepsets.features import FEATURE_COUNT
from shared.policy.deepsets.policy import DEEP_SETS_POLICIES, DeepSetsPolicy
from shared.policy.observation import Observation
from shared.policy.weights import shipped

CALLS = 1_000
SIZES = (3, 10, 100, 1_000, 5_000)


def median_us(action: Callable[[], object]) -> float:
    """Median CPU microseconds of one call."""
    samples = []
    for _ in range(CALLS):
        before = time.process_time_ns()
        action()
        samples.append((time.process_time_ns() - before) / 1000)
    return statistics.median(samples)


def speed(policy: DeepSetsPolicy) -> None:
    """One line per number of candidates."""
    rng = np.random.default_rng(1)
    for nodes in SIZES:
        env = PlacementEnv(moving_latency(nodes, 10 * nodes), 1)
        for _ in range(3 * nodes):
            env.place(int(rng.integers(nodes)))
        observation = Observation(env.table, env.pod_class, env.rows())
        x = rng.random((nodes, FEATURE_COUNT), np.float32)
        network = median_us(lambda x=x: policy.scores(x))
        decide = median_us(lambda seen=observation: policy.decide(seen, rng))
        print(f"{nodes:>6} {policy.name:>7} {network:>12.1f} {decide:>12.1f}")


def infeasible(policy: DeepSetsPolicy, decisions: int) -> tuple[int, int]:
    """(infeasible choices, decisions made)."""
    made = found = seed = 0
    while made < decisions:
        seed += 1
        rng = np.random.default_rng(seed)
        env = PlacementEnv(training_scenario(rng, latency=policy.name == "el"), seed)
        decider = policy_decider(policy, rng)
        while not env.finished:
            rows = env.rows()
            if len(rows):
                env.place(int(rows[choose(decider(env, rows), rng)]))
                made += 1
            else:
                env.skip()
        found += env.infeasible
    return found, made


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Speed and safety of ee, lb and el.")
    parser.add_argument("--decisions", type=int, default=1_000_000, help="in all, over the three policies")
    decisions = parser.parse_args().decisions
    policies = [DeepSetsPolicy(shipped(name)) for name in DEEP_SETS_POLICIES]
    print(f"{'nodes':>6} {'policy':>7} {'network':>12} {'decide':>12}   (us CPU)")
    for policy in policies:
        speed(policy)
    total = bad = 0
    for policy in policies:
        found, made = infeasible(policy, -(-decisions // len(policies)))
        total, bad = total + made, bad + found
    print(f"infeasible choices: {bad} in {total} decisions")


if __name__ == "__main__":
    main()
