"""marl-dqn: one agent per node says yes or no to a pod; the leader takes the most willing one.

The thesis' scheduler. Each agent's network gives Q(reject) and Q(accept) for its own node; it accepts when accepting
is worth more, and its score is by how much. With weights trained as a value decomposition (docs/policies/marl-dqn.md)
the node of the highest score is the best joint action, because exactly one agent gets the pod. All agents share one
set of weights, so any number of nodes will do; a class of nodes may have a network of its own beside it
(``class_networks``). Inference in numpy; it refuses to train.

Network delay was noise in training and in no reward, so the network is shown none (ADR 0071): shown a node farther away
than it had ever seen, it took it for a better one. What delay costs stands outside of it (``delay_cost``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shared.errors import ConfigError
from shared.policy.marl.class_networks import SHARED, Networks, of_classes
from shared.policy.marl.features import DELAY_UNIT_MS, FEATURES, OUTRANKED, Observer
from shared.policy.marl.reward import band_now
from shared.policy.networks import Floats
from shared.policy.observation import Need, Observation, Rng, Supplies, Verdicts
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.weights import WeightsFile, inputs_fault

NAME = "marl-dqn"
PUBLISHED = "marl-dqn-published"
"""The same with weights trained by the thesis' reward: the reproduced variant, to compare with."""
REJECT, ACCEPT = 0, 1

DELAY = FEATURES.index("delay")
NEAR_MS, FAR_MS = 3.0, 20.0
MOST_DELAY_COST = 0.02
"""What a score is lower by from ``FAR_MS`` on; 1 is a distance of 5 points from the cluster's mean. So it decides
between nodes that are worth nearly the same. Chosen on validation seeds (ADR 0071)."""
MOST_RANK_COST = 80.0
"""What a score is lower by where all that the pod would get is taken from pods of higher priority, in the same unit: it
outweighs balance there. Chosen on validation seeds (ADR 0080). The reproduced variant has none: the thesis had none,
and its scores are of another size."""


def delay_cost(delay_ms: Floats, most: float = MOST_DELAY_COST) -> Floats:
    """What delays to other nodes cost: nothing up to ``NEAR_MS``, as inside one site, nor where none is known (0)."""
    cost: Floats = most * np.clip((delay_ms - NEAR_MS) / (FAR_MS - NEAR_MS), 0.0, 1.0)
    return cost


class MarlDqn:
    """Decides by a weights file; reads what nodes use from ``store``, None: by requests alone."""

    row_local = False
    agents_agree = True
    """By the cluster's means, which the coordinator tells."""
    goal = "balance"
    needs = frozenset({Need.USAGE, Need.CLUSTER_MEANS, Need.WORKLOADS})
    feature_names = (*FEATURES, OUTRANKED)
    inputs = len(FEATURES)
    """So many of them the network is given."""
    most_delay_cost = MOST_DELAY_COST
    most_rank_cost = MOST_RANK_COST

    def __init__(self, weights: WeightsFile, store: UtilisationStore | None = None) -> None:
        self.name = weights.card.policy
        if self.name == PUBLISHED:
            self.most_rank_cost = 0.0
        self._networks = Networks(weights, len(FEATURES), ACCEPT + 1)
        if fault := inputs_fault(weights.card, FEATURES):
            raise ConfigError(
                f"weights of {NAME}: made for inputs that this release does not give ({fault}); "
                "train again, or use the release that wrote them"
            )
        self.version = weights.card.version
        self.observer = Observer(store)

    @property
    def rows_apart(self) -> bool:
        """Rows are compared with the cluster's means, which stand still where somebody tells them."""
        store = self.observer.store
        return store is not None and store.cluster is not None

    @property
    def live_reward(self) -> Callable[..., float] | None:
        """What a node is worth while the policy runs, for who learns from it; None: its balance."""
        return band_now if self.name == PUBLISHED else None

    def supply(self, supplies: Supplies) -> None:
        """Read what nodes use from this store from now on."""
        self.observer.store = supplies.store

    def features(self, observation: Observation) -> Floats:
        """float32 [rows, len(feature_names)]: what each row's agent sees; where classes of nodes have networks, last
        the number of the one that judges it."""
        seen = self.observer.ranked(observation.table, observation.pod_class, observation.rows)
        classes = self._networks.classes
        if classes is None:
            return seen
        return np.column_stack((seen, of_classes(classes, observation.table, observation.rows)))

    @property
    def network_named(self) -> Callable[[Floats], str] | None:
        """The name of the network that judges a row of ``features``; None: there is but one."""
        classes = self._networks.classes
        return None if classes is None else lambda row: self._networks.names[int(row[-1])]

    def q_values(self, features: Floats) -> Floats:
        """float32 [rows, 2]: Q(reject), Q(accept) of each row of ``features``, the latter less what its delay costs
        and what it takes from pods of higher priority."""
        seen = features[:, : self.inputs].copy()
        seen[:, DELAY] = 0.0
        q = self._networks(seen, SHARED if self._networks.classes is None else features[:, -1])
        q[:, ACCEPT] -= delay_cost(features[:, DELAY] * DELAY_UNIT_MS, self.most_delay_cost)
        q[:, ACCEPT] -= self.most_rank_cost * features[:, self.inputs]
        return q

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """Score: Q(accept) - Q(reject); accepted where that is above 0."""
        q = self.q_values(self.features(observation))
        gain = (q[:, ACCEPT] - q[:, REJECT]).astype(np.float64)
        return Verdicts(gain, gain > 0.0)
