"""Pods that are counted on a table for a while, to judge what comes after them, and then no longer.

Not its job: assuming them (``cache.py``). Rows keep their generation, since nobody has placed anything.
"""

from __future__ import annotations

from types import TracebackType

from shared.model.constraints import PodClass, gpu_milli_of
from shared.model.gpu import take_devices
from shared.scheduling.state.node_table import NodeTable


class Counted:
    """Counts until its ``with`` ends. ``len``: pods counted now."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._each: list[tuple[int, PodClass, tuple[int, ...]]] = []
        self._claimed: list[tuple[int, list[int]]] = []
        """What claims left of a row's devices before."""

    def __len__(self) -> int:
        return len(self._each)

    def __enter__(self) -> Counted:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._each:
            self._use(*self._each.pop(), sign=-1)
        while self._claimed:
            row, free = self._claimed.pop()
            self._table.claimed_free[row] = free

    def add(self, row: int, pod_class: PodClass) -> None:
        """One pod of the class is on the row."""
        devices = self._table.pick_devices(row, gpu_milli_of(pod_class))
        self._each.append((row, pod_class, devices))
        self._use(row, pod_class, devices, sign=1)
        if pod_class.claimed[0]:
            free = self._table.claimed_free[row]
            self._claimed.append((row, free))
            self._table.claimed_free[row] = left = list(free)
            take_devices(left, pod_class.claimed)

    def _use(self, row: int, pod_class: PodClass, devices: tuple[int, ...], *, sign: int) -> None:
        generation = self._table.generation
        at = int(generation[row])
        self._table.add_usage(row, pod_class, devices, sign=sign)
        generation[row] = at
