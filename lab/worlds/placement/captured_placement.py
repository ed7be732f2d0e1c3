"""``ee``, ``lb`` and ``el`` on a captured cluster: an episode as ``PlacementEnv`` gives one, and what it is judged by.

Unlike pods on unlike nodes make rank a poor guide: a pod that is nothing to a large node fills a small one. So what a
placement is worth to ``lb`` here is how even it leaves the nodes, beside the best and the worst that could have been
done (``even_reward``), and to ``ee`` and ``el`` how few nodes hold what is requested (``few_nodes_reward``): paid by
rank they would fill many small nodes where one large one is enough. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from lab.environments.placement import PlacedDecision
from lab.environments.placement_rewards import (
    REWARDS,
    SAME_LOAD,
    RewardedPlacement,
    RewardWorth,
    latency_reward,
    place_and_judge,
)
from lab.environments.thesis import ThesisEnv, ThesisSettings
from lab.worlds.placement.captured_cluster import DrawnEpisode
from lab.worlds.placement.placement_rollout import choose
from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.policy.observation import Observation, Policy
from shared.policy.usage.load import node_load
from shared.scheduling.state.node_table import PODS_COLUMN, BoolArray, IntArray

MOST_REWARD = 10.0
"""As the published reward of ``lb`` pays its best choice."""
NEAR = 0.7
"""Of the reward of ``el``: latency's part."""
MOST_EL = 1.4
"""The most that ``el_bounded_reward`` pays."""
COSTS = {"ee": "nodes in use", "el": "reward missed", "lb": "s.d. of load"}
"""What each is validated by on a captured cluster, mean over the placements; lower is better."""


class CapturedPlacement:
    """One episode, as ``placement_rewards.Environment``."""

    def __init__(self, drawn: DrawnEpisode, seed: int) -> None:
        settings = ThesisSettings(nodes=len(drawn.cluster.nodes), faults=drawn.faults)
        self._env = ThesisEnv(drawn.pods, np.random.default_rng(seed), settings, drawn.cluster)
        self.table = self.seen = self._env.table

    @property
    def finished(self) -> bool:
        """Whether every pod has been decided."""
        return self._env.over

    @property
    def pod_class(self) -> PodClass:
        """Of the current pod."""
        assert self._env.pending is not None
        return self._env.pending.pod_class

    @property
    def pods(self) -> IntArray:
        """int64 ``[nodes]``: pods per node."""
        return self.table.requested[PODS_COLUMN, : self.table.rows]

    @property
    def steps(self) -> NDArray[np.float64]:
        """float64 ``[nodes]``: the load that the current pod adds to each node."""
        allocatable = np.maximum(self.table.allocatable[:2, : self.table.rows], 1)
        requests = dict(self.pod_class.requests)
        asked = np.array([requests.get(CPU, 0), requests.get(MEMORY, 0)], np.float64)
        found: NDArray[np.float64] = (asked[:, None] / allocatable).mean(axis=0)
        return found

    def mask(self) -> BoolArray:
        """bool ``[nodes]``: where the current pod fits."""
        return self._env.mask

    def rows(self) -> IntArray:
        """The feasible rows, ascending."""
        return np.flatnonzero(self._env.mask)

    def place(self, row: int) -> PlacedDecision:
        """Bind the current pod to ``row`` and go on to the next decision."""
        latency_us = int(self.table.latency_us[row])
        self._env.place(row)
        return PlacedDecision(row, placed=True, latency_us=latency_us)


def judged(policy: str, env: CapturedPlacement, row: int) -> RewardWorth:
    """Place the current pod on ``row``: what it was worth to ``policy``."""
    worth = _REWARD_OF[policy](env, row)
    env.place(row)
    return worth


def even_reward(env: CapturedPlacement, row: int) -> RewardWorth:
    """``MOST_REWARD`` for the node that leaves loads most even, 0 for the one that leaves them least so."""
    rows = env.rows()
    after = spreads_after(env, rows)
    least, most = float(after.min()), float(after.max())
    if most - least < SAME_LOAD:
        return RewardWorth(MOST_REWARD, terminated=False)
    found = float(after[int(np.searchsorted(rows, row))])
    return RewardWorth(MOST_REWARD * (most - found) / (most - least), terminated=False)


