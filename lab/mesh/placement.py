"""The placement experiments (``lab.environments.placement``) decided by a mesh: what the environment does to its nodes
happens to the mesh's, and the node that the mesh binds a pod to is the decision.

So every experiment and figure of the ``deepsets`` suite holds for the mesh as it does for one decider; a mesh counts
its own accounting, which is never late, so experiments with a lag or noise are not for it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from lab.environments.placement import PlacementEnv
from lab.mesh.world import Agents, MeshWorld
from services.coordinator.core.state import CoreSettings
from shared.errors import ConfigError
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.power import PUBLISHED, PowerCurves
from shared.policy.observation import Policy, Verdicts
from shared.policy.registry import LEARNED, make_policy, ref_of, reference
from shared.policy.weights import WeightsFile
from shared.scheduling.state.node_table import IntArray, NodeTable
from shared.wire.records import PolicyRef


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy of the registry. ``weights``: in place of those that are shipped."""

    name: str
    weights: WeightsFile | None = None

    def make(self) -> Policy:
        """Anew, for one agent. Raises ``ConfigError``."""
        return make_policy(self.name) if self.weights is None else LEARNED[self.name](self.weights)

    @property
    def ref(self) -> PolicyRef:
        """As the pointer names it."""
        return ref_of(self.name) if self.weights is None else reference(self.weights)

    def world(
        self, nodes: list[Node], agents: Agents, seed: int, *, power: PowerCurves = PUBLISHED,
        settings: CoreSettings | None = None,
    ) -> MeshWorld:  # fmt: skip
        """A mesh at rest that decides by it. ``power``: what the nodes draw, where no ``settings`` say it."""
        return MeshWorld(nodes, agents, self.make, self.ref, seed=seed, power=power, settings=settings)


class MeshDecider:
    """A ``placement_rollout.Decider``: for one run of one environment."""

    def __init__(self, policy: NamedPolicy, agents: Agents, seed: int) -> None:
        self._policy = policy
        self._agents = agents
        self._seed = seed
        self._world: MeshWorld | None = None
        self._latency: IntArray = np.zeros(0, np.int64)
        self._standing: deque[str] = deque()
        self._seen = self._number = 0

    def __call__(self, env: PlacementEnv, rows: IntArray) -> Verdicts:
        """1 for the node that the mesh binds the pod to, 0 for all others."""
        world = self._follow(env)
        uid, self._number = f"uid-{self._number}", self._number + 1
        world.add([Pod(uid, "default", uid, "", env.pod_class, scheduler_name="conclave", workload="placement")])
        world.rest()
        chosen = np.array([env.table.names[row] == world.node_of(uid) for row in rows.tolist()])
        if chosen.sum() != 1:
            raise ConfigError(f"--agents: the mesh bound a pod to {world.node_of(uid) or 'no node'} that others take")
        self._standing.append(uid)
        return Verdicts(chosen.astype(np.float64))

    def _follow(self, env: PlacementEnv) -> MeshWorld:
        """The mesh with what happened to the environment's nodes since the last decision."""
        table = env.table
        latency = table.latency_us[: table.rows]
        if self._world is None:
            if env.seen is not table:
                raise ConfigError("--agents: a mesh's own accounting is neither late nor noisy")
            if env.scenario.filled:
                raise ConfigError("--agents: a mesh begins empty; play what begins filled by one decider")
            nodes = [_node(table, row) for row in range(table.rows)]
            self._world, self._latency = self._policy.world(nodes, self._agents, self._seed), latency.copy()
        for row in np.flatnonzero(self._latency != latency).tolist():
            self._world.change(_node(table, row))
            self._latency[row] = latency[row]
        changes = env.held[self._seen - 1 :] if self._seen else [0, *env.held]
        self._seen = len(env.held)
        for before, after in pairwise(changes):
            if after < before:
                self._world.remove(self._standing.popleft())
        return self._world


def _node(table: NodeTable, row: int) -> Node:
    node = table.nodes[row]
    assert node is not None
    return replace(node, latency_us=int(table.latency_us[row]))
