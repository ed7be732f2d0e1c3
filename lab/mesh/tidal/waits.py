"""How long online pods of a day wait for their Binding, told apart from the grace of who leaves for them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

Which = tuple[str, float, int]
"""An online pod in any arrangement: its service, when it was created, and the how many-th of these it is."""


class Waits:
    """``seconds``: from a pod's creation to its Binding, or to its own end or the day's if it has none; less the
    longest grace, meanwhile, of one that left its node for the sake of an online pod."""

    def __init__(self) -> None:
        self.seconds: dict[Which, float] = {}
        self._leaving: dict[str, tuple[int, float]] = {}
        """Who leaves for an online pod: node, since when."""
        self._left: list[tuple[int, float, float]] = []
        """Who has left for one: node, from when, until when."""

    def asked(self, uid: str, node: int, at_s: float) -> None:
        """Somebody there is to leave for the sake of an online pod."""
        self._leaving[uid] = node, at_s

    def gone(self, uid: str, at_s: float) -> None:
        """A pod is gone, whoever asked it."""
        if (since := self._leaving.pop(uid, None)) is not None:
            self._left.append((*since, at_s))

    def bound(self, which: Which, node: int, at_s: float) -> None:
        """An online pod has a node."""
        _, created, _ = which
        spans = [min(until, at_s) - max(since, created) for where, since, until in self._left if where == node]
        self.seconds[which] = at_s - created - max([0.0, *spans])

    def in_vain(self, which: Which, at_s: float) -> None:
        """A pod has waited until now, and is deleted or the day ends."""
        self.seconds[which] = at_s - which[1]


def later(waits: Mapping[Which, float], alone: Mapping[Which, float]) -> float:
    """The most that a pod waited longer than the same one of ``alone``; one that is not there waited for nothing."""
    return max((wait - alone.get(which, 0.0) for which, wait in waits.items()), default=0.0)
