"""A cluster in thought: pods taken off their nodes and put on others, judged by the scheduler's filters, and undone.

It works on the state itself, which it leaves as it was once everything is undone (``undo(0)``).
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from shared.model.pod import Pod
from shared.rebalance.residents import Resident
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import run_filters
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.cycle.profile import UNMEASURED, PluginSet
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray

CACHE_BYTES = 1 << 28
COPY = "+"
"""Behind the uid of a pod that stands on two nodes while it moves."""


class ClusterTrial:
    """Over one state. ``judged``: how often every filter was asked about a pod."""

    def __init__(self, state: ClusterState, *, profile: PluginSet = UNMEASURED) -> None:
        self.state = state
        self.table = state.table
        self.feasibility = FeasibilityCache(state.table, profile=profile, cache_bytes=CACHE_BYTES)
        self.judged = 0
        self._undo: list[tuple[str, Pod | None]] = []

    @property
    def mark(self) -> int:
        """Where ``undo`` comes back to."""
        return len(self._undo)

    def row(self, uid: str) -> int:
        """The row that the pod stands on; -1 for none."""
        account = self.state.cache.accounts.get(uid)
        return -1 if account is None else self.table.row_of.get(account.node_name, -1)

    def devices(self, uid: str) -> tuple[int, ...]:
        """The devices that the pod holds."""
        account = self.state.cache.accounts.get(uid)
        return () if account is None else account.devices

    def put(self, pod: Pod, row: int, devices: tuple[int, ...] = ()) -> None:
        """The pod comes to the row, from wherever it stood; to these devices, where they are known."""
        before = self._known(pod.uid)
        self._undo.append((pod.uid, before))
        if before is not None:
            self.state.forget(pod.uid)
        self.state.observe(replace(pod, node_name=self.table.names[row], devices=devices))

    def take(self, uid: str) -> None:
        """The pod leaves its node."""
        if (before := self._known(uid)) is not None:
            self._undo.append((uid, before))
            self.state.forget(uid)

    def undo(self, mark: int) -> None:
        """As it was at that mark."""
        while len(self._undo) > mark:
            uid, before = self._undo.pop()
            self.state.forget(uid)
            if before is not None:
                self.state.observe(before)

    def rows_for(self, pod: Pod, *, instead_of: str = "") -> BoolArray:
        """``[rows]``: the nodes that take the pod, by every filter; ``instead_of``: as if that one, or it itself, were
        not there."""
        mark = self.mark
        self.take(instead_of or pod.uid)
        self.judged += 1
        prefiltered = prefilter(self.state, pod)
        mask = run_filters(self.state, self.feasibility, prefiltered, explain=False).mask
        self.undo(mark)
        return mask

    def takes(self, pod: Pod, row: int, *, instead_of: str = "") -> bool:
        """Whether one node takes the pod."""
        return bool(self.rows_for(pod, instead_of=instead_of)[row])

    def names_of(self, rows: BoolArray) -> list[str]:
        """Of a mask the nodes."""
        return [self.table.names[row] for row in np.flatnonzero(rows).tolist()]

    def _known(self, uid: str) -> Pod | None:
        """The pod as it stands, with the devices that it was given; None: it stands nowhere."""
        account, pod = self.state.cache.accounts.get(uid), self.state.index.get(uid)
        return replace(pod, node_name=account.node_name, devices=account.devices) if account and pod else None


def room_for(resident: Resident) -> Pod:
    """The room that is kept for the replacement: nobody's rules see it by its labels before the pod itself is there."""
    return replace(copy_of(resident), labels={})


def copy_of(resident: Resident) -> Pod:
    """The replacement as it stands beside the pod that it replaces."""
    return replace(resident.replacement, uid=resident.uid + COPY)
