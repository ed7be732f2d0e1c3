"""Nominations that etcd is to have: where a pod is to go is written there before anybody is asked to leave.

    kept --stored--> victims are asked --shown in the pod's status, placed, over--> let go

A pod is told where it is to go only where it waits for a while (``Nominations``): most are placed by then, which spares
the API server a write for each. Until then this is what the next leader reads. What etcd has counts before what the
pod's status says, which is older, but for an inherited one that a leader of a version without records has passed over
(``Nominations.as_nominated``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from services.coordinator.core.instructions import StoreNominations
from services.coordinator.core.state import CoordinatorState


class Records:
    """One term's. ``kept``: the node by pod uid, as etcd has it once all that was asked for is done; ``inherited``:
    those of them that a leader before kept."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self.kept: dict[str, str] = {}
        self.inherited: set[str] = set()
        self._changes: dict[str, tuple[str, str]] = {}
        self._number = 1
        self._asked: dict[str, int] = {}
        """By pod, the number of what has asked for it last."""

    def inherit(self, nodes: Mapping[str, str]) -> None:
        """What leaders before kept."""
        self.kept, self.inherited = dict(nodes), set(nodes)

    def keep(self, uid: str, pod: str, node: str) -> None:
        """The pod, ``namespace/name``, is nominated to the node; answered once that is stored, however often asked."""
        self.inherited.discard(uid)
        self.kept[uid], self._asked[uid] = node, self._number
        self._changes[uid] = pod, node

    def answers(self, uid: str, number: int) -> bool:
        """Whether what was stored is what was asked for last: the answer to one before says nothing of what etcd has
        once all that was asked since is done."""
        return self._asked.get(uid) == number

    def let_go(self, uid: str) -> None:
        """The pod's status says so, it is placed or gone, or nominated no more; an unknown one is fine."""
        if self.kept.pop(uid, None) is not None:
            self.inherited.discard(uid)
            self._asked.pop(uid, None)
            self._changes[uid] = "", ""

    def keep_only(self, uids: Collection[str]) -> None:
        """Of those that leaders before kept the others do not wait any more."""
        for uid in [uid for uid in self.kept if uid not in uids]:
            self.let_go(uid)

    def step(self) -> None:
        """Ask for what has changed in this turn."""
        if self._changes:
            changes, self._changes = self._changes, {}
            entries = tuple((uid, *change) for uid, change in changes.items())
            self._state.out.append(StoreNominations(entries, self._number))
            self._number += 1
