"""The one policy interface: observation in, score and accept/reject per feasible node out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import NO_NORMS, Norms, PodClass
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable


class Rng(Protocol):
    """Where draws come from: ``random.Random`` in an agent (``numpy.random`` costs 2.4 MB), numpy's in training."""

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Observation:
    """What a policy sees of one decision.

    ``rows``: int64 ``[candidates]``, the feasible rows of ``table`` and nothing else: a policy cannot choose a node
    that a filter rejected (I12). ``norms``: cluster-wide maxima for normalised scores.
    """

    table: NodeTable
    pod_class: PodClass
    rows: IntArray
    norms: Norms = NO_NORMS


@dataclass(frozen=True, slots=True)
class Verdicts:
    """``score`` float64 ``[candidates]``, higher is better; ``accept`` bool ``[candidates]``, None: all."""

    score: NDArray[np.float64]
    accept: BoolArray | None = None


class Policy(Protocol):
    """Ranks feasible nodes for a pod class."""

    name: str
    version: int
    row_local: bool
    """A row's verdict depends on that row alone, so only changed rows are judged again."""

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:
        """Verdicts for ``observation.rows``, in that order."""
        ...
