"""Service graphs like the default one and not it, drawn from a seed: what a policy is to learn to adapt to.

Each has the default's services and calls; a replica of each service answers from half to twice as much, uses from
three fifths to all of its cpu request when it is full, and starts in half to twice the time. The load of an episode
is drawn for what the graph answers (``ServiceGraph.capacity``), so that it fits.
"""

from __future__ import annotations

from math import exp, log

import msgspec
import numpy as np

from lab.worlds.services.topology import GraphService, ServiceGraph, default_topology

GRAPH_STREAM = 33


def drawn_graph(seed: int, number: int) -> ServiceGraph:
    """The graph of an episode."""
    rng = np.random.default_rng([seed, GRAPH_STREAM, number])
    default = default_topology()
    services = {name: _drawn_service(one, rng) for name, one in default.services.items()}
    return msgspec.structs.replace(default, name=f"drawn-{number}", services=services)


def _drawn_service(one: GraphService, rng: np.random.Generator) -> GraphService:
    def times() -> float:
        return exp(rng.uniform(-log(2.0), log(2.0)))

    return msgspec.structs.replace(
        one,
        throughput=one.throughput * times(),
        cpu_when_full=float(rng.uniform(0.6, 1.0)),
        start_delay_s=one.start_delay_s * times(),
    )
