"""What the mesh loses against one decider that sees every node: each placement judged on the nodes as they stood.

A policy's scores have no unit, so what is lost is told as a share of what there was to lose: the best feasible node's
score less the chosen one's, over the best less the worst. 0: the mesh took a node that is best by the policy itself;
1: it took the worst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from lab.mesh.world import MeshWorld
from shared.model.constraints import gpu_milli_of
from shared.model.pod import Pod
from shared.policy.observation import Observation, Policy, Supplies, Verdicts, supply
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.scoring import norms_of
from shared.scheduling.state.node_table import NodeTable

NOT_ACCEPTED = 1.0
"""Lost where a node was taken that the policy rejects, while it accepts another."""


SAME = 1e-4
"""Scores that are apart by less, of the best and the worst node, are the same but for rounding."""


class _Middle:
    """What a policy that draws is handed: by it all its nodes are equally good."""

    def random(self) -> float:
        return 0.5


class RegretJudge:
    """One decider that sees all nodes of a world, and decides nothing."""

    def __init__(self, world: MeshWorld, make: Callable[[], Policy]) -> None:
        self._world = world
        self._policy = make()
        self._table = NodeTable(len(world.nodes))
        for node in world.nodes.values():
            self._table.upsert(node)
        self._feasibility = FeasibilityCache(self._table)
        profile = world.core.state.settings.profile
        supplies = Supplies(world.core.variants.store, power=profile.power, load_parts=profile.load_parts)
        supply(self._policy, supplies)
        self._seen = 0

    def lost(self) -> list[float]:
        """Of each pod that was bound since the last call, in the order in which they were, by what is measured now and
        on nodes as they are now."""
        told = self._world.core.state.cache.table
        for name, row in self._table.row_of.items():
            known = told.use.of_rows(np.array([told.row_of[name]]))
            unmeasured = sum(1 << place for place, one in enumerate(known.known[:, 0].tolist()) if not one)
            self._table.use.put(row, known.shares[:, 0].tolist(), unmeasured, known.then(0))
            self._table.upsert(self._world.nodes[name])
        fresh, self._seen = self._world.bindings[self._seen :], len(self._world.bindings)
        return [self._one(self._world.pods[uid], node) for uid, node in fresh]

    def _one(self, pod: Pod, node: str) -> float:
        table, pod_class, row = self._table, pod.pod_class, self._table.row_of[node]
        rows = np.flatnonzero(self._feasibility.of(pod_class).mask)
        norms = norms_of(self._feasibility, pod_class)
        lost = share_lost(self._policy.decide(Observation(table, pod_class, rows, norms), _Middle()), rows, row)
        table.add_usage(row, pod_class, table.pick_devices(row, gpu_milli_of(pod_class)))
        return lost


def share_lost(verdicts: Verdicts, rows: Sequence[int] | np.ndarray, row: int) -> float:
    """Of taking ``row`` of these candidates."""
    place = int(np.searchsorted(rows, row))
    score, accept = verdicts.score, verdicts.accept
    taken, span = float(score[place]), float(score.max() - score.min())
    if accept is not None and accept.any():
        if not accept[place]:
            return NOT_ACCEPTED
        score = score[accept]
    return (float(score.max()) - taken) / span if span > SAME else 0.0


def mean_lost(lost: Iterable[float]) -> float:
    """Of all of them."""
    return float(np.mean([*lost]))
