"""Deciders to measure the Deep Sets policies against: oracles that see the truth, and two heuristics kept for reports.

An oracle takes, at each decision, a node of the greatest reward, knowing the true state and latency at once
even where the policies see them late. It looks one decision ahead; a policy that plans may do better.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lab.environments.placement import PlacementEnv
from lab.environments.placement_rewards import CONTROL_PLANES, ENERGY_WEIGHT, ON_ABOVE_PODS, SAME_LOAD
from shared.policy.observation import Observation, Rng, Verdicts
from shared.policy.usage.load import node_load
from shared.scheduling.scores.allocation import balanced_allocation
from shared.scheduling.state.node_table import IntArray


class BalancedAllocation:
    """kube-scheduler's NodeResourcesBalancedAllocation alone."""

    name = "balanced-allocation"
    version = 1
    row_local = True

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """The plugin's score."""
        score = balanced_allocation(observation.table, observation.pod_class, observation.rows)
        return Verdicts(score.astype(np.float64))


class GreedyLatency:
    """The node of the least latency seen, whatever else."""

    name = "greedy-latency"
    version = 1
    row_local = True

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """Minus the latency; an unknown one is worst."""
        latency = observation.table.latency_us[observation.rows].astype(np.float64)
        return Verdicts(-np.where(latency < 0, 1e12, latency))


def ee_oracle(env: PlacementEnv, rows: IntArray) -> Verdicts:
    """The fullest feasible node."""
    return Verdicts(np.rint(node_load(env.table, rows) / SAME_LOAD))


def lb_oracle(env: PlacementEnv, rows: IntArray) -> Verdicts:
    """The least loaded feasible node."""
    return Verdicts(-np.rint(node_load(env.table, rows) / SAME_LOAD))


def el_oracle(env: PlacementEnv, rows: IntArray) -> Verdicts:
    """Latency before energy: within the soft limit, then within the hard one; then a node that is on; then the
    fullest, which is what later pods want."""
    pods = env.pods
    nodes = len(pods) + CONTROL_PLANES
    on = np.count_nonzero(pods) + (pods[rows] == 0)
    load = node_load(env.table, env.table.live_rows())
    total = load.sum() + env.steps[rows]
    worth = _r3(env, rows) + ENERGY_WEIGHT * ((nodes - on) / nodes + np.minimum(1.0, total / on))
    return Verdicts(np.round(worth, 9) + 1e-10 * load[rows])


def el_published_oracle(env: PlacementEnv, rows: IntArray) -> Verdicts:
    """The greatest r1 + r2 + r3 as published; among equals the node with the most pods."""
    pods = env.pods
    nodes = len(pods) + CONTROL_PLANES
    on = np.count_nonzero(pods > ON_ABOVE_PODS) + (pods[rows] == ON_ABOVE_PODS)
    worth = (nodes - on) / nodes + (pods.sum() + 1) / np.maximum(on, 1) / 50 + _r3(env, rows)
    return Verdicts(np.round(worth, 9) + 1e-10 * pods[rows])


def _r3(env: PlacementEnv, rows: IntArray) -> NDArray[np.float64]:
    """``latency_reward`` of each of ``rows``."""
    latency, pod = env.table.latency_us[rows], env.pod_class
    soft, hard = pod.latency_soft_us, pod.latency_hard_us
    in_soft = (latency >= 0) & (latency <= soft) if soft else np.ones(len(rows), np.bool_)
    in_hard = (latency >= 0) & (latency <= hard) if hard else np.ones(len(rows), np.bool_)
    return np.where(in_soft, 1.0, np.where(in_hard, 0.5, 0.0))


ORACLES = {"ee": ee_oracle, "lb": lb_oracle, "el": el_oracle}
