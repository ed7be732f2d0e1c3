"""The learned policies ``ee``, ``lb`` and ``el``: Deep Sets over the cluster's nodes, in numpy.

A node is judged by its own features and by what the cluster pools to (``features.py``), which the coordinator tells
with each offer: one set of weights ranks any number of nodes, scores of several agents compare, and a row is judged
again only where it or the cluster's loads changed. The network sees feasible rows only; it cannot choose another.
``el`` also says *reject* where a node's latency breaks the pod's hard limit: the coordinator then takes such a node
only if every feasible one is rejected, since a pod with any feasible node must be placed. ``ee``, which takes the
fullest node, says it of one that is measured to be so full that the pod would go beyond it. Scores are rounded to
``SCORE_STEP`` after sums in double precision, so that nodes that look alike tie exactly, however many are judged at
once; how ties fall is the ranker's business.

Where the user says what nodes draw, ``ee`` prefers the server that draws less per core; as the figure is a node's own,
this stands outside of the network, and nothing changes where nodes are alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shared.errors import ConfigError, OtherRelease
from shared.model.load import DEFAULT, LoadParts
from shared.model.power import PUBLISHED
from shared.policy.deepsets.features import (
    FEATURE_COUNT,
    FEATURES,
    WITHIN_HARD,
    ClusterLoads,
    Floats,
    cluster_loads,
    node_features,
)
from shared.policy.networks import layer_count, mlp, mlp_fault
from shared.policy.observation import Need, Observation, Rng, Supplies, Verdicts
from shared.policy.power import NodePower
from shared.policy.usage.load import room_by_use
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.weights import WeightsFile, inputs_fault
from shared.scheduling.state.node_table import NodeTable

EE = "ee"
DEEP_SETS_POLICIES = (EE, "lb", "el")

INEFFICIENCY = "inefficiency"
EFFICIENCY = 1.0
"""Of a score of ``ee``: what it is worth that a node draws half as much per core at full load. Much less than whether a
node is in use, so it decides which node is taken into use, not whether one is."""

SCORE_STEP = 1e-4
"""Scores are multiples of this."""


class DeepSetsPolicy:
    """``ee``, ``lb`` or ``el`` from a weights file."""

    row_local = True
    needs = frozenset({Need.USAGE, Need.CLUSTER_MEANS, Need.POWER})
    goals: ClassVar[Mapping[str, str]] = {"ee": "nodes", "lb": "balance", "el": "latency"}
    """What each is for, by which a roll-out compares it."""
    heeds_latency = ("el",)

    def __init__(self, weights: WeightsFile) -> None:
        card, arrays = weights.card, weights.arrays
        if card.policy not in DEEP_SETS_POLICIES:
            raise ConfigError(
                f"weights of {card.policy}: not a Deep Sets policy; choose one of {list(DEEP_SETS_POLICIES)}"
            )
        if fault := inputs_fault(card, FEATURES):
            raise OtherRelease(
                f"weights of {card.policy}: made for inputs that this version does not give ({fault});"
                f" train again, or activate the {card.policy} of this release"
            )
        layers = layer_count(arrays)
        if fault := mlp_fault(arrays):
            raise ConfigError(f"weights of {card.policy}: no Deep Sets network: {fault}; train again")
        if (arrays["l0.w"].shape[0], arrays[f"l{layers - 1}.w"].shape[1]) != (len(FEATURES), 1):
            raise ConfigError(f"weights of {card.policy}: no Deep Sets network of {len(FEATURES)} inputs; train again")
        self.name = card.policy
        self.version = card.version
        self._params = {name: array.astype(np.float64) for name, array in arrays.items()}
        self._layers = layers
        self._store: UtilisationStore | None = None
        self._power: NodePower | None = None
        self._parts: LoadParts = DEFAULT
        self._cluster: ClusterLoads | None = None
        self._told: NDArray[np.float64] | None = None
        """What they are made of; an offer brings another array."""

    def supply(self, supplies: Supplies) -> None:
        """Read what is told of the cluster from this store, what nodes draw and what is watched, from now on."""
        self._store, self._parts = supplies.store, supplies.load_parts
        self._power = NodePower(supplies.power) if self.name == EE and supplies.power != PUBLISHED else None

    def context(self, table: NodeTable) -> ClusterLoads:
        """What rows are compared with. Of a table of copies, which is no cluster: as last seen."""
        told = self._store.cluster if self._store is not None else None
        if self._cluster is None or told is not self._told or (told is None and not table.copied):
            self._cluster, self._told = cluster_loads(told, table, self._parts), told
        return self._cluster

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The network's inputs; and, where the user says what nodes draw, what stands outside of it."""
        return FEATURES if self._power is None else (*FEATURES, INEFFICIENCY)

    def features(self, observation: Observation) -> Floats:
        """float32 ``[candidates, len(feature_names)]``."""
        table, rows = observation.table, observation.rows
        x = node_features(table, observation.pod_class, rows, self.context(table), self._parts)
        if self._power is None:
            return x
        return np.column_stack((x, self._power.inefficiency(table, rows).astype(np.float32)))

    def scores(self, features: Floats) -> NDArray[np.float64]:
        """float64 ``[candidates]``: what each is worth, ``el``: the logit of taking it."""
        x = features.astype(np.float64)
        worth = mlp(self._params, x[:, :FEATURE_COUNT], self._layers)[:, 0]
        return worth if x.shape[1] == FEATURE_COUNT else worth - EFFICIENCY * x[:, FEATURE_COUNT]

    def q_values(self, features: Floats) -> Floats:
        """float32 ``[candidates, 2]``, to explain: taking none is worth 0."""
        q = np.zeros((len(features), 2), np.float32)
        q[:, 1] = self.scores(features)
        return q

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """The scores, rounded; ``el`` rejects what breaks the hard limit, ``ee`` what is measured to be full."""
        if not len(observation.rows):
            return Verdicts(np.empty(0))
        x = self.features(observation)
        score = np.rint(self.scores(x) / SCORE_STEP) * SCORE_STEP
        table, pod_class, rows = observation.table, observation.pod_class, observation.rows
        if self.name == "el" and pod_class.latency_hard_us:
            return Verdicts(score, x[:, WITHIN_HARD] > 0)
        if self.name == EE and table.use:
            return Verdicts(score, room_by_use(table, pod_class, rows, self._parts))
        return Verdicts(score)
