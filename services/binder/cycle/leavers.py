"""Who is on the way out of which node, and the units that wait for the room that leaves.

    full, somebody leaves there --waits--> seen gone, or let stay --> looked at again
                                   |--``await_room_s`` is over--> given back

Coordinator and binder watch pods apart. Where the coordinator's watch is ahead, a unit is planned into room that is
still taken here; given back for that, it would lose the node that was emptied for it, and others would leave for it.
Not its job: whether the unit fits (``check.py``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable


class Leavers:
    """One term's: pods that stand and are terminating, or that were asked to leave."""

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self._on: dict[str, set[str]] = {}
        self._waiting: dict[str, dict[str, None]] = {}
        """Units by each node whose room they wait for."""

    def leaves(self, uid: str, node: str) -> None:
        """The pod, which is counted on the node, is to leave it."""
        if self._node_of.setdefault(uid, node) == node:
            self._on.setdefault(node, set()).add(uid)

    def ended(self, uid: str) -> list[str]:
        """The pod is gone, or stays: the units that waited for its node are to be looked at again. An unknown one is
        fine."""
        node = self._node_of.pop(uid, "")
        if not node:
            return []
        on = self._on[node]
        on.discard(uid)
        if not on:
            del self._on[node]
        return list(self._waiting.pop(node, ()))

    def awaited_by(self, unit: str, nodes: Iterable[str], *, counted: Container[str]) -> bool:
        """Whether somebody who is ``counted`` still leaves any of the nodes; the unit then waits for that."""
        there = []
        for node in nodes:
            for uid in [uid for uid in self._on.get(node, ()) if uid not in counted]:
                self.ended(uid)  # it was found gone where no watch said so
            if node in self._on:
                there.append(node)
        for node in there:
            self._waiting.setdefault(node, {})[unit] = None
        return bool(there)
