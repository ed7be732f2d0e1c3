"""The learned policy's inputs: what the signals of a service, and of its whole graph, say in bounded numbers.

Nothing in them is tied to a service's name, its place or the size of the graph, so that one set of weights serves every
service of every graph. Shares and ratios only: no rate, no number of replicas by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shared.autoscaling.networks.signals import ServiceSignals

CLIP = 3.0
STEPS = (-2, -1, 0, 1, 2)
"""What a service may do at one decision: so many replicas more."""
HOLD = STEPS.index(0)
OWN = (
    "gap", "need_of_replicas", "need_of_ready", "trend", "waiting_s", "failing", "utilisation", "latency", "inflation",
    "stuck", "unready", "pending", "not_ready", "of_maximum", "at_maximum", "at_minimum", "cores", "missing", "last",
)  # fmt: skip
GRAPH = ("graph_pending", "graph_stuck", "graph_need", "graph_failing", "graph_waiting_s", "tight")
FEATURES = (*OWN, *GRAPH)
OF_THE_RULE = ("gap", "tight")
"""Those that tell what the rule by demand wants: who learns without it is not to see them."""
Floats = NDArray[np.float32]


def features(inputs: NDArray[np.float64]) -> Floats:
    """float32 [services, features]: the inputs within +-``CLIP``, as the network takes them."""
    found: Floats = np.clip(inputs, -CLIP, CLIP).astype(np.float32)
    return found


def inputs_of(
    signals: Mapping[str, ServiceSignals], targets: Mapping[str, int], last: Mapping[str, int], *, tight: bool
) -> NDArray[np.float64]:
    """[services, features] in the order of ``signals``, not yet bounded. ``targets``: what the rule by demand wants;
    ``last``: each service's last step."""
    every = list(signals.values())
    asked = max(sum(one.replicas for one in every), 1)
    cores = max(sum(one.replicas * one.cores for one in every), 1e-9)
    graph = (
        sum(one.pending for one in every) / asked,
        sum(one.stuck for one in every) / asked,
        max(need_of_ready(one) for one in every) - 1.0,
        max(one.failing for one in every),
        max(one.waiting_s for one in every),
        float(tight),
    )
    rows = [(*_own(one, targets[name], last.get(name, 0), cores), *graph) for name, one in signals.items()]
    return np.array(rows, np.float64).reshape(len(every), len(FEATURES))


def need_of_ready(one: ServiceSignals) -> float:
    """Replicas needed over those that are ready; 1 where nothing is known."""
    return one.needed / max(one.ready, 0.5) if one.per_replica > 0 else 1.0


def _own(one: ServiceSignals, target: int, last: int, cores: float) -> tuple[float, ...]:
    asked = max(one.replicas, 1)
    return (
        float(target - one.replicas),
        (one.needed / asked if one.per_replica > 0 else 1.0) - 1.0,
        need_of_ready(one) - 1.0,
        one.trend,
        one.waiting_s,
        one.failing,
        one.utilisation,
        one.latency - 1.0,
        one.inflation - 1.0,
        one.stuck / asked,
        one.unready / asked,
        one.pending / asked,
        1.0 - one.ready / asked,
        one.replicas / max(one.maximum, 1),
        float(one.replicas >= one.maximum),
        float(one.replicas <= one.minimum),
        one.replicas * one.cores / cores,
        float(one.missing),
        last / 2.0,
    )
