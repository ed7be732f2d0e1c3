"""Kubelets that refused pods which their zones had room for: not tried for such pods for a while, longer each time.

    refused --``FIRST_S``, or the node's object changes--> tried --refused again--> twice as long, and so on: tried

What makes a kubelet refuse may pass (a device plug-in that starts anew), or stay (an option that no object tells of);
nobody can know which. So each (node, needs) costs a few pods, then one in ``LONGEST_S``, and no node is kept out for
ever. From the second time on the object's changes do not count: on a busy node they are all but constant.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass

from shared.model.node_topology import PodNeeds

NEVER = float("inf")

FIRST_S, LONGEST_S = 30.0, 3600.0
"""Seconds for which such pods are not tried there; doubles."""


@dataclass(slots=True)
class _Refusal:
    """``until``: when it is over or, once it is not ``held`` any more, forgotten."""

    reason: str
    pause_s: float
    until: float
    held: bool = True


class Refusals:
    """By the pod's needs and the node."""

    def __init__(self) -> None:
        self._of: dict[PodNeeds, dict[str, _Refusal]] = {}
        self._held: dict[PodNeeds, dict[str, None]] = {}
        self._due: list[tuple[float, int, PodNeeds, str]] = []
        self._pushed = 0

    @property
    def wake_at(self) -> float:
        """When one is over."""
        return self._due[0][0] if self._due else NEVER

    def add(self, node: str, needs: PodNeeds, reason: str, now: float) -> bool:
        """Such a pod was refused there. Whether that is news: of a burst only the first counts."""
        known = self._of.setdefault(needs, {}).get(node)
        if known is not None and known.held:
            return False
        pause_s = FIRST_S if known is None else min(2 * known.pause_s, LONGEST_S)
        self._of[needs][node] = _Refusal(reason, pause_s, now + pause_s)
        self._held.setdefault(needs, {})[node] = None
        self._push(now + pause_s, needs, node)
        return True

    def nodes(self, needs: PodNeeds) -> Collection[str]:
        """Those that are not to be tried now."""
        return self._held.get(needs, ())

    def reason(self, node: str, needs: PodNeeds) -> str:
        """Why the node is not to be tried; "": it may be."""
        return self._of[needs][node].reason if node in self._held.get(needs, ()) else ""

    def __contains__(self, needs: PodNeeds) -> bool:
        return needs in self._held

    def changed(self, node: str, now: float) -> bool:
        """The node's object says something else. Whether pods may be tried again."""
        first = [needs for needs, nodes in self._held.items()
                 if node in nodes and self._of[needs][node].pause_s == FIRST_S]  # fmt: skip
        for needs in first:
            self._end(node, needs, now)
        return bool(first)

    def drop(self, node: str) -> bool:
        """Nothing is known of the node any more. Whether pods may be tried again."""
        held = [needs for needs, nodes in self._held.items() if node in nodes]
        for needs in [needs for needs, nodes in self._of.items() if node in nodes]:
            self._unhold(node, needs)
            self._forget(node, needs)
        return bool(held)

    def advance(self, now: float) -> list[str]:
        """Nodes where pods may be tried again by now."""
        over: list[str] = []
        while self._due and self._due[0][0] <= now:
            _, _, needs, node = heapq.heappop(self._due)
            known = self._of.get(needs, {}).get(node)
            if known is None or known.until > now:
                continue
            if known.held:
                over.append(node)
                self._end(node, needs, now)
            else:
                self._forget(node, needs)
        return over

    def _push(self, at: float, needs: PodNeeds, node: str) -> None:
        self._pushed += 1
        heapq.heappush(self._due, (at, self._pushed, needs, node))

    def _end(self, node: str, needs: PodNeeds, now: float) -> None:
        """It may be tried; how often it was refused is remembered still."""
        known = self._of[needs][node]
        known.held, known.until = False, now + LONGEST_S
        self._push(known.until, needs, node)
        self._unhold(node, needs)

    def _unhold(self, node: str, needs: PodNeeds) -> None:
        held = self._held.get(needs, {})
        held.pop(node, None)
        if not held:
            self._held.pop(needs, None)

    def _forget(self, node: str, needs: PodNeeds) -> None:
        del self._of[needs][node]
        if not self._of[needs]:
            del self._of[needs]
