"""Who is on the way out of which node, and the units that wait for the room that leaves.

    full, somebody leaves there --waits--> seen gone, or let stay --> looked at again
                                   |--``await_room_s`` is over--> given back; who left for all that time is not waited
                                                                  for again: a long grace, a finalizer, a dead kubelet

Coordinator and binder watch pods apart. Where the coordinator's watch is ahead, a unit is planned into room that is
still taken here; given back for that, it would lose the node that was emptied for it, and others would leave for it.
Not its job: whether the unit fits, or would if somebody left (``check.py``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable


class Leavers:
    """Knows in one term which pods stand and are terminating, or were asked to leave."""

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        self._on: dict[str, dict[str, float]] = {}
        """By node, those that are worth waiting for, with the time since when it is known that they leave."""
        self._waiting: dict[str, dict[str, None]] = {}
        """Units by each node whose room they wait for."""

    def leaves(self, uid: str, node: str, now: float) -> None:
        """The pod, which is counted on the node, is to leave it."""
        if uid not in self._node_of:
            self._node_of[uid] = node
            self._on.setdefault(node, {})[uid] = now

    def ended(self, uid: str) -> list[str]:
        """The pod is gone, or stays: the units that waited for its node are to be looked at again. An unknown one is
        fine."""
        node = self._node_of.get(uid, "")
        self._drop(uid)
        return list(self._waiting.pop(node, ()))

    def awaited_by(self, unit: str, nodes: Iterable[str], *, counted: Container[str]) -> bool:
        """Whether somebody who is ``counted`` still leaves any of the nodes; the unit then waits for that."""
        awaited = False
        for node in nodes:
            for uid in [uid for uid in self._on.get(node, ()) if uid not in counted]:
                self._drop(uid)  # it was found gone where no watch said so
            if node in self._on:
                self._waiting.setdefault(node, {})[unit] = None
                awaited = True
        return awaited

    def in_vain(self, nodes: Iterable[str], since: float) -> None:
        """A unit has waited since then for who leaves the nodes, for as long as any unit does."""
        for node in nodes:
            on = self._on.get(node, {})
            # <=: who began to leave amid the wait has not had its time yet.
            for uid in [uid for uid, began in on.items() if began <= since]:
                self._pass_over(uid, node)

    def waits_no_more(self, unit: str, nodes: Iterable[str]) -> None:
        """The unit has ended."""
        for node in nodes:
            if (waiting := self._waiting.get(node)) is not None and unit in waiting:
                del waiting[unit]
                if not waiting:
                    del self._waiting[node]

    def _drop(self, uid: str) -> None:
        if node := self._node_of.pop(uid, ""):
            self._pass_over(uid, node)

    def _pass_over(self, uid: str, node: str) -> None:
        on = self._on.get(node, {})
        if on.pop(uid, None) is not None and not on:
            del self._on[node]
