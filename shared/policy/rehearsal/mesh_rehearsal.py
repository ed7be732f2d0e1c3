"""The rehearsal of a mesh: its own demand, on its own nodes, as an experiment that the learned value and FGD play.

Refused, by name: no node has a GPU; pods ask for so little of them that too many would have to be played.
"""

from __future__ import annotations

import msgspec
import numpy as np

from shared.errors import ConfigError
from shared.model.gpu import GpuRequest, Ints
from shared.policy.frag.fragmentation import typical_demand
from shared.policy.rehearsal.rehearsal import RehearsalTrace, rehearse
from shared.policy.rehearsal.situation import RehearsalOrder, RehearsalVerdict, Situation
from shared.policy.rehearsal.submission import DEMAND, GpuNodes, GpuPods, empty_states
from shared.policy.weights import decode

MOST_NODES, MOST_PODS, MOST_SUBMITTED = 2_400, 20_000, 60_000
"""What is rehearsed at most: a part of larger clusters and lists, in which every kind keeps its share. 60,000 pods are
some 15 s of a core for each of the four episodes or more."""


def verdict_on(order: RehearsalOrder) -> RehearsalVerdict:
    """Play it; whatever keeps it from being played is the verdict's problem."""
    try:
        found = rehearse(trace_of(order.situation), decode(order.weights, policy=order.policy))
    except (ConfigError, ArithmeticError, LookupError, ValueError) as error:
        return RehearsalVerdict(problem=f"{error}"[:500] or repr(error))
    return RehearsalVerdict(found.policy, found.told())


def trace_of(situation: Situation) -> RehearsalTrace:
    """The experiment: these pods in any order onto these nodes. ``ConfigError``: it would be no experiment."""
    if not situation.gpus:
        raise ConfigError("rehearsal: no node has a GPU")
    kinds = _part(_repeated([count for _, count in situation.nodes]), MOST_NODES)
    table = np.array([msgspec.structs.astuple(kind) for kind, _ in situation.nodes], np.int64)[kinds]
    if not table[:, 2].any():
        raise ConfigError(f"rehearsal: of {MOST_NODES} nodes that stand for all none has a GPU")
    nodes = GpuNodes(tuple(f"node-{number}" for number in range(len(table))), empty_states(table), {})
    classes = tuple(GpuRequest(*msgspec.structs.astuple(ask)) for ask, _ in situation.pods)
    pods = GpuPods(classes, _part(_repeated([count for _, count in situation.pods]), MOST_PODS))
    asked = int(pods.gpu.sum())
    needed = DEMAND * nodes.capacity * len(pods.of) / asked if asked else np.inf
    if needed > MOST_SUBMITTED:
        raise ConfigError(
            f"rehearsal: {needed:.0f} such pods would ask for 130 % of the GPUs, at most {MOST_SUBMITTED} are tried:"
            " they ask for too little beside so many GPUs"
        )
    return RehearsalTrace(nodes, pods, typical_demand(classes, pods.counts))


def _repeated(counts: list[int]) -> Ints:
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def _part(kinds: Ints, most: int) -> Ints:
    """At most so many, spread evenly over all."""
    if len(kinds) <= most:
        return kinds
    part: Ints = kinds[np.linspace(0, len(kinds) - 1, most).round().astype(np.int64)]
    return part
