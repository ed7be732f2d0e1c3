"""ImageLocality: nodes that have the pod's images already, weighed by size and by how widespread each image is.

Source: kube-scheduler 1.36 ``plugins/imagelocality/image_locality.go``. Images are kept apart from ``Node``: a
kubelet reports up to 50 of them per node and only this score reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shared.scheduling.state.node_table import IntArray, NodeTable

MAX_SCORE = 100
MIN_THRESHOLD_BYTES = 23 * 1024 * 1024
MAX_THRESHOLD_BYTES = 1000 * 1024 * 1024
"""Below the first no node is better than another; the second, times the number of containers, is a full score."""

MEMO_LIMIT = 1024
"""Lists of images whose scores are remembered."""


class ImageTable:
    """Bytes of each image name by node."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._by_node: dict[str, dict[str, int]] = {}
        self._by_image: dict[str, dict[str, int]] = {}
        self._scores: dict[tuple[str, ...], tuple[int, IntArray]] = {}

    def set(self, node_name: str, images: Mapping[str, int]) -> None:
        """What the node has now."""
        before = self._by_node.get(node_name, {})
        if before == images:
            return
        for name in before.keys() - images.keys():
            self._by_image[name].pop(node_name)
            if not self._by_image[name]:
                del self._by_image[name]
        for name, size in images.items():
            self._by_image.setdefault(name, {})[node_name] = size
        if images:
            self._by_node[node_name] = dict(images)
        else:
            self._by_node.pop(node_name, None)
        self._scores.clear()

    def any_known(self, images: tuple[str, ...]) -> bool:
        """Whether some node has any of the images."""
        return any(name in self._by_image for name in images)

    def score(self, images: tuple[str, ...]) -> IntArray | None:
        """``[rows]`` 0..100; None when no node has any. ``images``: normalised, one per container.

        Kept per list of images until a node's images or the nodes change. The caller must not write to it.
        """
        table = self._table
        known = self._scores.get(images)
        if known is not None and known[0] == table.static_stamp and len(known[1]) == table.rows:
            return known[1]
        there = [name for name in images if name in self._by_image]
        if not there:
            return None
        total: IntArray = np.zeros(table.rows, np.int64)
        for name in there:
            self._add_scaled(total, name)
        highest = MAX_THRESHOLD_BYTES * len(images)
        clamped = np.clip(total, MIN_THRESHOLD_BYTES, highest)
        scores: IntArray = MAX_SCORE * (clamped - MIN_THRESHOLD_BYTES) // (highest - MIN_THRESHOLD_BYTES)
        if len(self._scores) >= MEMO_LIMIT:
            self._scores.clear()
        self._scores[images] = (table.static_stamp, scores)
        return scores

    def _add_scaled(self, total: IntArray, name: str) -> None:
        """Where the image is: its size times the share of nodes that have it, truncated."""
        row_of = self._table.row_of
        there = {row_of[node]: size for node, size in self._by_image[name].items() if node in row_of}
        spread = len(there) / max(len(row_of), 1)
        for row, size in there.items():
            total[row] += int(size * spread)
