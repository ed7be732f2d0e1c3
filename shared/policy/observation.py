"""The one policy interface: observation in, score and accept/reject per feasible node out; and what a policy needs.

Services know no policy by name. One that needs more than the nodes and the class says so in ``needs``: the coordinator
then gathers it and sends it along, and the agent hands it to the policy's ``supply`` before the first decision.
One that can put work together has ``prepare(table, [(class, rows), ...])``: it is told what it is asked for next, while
the table stays as it is, and answers nothing. What it is for it may say in ``goal``, a name of ``rollout.outcome``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import NO_NORMS, Norms, PodClass
from shared.model.gpu_shares import DEFAULT as GPU_DEFAULT
from shared.model.gpu_shares import GpuShares
from shared.model.load import DEFAULT as LOAD_DEFAULT
from shared.model.load import LoadParts
from shared.model.power import PUBLISHED, PowerCurves
from shared.policy.usage.utilisation import UtilisationStore
from shared.scheduling.framework import Score
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable
from shared.wire.demand import Demand


class Rng(Protocol):
    """Where draws come from: ``random.Random`` in an agent (``numpy.random`` costs 2.4 MB), numpy's in training."""

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Observation:
    """What a policy sees of one decision.

    ``rows``: int64 ``[candidates]``, the feasible rows of ``table`` and nothing else: a policy cannot choose a node
    that a filter rejected (I12). ``norms``: cluster-wide maxima for normalised scores. ``units``: how many of the class
    the answer places.
    """

    table: NodeTable
    pod_class: PodClass
    rows: IntArray
    norms: Norms = NO_NORMS
    units: int = 1


@dataclass(frozen=True, slots=True)
class Verdicts:
    """``score`` float64 ``[candidates]``, higher is better; ``accept`` bool ``[candidates]``, None: all.

    ``basis``: verdicts of one policy compare where it is the same; one that decides by other means at times (a mixture
    whose member failed) says so by another number."""

    score: NDArray[np.float64]
    accept: BoolArray | None = None
    basis: int = 0


class Policy(Protocol):
    """Ranks feasible nodes for a pod class."""

    name: str
    version: int
    row_local: bool
    """A row's verdict depends on that row alone (and on ``context_of``), so only changed rows are judged again."""

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:
        """Verdicts for ``observation.rows``, in that order."""
        ...


def rows_apart(policy: Policy) -> bool:
    """Whether a pod that comes to a row changes no other row's verdict while one answer lasts: so it is where rows are
    judged each alone, and where the policy says so (an attribute ``rows_apart``)."""
    return policy.row_local or bool(getattr(policy, "rows_apart", False))


def agents_agree(policy: Policy) -> bool:
    """Whether a node's score is the same whichever agent gives it, and whatever else that agent sees, so that agents'
    best nodes compare: so it is where rows are judged each alone, and where the policy says so (an attribute
    ``agents_agree``)."""
    return policy.row_local or bool(getattr(policy, "agents_agree", False))


def context_of(policy: Policy, table: NodeTable) -> Hashable:
    """What rows of the table are compared with, where the policy says so (a method ``context``): while it stays the
    same, so do the verdicts on rows that stay. None: with nothing."""
    context: Callable[[NodeTable], Hashable] | None = getattr(policy, "context", None)
    return None if context is None else context(table)


class Need(StrEnum):
    """What a policy may ask for."""

    USAGE = "usage"
    """What nodes were measured to use: the coordinator samples the metrics API."""
    CLUSTER_MEANS = "cluster_means"
    """Means over all nodes, least and most (``usage.views.SUMMARY``), with which an agent's nodes are compared."""
    WORKLOADS = "workloads"
    """The workload inventory: which workload each pod is a copy of, and which stand on the nodes; ``PodClass.workload``
    is told."""
    SCORES = "scores"
    """The user's scores (``shared.plugins``), to be added to its own."""
    GPU_SHARES = "gpu_shares"
    """Which resources and devices count as GPUs, and as how much of one."""
    DEMAND = "demand"
    """What all pods ask for of GPUs: the coordinator counts it, and tells every agent the same."""
    POWER = "power"
    """What nodes draw."""
    CLOCK = "clock"
    """The thread's CPU time, by which it sees which of its parts are slow."""


Needs = frozenset[Need]
NOTHING: Needs = frozenset()


def _stands_still() -> float:
    return 0.0


@dataclass(slots=True)
class ToldDemand:
    """``demand`` None: nobody tells it, and a policy goes by what it was asked about itself."""

    demand: Demand | None = None


@dataclass(frozen=True, slots=True)
class Supplies:
    """What an agent, or an explanation, has for policies that need it. Store and demand are filled in place."""

    store: UtilisationStore | None = None
    scores: tuple[Score, ...] = ()
    clock: Callable[[], float] = _stands_still
    gpu_shares: GpuShares = GPU_DEFAULT
    power: PowerCurves = PUBLISHED
    load_parts: LoadParts = LOAD_DEFAULT
    demand: ToldDemand = field(default_factory=ToldDemand)


def needs_of(policy: Policy | Callable[..., Policy]) -> Needs:
    """The ``needs`` of a policy or of what makes it; one without the attribute needs nothing."""
    needs: Needs = getattr(policy, "needs", NOTHING)
    return needs


def supply(policy: Policy, supplies: Supplies) -> None:
    """Hand the policy what it needs; nothing to one that needs nothing."""
    if needs_of(policy):
        policy.supply(supplies)  # type: ignore[attr-defined]  # whoever has needs takes supplies
