"""What is known of nodes' use at one moment, and samples of it. Pure data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.policy.usage.class_usage import PARTS, FloatArray

VIEWS = ("now", "modelled", "young", "younger")
"""How a node's use is looked at: sample plus what changed since (a part that was not measured: as the next); from its
pods alone, free of a sample's noise; of pods younger than ``YOUNG_S[1]``; of pods younger than ``YOUNG_S[0]``."""


class NodeUseEstimate(Struct, frozen=True):
    """One moment's estimate for some nodes.

    ``parts`` float64 [nodes, len(VIEWS), PARTS]: shares of each node's limits; ``known`` bool [nodes]: whether there is
    a sample; ``pods`` int64 [nodes]: how many pods ``parts`` covers; ``delay_ms`` [nodes]; ``scale`` [nodes, PARTS]:
    each node's limits in reference nodes.
    """

    parts: FloatArray
    known: NDArray[np.bool_]
    pods: NDArray[np.int64]
    delay_ms: FloatArray
    scale: FloatArray


class NodeMeasurement(Struct, frozen=True):
    """A sample of one node: ``shares`` [PARTS] of its limits, taken ``at_s``; ``scale`` [PARTS]: its limits in
    reference nodes, None: as they are; ``pods``: how many its table counts at this moment, told by ``bound`` or not;
    ``unmeasured``: bit i is set where part i was not measured: its share says nothing; ``newest_s``: when the newest
    part was measured, None: with the others."""

    node: str
    shares: Sequence[float]
    at_s: float
    scale: FloatArray | None
    pods: int | None = None
    unmeasured: int = 0
    newest_s: float | None = None


def nothing(nodes: int) -> NodeUseEstimate:
    """Of nodes that nobody has heard of."""
    return NodeUseEstimate(
        np.zeros((nodes, len(VIEWS), PARTS)), np.zeros(nodes, np.bool_), np.zeros(nodes, np.int64), np.zeros(nodes),
        np.ones((nodes, PARTS)),
    )  # fmt: skip