def few_nodes_reward(env: CapturedPlacement, row: int) -> RewardWorth:
    """``MOST_REWARD`` times the fewest nodes that would hold what is requested, by its sums and the largest nodes, over
    the nodes in use, both with the current pod on ``row``. Where that takes a node into use, times how much of what is
    requested it would hold, beside the node that would hold most: which one it was tells only much later else."""
    table, live = env.table, _healthy(env)
    requests = dict(env.pod_class.requests)
    asked = np.maximum(table.requested[:2].take(live, axis=1).sum(axis=1), 1) + np.array(
        [requests.get(CPU, 0), requests.get(MEMORY, 0)]
    )
    offered = table.allocatable[:2].take(live, axis=1)
    in_use = env.pods > 0
    taken = not in_use[row]
    in_use[row] = True
    worth = min(_fewest(offered, asked) / int(np.count_nonzero(in_use)), 1.0)
    if taken:
        held = (offered / asked[:, None]).min(axis=0)
        if held.max() > 0:  # nodes that tell nothing of what they offer are all alike
            worth *= float(held[int(np.searchsorted(live, row))] / held.max())
    return RewardWorth(MOST_REWARD * worth, terminated=False)


def near_and_few_reward(env: CapturedPlacement, row: int) -> RewardWorth:
    """What ``el`` is paid for latency and for nodes, ``few_nodes_reward``, at most ``MOST_REWARD`` together: the step
    from one latency limit to the next is worth more than any node."""
    pod, latency_us = env.pod_class, int(env.table.latency_us[row])
    near = latency_reward(
        RewardedPlacement(
            np.zeros(1), 0, env.pods, latency_us, latency_soft_us=pod.latency_soft_us,
            latency_hard_us=pod.latency_hard_us,
        )
    )  # fmt: skip
    return RewardWorth(NEAR * MOST_REWARD * near + (1 - NEAR) * few_nodes_reward(env, row).reward, terminated=False)


def _fewest(offered: NDArray[np.int64], asked: NDArray[np.int64]) -> int:
    """Nodes, by each part alone and the largest first."""
    sums = np.cumsum(-np.sort(-offered, axis=1), axis=1)
    needed = max(int(np.searchsorted(part, want)) + 1 for part, want in zip(sums, asked, strict=True))
    return int(min(needed, offered.shape[1]))


def spreads_after(env: CapturedPlacement, rows: IntArray) -> NDArray[np.float64]:
    """float64 ``[rows]``: the s.d. of the loads of all healthy nodes with the current pod on each of ``rows``."""
    live = _healthy(env)
    load, step = node_load(env.table, live), env.steps[rows]
    before = node_load(env.table, rows)
    total, squares, count = load.sum() + step, (load**2).sum() + step * (2 * before + step), len(live)
    spread: NDArray[np.float64] = np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0.0))
    return spread


def costs_of(policy: Policy, name: str, episodes: Sequence[DrawnEpisode]) -> list[float]:
    """``COSTS[name]`` of each episode, played by ``policy`` alone, by what it is seen to do."""
    return [_cost(policy, name, drawn, number) for number, drawn in enumerate(episodes)]


def cost_of(policy: Policy, name: str, episodes: Sequence[DrawnEpisode]) -> float:
    """Their mean."""
    return float(np.mean(costs_of(policy, name, episodes)))


def _cost(policy: Policy, name: str, drawn: DrawnEpisode, seed: int) -> float:
    env, rng = CapturedPlacement(drawn, seed), np.random.default_rng((seed, 1))
    found: list[float] = []
    while not env.finished:
        rows = env.rows()
        row = int(rows[choose(policy.decide(Observation(env.seen, env.pod_class, rows), rng), rng)])
        found.append(_COST_OF[name](env, row))
    return float(np.mean(found))


def _nodes_in_use(env: CapturedPlacement, row: int) -> float:
    in_use = env.pods > 0
    in_use[row] = True
    env.place(row)
    return float(np.count_nonzero(in_use))


def _load_spread(env: CapturedPlacement, row: int) -> float:
    found = float(spreads_after(env, np.array([row]))[0])
    env.place(row)
    return found


def _reward_missed(env: CapturedPlacement, row: int) -> float:
    return MOST_EL - place_and_judge(env, row, REWARDS["el"])[1].reward


def _healthy(env: CapturedPlacement) -> IntArray:
    table = env.table
    return np.flatnonzero(table.present[: table.rows] & ~table.unschedulable[: table.rows])


_REWARD_OF: dict[str, Callable[[CapturedPlacement, int], RewardWorth]] = {
    "ee": few_nodes_reward, "el": near_and_few_reward, "lb": even_reward,
}  # fmt: skip
_COST_OF: dict[str, Callable[[CapturedPlacement, int], float]] = {
    "ee": _nodes_in_use, "el": _reward_missed, "lb": _load_spread,
}  # fmt: skip
