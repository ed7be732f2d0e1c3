"""The English thesis' rewards for ``ee`` (energy), ``lb`` (load balance) and ``el`` (energy and latency), as published.

Source: SoniaMatranga/SoniaMatrangaTesi, ``gymnasium/envs/classic_control/scheduling.py`` (policies MA, LA and P0) and
the thesis' text. Each says what one placement was worth and whether it ends the episode. Rank (fullest, least, most
loaded) is judged among the feasible nodes before the pod; the numbers of nodes after it, on the state that holds it.
What the published code left undefined is defined here: nodes of equal load share their rank, an empty cluster has
every rank, and with all loads equal a node is *least* loaded, not most.

``el_reward`` is published, ``el_bounded_reward`` is what ``el`` learns from. The published one pays ever more for pods
on nodes that hold at most five, since those are not "on": on a hundred nodes its own best choices spread the pods and
break the soft limit (docs/policies/deepsets.md has the figures). The bounded one counts every node with a pod and
never pays more for energy than for the step from one latency limit to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lab.environments.placement import PlacedDecision
from shared.model.constraints import PodClass
from shared.policy.usage.load import node_load
from shared.scheduling.state.node_table import IntArray, NodeTable

CONTROL_PLANES = 1
"""The thesis' N counts the control plane: three workers are N = 4."""

IN_USE_FROM_PODS = 1
"""``ee``: a node with fewer pods is unused (the thesis; its code says 5)."""

FULLEST = 1.0
"""``ee``: what a fullest node is worth at least. As published it is 0 where (nearly) all nodes are in use, like any
other choice there, so that nothing says how nodes come to be unused again."""

ON_ABOVE_PODS = 5
"""``el``: a node with more pods is on (the code; the thesis gives no number)."""

ENERGY_WEIGHT = 0.2
"""``el`` bounded: r1 + r2 is at most 2, and one placement changes it by less than 1: below r3's steps of 0.5."""

SAME_LOAD = 1e-9


@dataclass(frozen=True, slots=True)
class RewardedPlacement:
    """What the rewards judge. ``load`` float64 ``[feasible]`` before the pod, ``chosen`` an index into it; ``pods``
    int64 ``[nodes]`` and ``total_load`` (sum over all nodes; 0 without limits) after it; latencies in microseconds, -1
    unknown, limits 0 for none."""

    load: NDArray[np.float64]
    chosen: int
    pods: NDArray[np.int64]
    latency_us: int = -1
    latency_soft_us: int = 0
    latency_hard_us: int = 0
    total_load: float = 0.0


@dataclass(frozen=True, slots=True)
class RewardWorth:
    """``reward``, and whether the episode ends."""

    reward: float
    terminated: bool


class Reward(Protocol):
    """Judges one placement."""

    def __call__(self, placement: RewardedPlacement) -> RewardWorth: ...


def ee_reward(placement: RewardedPlacement) -> RewardWorth:
    """0 and the end for any but a fullest node, else ``int(10 unused / (N - 1))``, at least ``FULLEST``."""
    load = placement.load
    if load[placement.chosen] < load.max() - SAME_LOAD:
        return RewardWorth(0.0, terminated=True)
    unused = int(np.count_nonzero(placement.pods < IN_USE_FROM_PODS))
    workers = len(placement.pods) + CONTROL_PLANES - 1
    return RewardWorth(max(FULLEST, float(10 * unused // workers)), terminated=False)


def lb_reward(placement: RewardedPlacement) -> RewardWorth:
    """10 for a least loaded node, 0 for one between, -1 and the end for a most loaded one."""
    load = placement.load
    own = load[placement.chosen]
    if own <= load.min() + SAME_LOAD:
        return RewardWorth(10.0, terminated=False)
    if own >= load.max() - SAME_LOAD:
        return RewardWorth(-1.0, terminated=True)
    return RewardWorth(0.0, terminated=False)


def el_reward(placement: RewardedPlacement) -> RewardWorth:
    """r1 + r2 + r3: ``(N - on) / N``, ``(pods / on) / 50``, and 1, 0.5 or 0 (the end) by the latency's limits."""
    on = int(np.count_nonzero(placement.pods > ON_ABOVE_PODS))
    nodes = len(placement.pods) + CONTROL_PLANES
    total = int(placement.pods.sum())
    r1 = (nodes - on) / nodes
    r2 = total / max(on, 1) / 50
    r3 = latency_reward(placement)
    return RewardWorth(r1 + r2 + r3, terminated=r3 == 0.0)


def el_bounded_reward(placement: RewardedPlacement) -> RewardWorth:
    """r3 + ``ENERGY_WEIGHT`` (r1 + r2): r1 = ``(N - on) / N``, r2 the mean load of the nodes that are on, where a node
    with any pod is on; r3 and the ending as published."""
    on = int(np.count_nonzero(placement.pods))
    nodes = len(placement.pods) + CONTROL_PLANES
    r1 = (nodes - on) / nodes
    r2 = min(1.0, placement.total_load / max(on, 1))
    r3 = latency_reward(placement)
    return RewardWorth(r3 + ENERGY_WEIGHT * (r1 + r2), terminated=r3 == 0.0)


def latency_reward(placement: RewardedPlacement) -> float:
    """1 within the soft limit, 0.5 within the hard one, else 0. A limit of 0 holds; an unknown latency breaks any."""
    if _within(placement.latency_us, placement.latency_soft_us):
        return 1.0
    return 0.5 if _within(placement.latency_us, placement.latency_hard_us) else 0.0


def _within(latency_us: int, limit_us: int) -> bool:
    return limit_us == 0 or 0 <= latency_us <= limit_us


class Environment(Protocol):
    """What places pods one by one, and can be judged: ``PlacementEnv``, or an episode on a captured cluster."""

    @property
    def table(self) -> NodeTable: ...

    @property
    def pods(self) -> NDArray[np.int64]: ...

    @property
    def pod_class(self) -> PodClass: ...

    @property
    def steps(self) -> NDArray[np.float64]: ...

    def rows(self) -> IntArray: ...

    def place(self, row: int) -> PlacedDecision: ...


INFEASIBLE = RewardWorth(-1.0, terminated=True)
"""What a choice that no filter allows is worth. The published code knew no feasibility."""


def place_and_judge(env: Environment, row: int, reward: Reward) -> tuple[PlacedDecision, RewardWorth]:
    """Place the current pod on ``row`` and judge it by the true state: rank before the pod, counts right after it,
    whatever the decider may have seen, and before any pod leaves for the next decision."""
    rows = env.rows()
    chosen = int(np.searchsorted(rows, row))
    if chosen == len(rows) or rows[chosen] != row:
        return env.place(row), INFEASIBLE
    load = node_load(env.table, rows)
    pods = env.pods.copy()
    pods[row] += 1
    latency_us = int(env.table.latency_us[row])
    pod, total = env.pod_class, 0.0
    if pod.latency_soft_us or pod.latency_hard_us:  # only ``el`` asks for it
        total = float(node_load(env.table, env.table.live_rows()).sum()) + float(env.steps[row])
    worth = reward(RewardedPlacement(load, chosen, pods, latency_us, pod.latency_soft_us, pod.latency_hard_us, total))
    return env.place(row), worth


REWARDS: dict[str, Reward] = {"ee": ee_reward, "lb": lb_reward, "el": el_bounded_reward}
"""What each policy learns from and is measured by."""
