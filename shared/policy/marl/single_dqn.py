"""single-dqn: one central DQN that sees every node and names one, the baseline that marl-dqn has to beat (DRS).

What DRS and the thesis' comparison have: one Decision Maker on the master, six measurements per node, the pod's
requests, one Q per node. Its inputs are laid out by node, so a set of weights is for one number of nodes, and it knows
neither what is on its way nor what a workload is expected to use. Inference in numpy.
"""

from __future__ import annotations

import numpy as np

from shared.errors import ConfigError
from shared.policy.marl.features import MAGNIFY
from shared.policy.networks import Floats, layer_count, mlp, mlp_fault
from shared.policy.observation import Observation, Rng, Verdicts
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import node_view, pod_view
from shared.policy.weights import WeightsFile

NAME = "single-dqn"
PER_NODE = ("cpu", "memory", "disk", "network", "pods", "cpu_requested")
POD = ("pod_cpu_requested", "pod_memory_requested")


def feature_names(nodes: int) -> list[str]:
    """The inputs' names, in order."""
    return [f"node{row}_{name}" for row in range(nodes) for name in PER_NODE] + list(POD)


def single_features(observation: Observation, store: UtilisationStore | None) -> Floats:
    """float32 [nodes * 6 + 2] of all live nodes, feasible or not: what was measured last, pods, requests."""
    table = observation.table
    rows = table.live_rows()
    pod = pod_view(observation.pod_class, None)
    slots = np.array([store.nodes.get(table.names[row], -1) if store else -1 for row in rows], np.int64)
    view = node_view(table, rows, slots, pod, None)
    sample = view.use.parts[:, 0] if store is None else store.samples(slots)
    per_node = np.concatenate((sample, view.pods[:, None], view.requested[:, :1]), axis=1)
    return np.concatenate((per_node.ravel(), pod.requested[:2] * MAGNIFY)).astype(np.float32)


class SingleDqn:
    """Decides by a weights file made for exactly ``nodes`` nodes."""

    name = NAME
    row_local = False

    def __init__(self, weights: WeightsFile, store: UtilisationStore | None = None) -> None:
        self._params = weights.arrays
        self._layers = layer_count(weights.arrays)
        self.nodes = int(self._params[f"l{self._layers - 1}.b"].shape[0]) if self._layers else 0
        inputs = int(self._params["l0.w"].shape[0]) if self._layers else 0
        if not self.nodes or inputs != len(feature_names(self.nodes)):
            raise ConfigError(f"weights of {NAME}: {inputs} inputs do not fit {self.nodes} nodes; train again")
        if fault := mlp_fault(self._params):
            raise ConfigError(f"weights of {NAME}: {fault}; train again")
        self.version = weights.card.version
        self.store = store

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """Score: the Q of each node. Another number of nodes than trained for: ``ConfigError``."""
        live = observation.table.live_rows()
        if len(live) != self.nodes:
            raise ConfigError(f"{NAME}: {len(live)} nodes, its weights are for {self.nodes}; use another policy")
        q = mlp(self._params, single_features(observation, self.store), self._layers)
        return Verdicts(q[np.searchsorted(live, observation.rows)].astype(np.float64))
