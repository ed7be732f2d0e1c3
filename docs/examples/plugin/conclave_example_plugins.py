"""A filter, a score and a policy for Conclave. The interface is described in docs/plugins.md.

Nothing of Conclave is imported to run: classes with the right attributes will do. The imports below are for type
checkers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from shared.model.constraints import PodClass
    from shared.plugins import Nodes


class Headroom:
    """On nodes labelled ``example.com/headroom``, so many per cent of the memory stay free."""

    api_version = "v1"
    message = "node(s) would lose their memory headroom"
    static = False  # it reads what is requested, so it is asked again when that changes

    def takes(self, nodes: Nodes, pod: PodClass) -> NDArray[np.bool_]:
        """True where the headroom is left beside the pod."""
        percent = np.array([int(value) if value.isdigit() else 0 for value in nodes.label("example.com/headroom")])
        wanted = dict(pod.requests).get("memory", 0)
        left = nodes.free("memory") - wanted
        return (percent == 0) | (left * 100 >= nodes.allocatable("memory") * percent)


class Tier:
    """Nodes labelled ``example.com/tier=gold`` before silver ones, those before all others."""

    api_version = "v1"
    weight = 2

    def score(self, nodes: Nodes, pod: PodClass) -> NDArray[np.int64]:  # noqa: ARG002
        """100, 50 or 0."""
        gold, silver = (nodes.label_in("example.com/tier", [tier]) for tier in ("gold", "silver"))
        return 100 * gold + 50 * silver


class Fullest:
    """The node with the least CPU left, so that others stay empty."""

    api_version = "v1"
    version = 1
    row_local = True  # a node's rank depends on that node alone, so only nodes that changed are ranked again

    def rank(self, nodes: Nodes, pod: PodClass, draw: Callable[[], float]) -> NDArray[np.int64]:  # noqa: ARG002
        """Minus what is left: the greatest rank wins."""
        return -nodes.free("cpu")
