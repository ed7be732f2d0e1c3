"""Pods that are counted on a table for a while, to judge what comes after them, and then no longer.

Not its job: assuming them (``cache.py``). Rows keep their generation, since nobody has placed anything.
"""

from __future__ import annotations

from types import TracebackType

from shared.model.constraints import PodClass, gpu_milli_of
from shared.scheduling.state.node_table import NodeTable


class Counted:
    """Counts until its ``with`` ends. ``len``: pods counted now."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._each: list[tuple[int, PodClass, tuple[int, ...]]] = []

    def __len__(self) -> int:
        return len(self._each)

    def __enter__(self) -> Counted:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._each:
            self._use(*self._each.pop(), sign=-1)

    def add(self, row: int, pod_class: PodClass) -> None:
        """One pod of the class is on the row."""
        devices = self._table.pick_devices(row, gpu_milli_of(pod_class))
        self._each.append((row, pod_class, devices))
        self._use(row, pod_class, devices, sign=1)

    def _use(self, row: int, pod_class: PodClass, devices: tuple[int, ...], *, sign: int) -> None:
        generation = self._table.generation
        at = int(generation[row])
        self._table.add_usage(row, pod_class, devices, sign=sign)
        generation[row] = at
