"""ImageLocality: nodes that have the pod's images already, weighed by size and by how widespread each image is.

Source: kube-scheduler 1.36 ``plugins/imagelocality/image_locality.go``. Images are kept apart from ``Node``: a
kubelet reports up to 50 of them per node and only this score reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shared.scheduling.node_table import IntArray, NodeTable

MAX_SCORE = 100
MIN_THRESHOLD_BYTES = 23 * 1024 * 1024
MAX_THRESHOLD_BYTES = 1000 * 1024 * 1024
"""Below the first no node is better than another; the second, times the number of containers, is a full score."""


class ImageTable:
    """Bytes of each image name by node."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._by_node: dict[str, dict[str, int]] = {}
        self._by_image: dict[str, dict[str, int]] = {}
        self._scaled: dict[str, tuple[int, int, IntArray]] = {}
        self._version = 0

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
        self._version += 1
        self._scaled.clear()

    def score(self, images: tuple[str, ...], rows: IntArray) -> IntArray | int:
        """``[rows]`` 0..100; 0 for all when no node has any. ``images``: normalised, one per container."""
        total: IntArray | None = None
        for name in images:
            if name in self._by_image:
                scaled = self._scaled_sizes(name)[rows]
                total = scaled if total is None else total + scaled
        if total is None:
            return 0
        highest = MAX_THRESHOLD_BYTES * len(images)
        clamped = np.clip(total, MIN_THRESHOLD_BYTES, highest)
        return MAX_SCORE * (clamped - MIN_THRESHOLD_BYTES) // (highest - MIN_THRESHOLD_BYTES)

    def _scaled_sizes(self, name: str) -> IntArray:
        """``[rows]``: size times the share of nodes that have the image, truncated; 0 where it is absent."""
        table = self._table
        known = self._scaled.get(name)
        if known is not None and known[:2] == (table.static_stamp, table.rows):
            return known[2]
        there = {table.row_of[node]: size for node, size in self._by_image[name].items() if node in table.row_of}
        sizes = np.zeros(table.rows, np.int64)
        spread = len(there) / max(len(table.row_of), 1)
        for row, size in there.items():
            sizes[row] = int(size * spread)
        self._scaled[name] = (table.static_stamp, table.rows, sizes)
        return sizes
