"""Runs one decider through one placement experiment and counts what the thesis only drew.

Deciders are chosen from as the ranker does in service: accepted nodes before rejected ones, the best score, ties at
random by the run's own generator. Nothing explores. What is counted is the true state, whatever the decider saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lab.environments.own_reward import DECISION_S
from lab.environments.placement import PlacementEnv, Scenario
from lab.environments.placement_rewards import Reward, place_and_judge
from lab.environments.power import FLAT_WATTS, WATTS, watts_at
from shared.policy.observation import Observation, Policy, Rng, Verdicts
from shared.scheduling.state.node_table import IntArray

Decider = Callable[[PlacementEnv, IntArray], Verdicts]
"""Verdicts for the feasible rows it is given; it may look at the environment."""


@dataclass(frozen=True, slots=True)
class PlacementRollout:
    """Counts of one run."""

    reward: float
    """Mean reward per decision; endings are not acted upon."""
    active_nodes: float
    """Mean number of nodes with a pod, over the creations and deletions that leave any pod."""
    active_ratio: float
    """After creations only (a deletion leaves nothing to decide): mean number of nodes with a pod over the mean of the
    fewest nodes that could hold the pods."""
    active_at_end: float
    """The same after the last creation alone."""
    balanced: float
    """Share of creations and deletions after which no two nodes differ by more than one pod."""
    worst_spread: int
    """The greatest difference of pods between two nodes."""
    load_spread: float
    """Mean over the creations of the standard deviation of nodes' loads."""
    within_soft: float
    """Of the decisions in which a feasible node was within the soft limit, the share that took such a node."""
    hard_avoidable: int
    """Decisions that broke the hard limit though a feasible node kept it."""
    decisions_to_move: int
    """After a change of latency: at most this many decisions until a node within the soft limit was taken, where one
    was feasible; 0: no change asked for it."""
    latency_ms: float
    """Mean true latency of the nodes taken; NaN where none is known."""
    joules: float
    """Mean energy from one creation to the next, ``DECISION_S`` seconds, each server an IBM x3550 M3, using what its
    pods request; a node without pods is off."""
    joules_flat: float
    """The same where each is an HP ML110 G5, which draws most of its power when idle."""
    infeasible: int
    """Choices that no filter allowed."""
    unplaceable: int
    """Pods that no node could take."""
    decisions: int


def policy_decider(policy: Policy, rng: Rng) -> Decider:
    """What ``policy`` says of what is seen."""

    def decide(env: PlacementEnv, rows: IntArray) -> Verdicts:
        return policy.decide(Observation(env.seen, env.pod_class, rows), rng)

    return decide


def choose(verdicts: Verdicts, rng: np.random.Generator) -> int:
    """Index of the candidate to take: accepted before rejected, then the best score, ties uniformly by ``rng``."""
    score = verdicts.score
    if verdicts.accept is not None and verdicts.accept.any():
        score = np.where(verdicts.accept, score, -np.inf)
    ties = np.flatnonzero(score == score.max())
    return int(ties[0] if len(ties) == 1 else ties[rng.integers(len(ties))])


def joules(env: PlacementEnv, curve: Sequence[float]) -> float:
    """Mean energy per creation of a run that has ended, by ``curve``: watts of all nodes that have pods, for
    ``DECISION_S``."""
    pod, pods = env.scenario.pod_cpu_millis, [0] * len(env.pods)
    most = max(size.cpu_millis // max(pod, 1) for size in env.scenario.sizes)
    drawn = {
        size: [0.0, *watts_at(np.arange(1, most + 1) * pod / size.cpu_millis, curve).tolist()]
        for size in set(env.scenario.sizes)
    }
    watts = total = 0.0
    created = 0
    for row, sign in zip(env.moved, np.diff(env.held, prepend=0).tolist(), strict=True):
        table = drawn[env.scenario.sizes[row]]
        watts -= table[pods[row]]
        pods[row] += sign
        watts += table[pods[row]]
        if sign > 0:
            total += watts
            created += 1
    return total / max(created, 1) * DECISION_S


def load_spread(env: PlacementEnv) -> float:
    """Mean over the creations of a run that has ended of the standard deviation of nodes' loads."""
    signs = np.diff(env.held, prepend=0)
    load, total, squares, found = env.steps * 0, 0.0, 0.0, []
    for row, sign in zip(env.moved, signs.tolist(), strict=True):
        step = sign * float(env.steps[row])
        squares += step * (2 * float(load[row]) + step)
        load[row] += step
        total += step
        if sign > 0:
            found.append(max(0.0, squares / len(load) - (total / len(load)) ** 2) ** 0.5)
    return float(np.mean(found)) if found else 0.0


def roll_out(scenario: Scenario, seed: int, decider: Decider, reward: Reward) -> PlacementRollout:
    """Run the whole experiment with ``seed``."""
    env = PlacementEnv(scenario, seed)
    rng = np.random.default_rng((seed, 1))
    soft, hard = scenario.latency_soft_us, scenario.latency_hard_us
    rewards: list[float] = []
    latencies: list[int] = []
    offered = kept = avoidable = waited = longest = 0
    segment, moving = env.segment, False
    for rows in env.offers():
        if env.segment != segment:
            segment, moving, waited = env.segment, True, 0
        known = env.table.latency_us[rows]
        soft_offered = bool(soft and ((known >= 0) & (known <= soft)).any())
        hard_offered = bool(hard and ((known >= 0) & (known <= hard)).any())
        row = int(rows[choose(decider(env, rows), rng)])
        placed, worth = place_and_judge(env, row, reward)
        rewards.append(worth.reward)
        latencies.append(placed.latency_us)
        within = 0 <= placed.latency_us <= soft
        if soft_offered:
            offered += 1
            kept += within
            if moving:
                waited += 1
                longest = max(longest, waited)
                moving = not within
        avoidable += hard_offered and not 0 <= placed.latency_us <= hard
    held, active, spread = (np.array(values) for values in (env.held, env.active, env.spread))
    some = held > 0
    size = scenario.sizes[0]
    per_node = min(size.cpu_millis // scenario.pod_cpu_millis, size.memory_bytes // scenario.pod_memory_bytes)
    created = np.diff(held, prepend=0) > 0
    fewest = -(-held[created] // min(per_node, size.pods))
    known_latencies = np.array(latencies)
    return PlacementRollout(
        reward=float(np.mean(rewards)),
        active_nodes=float(active[some].mean()),
        active_ratio=float(active[created].mean() / fewest.mean()),
        active_at_end=float(active[created][-1] / fewest[-1]),
        balanced=float((spread <= 1).mean()),
        worst_spread=int(spread.max()),
        load_spread=load_spread(env),
        within_soft=kept / offered if offered else float("nan"),
        hard_avoidable=avoidable,
        decisions_to_move=longest,
        latency_ms=float(known_latencies.mean() / 1000) if (known_latencies >= 0).all() else float("nan"),
        joules=joules(env, WATTS),
        joules_flat=joules(env, FLAT_WATTS),
        infeasible=env.infeasible,
        unplaceable=env.unplaceable,
        decisions=env.decided,
    )
