"""Pod classes by number, with their size on the wire and how concentrated their good nodes are.

Numbers are never given twice in a term. A class is other people's text (selectors, affinity terms): one that is too
large for an offer is refused here, so that it spoils its own pods and not the rounds of all (I10).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import msgspec

from shared.model.constraints import PodClass

MAX_CLASSES = 8192
"""Classes remembered; then numbers are given anew (agents are told by definition, so that costs bytes only)."""

MAX_CLASS_BYTES = 128 * 1024
"""A larger class is refused. The API server takes objects of 1.5 MiB; real ones are below 2 KiB."""

MAX_ROUND_BYTES = 1024 * 1024
"""All classes of one round together, a quarter of a message's limit: the rest is for the view."""

SLOTS_SHARE = 2
"""Each agent is asked for so many times its even share of a class's units: most of what more agents would answer
beyond that is never looked at. A class whose good nodes sit with few agents (a label, bin packing) gets more."""

MAX_WIDENING = 4096


@dataclass(slots=True)
class KnownClass:
    """``size_bytes`` on the wire; ``share``: multiple of an agent's even share that is asked of it."""

    id: int
    size_bytes: int
    share: int = SLOTS_SHARE

    def widen(self) -> None:
        """A list that was cut ran dry: ask for more next time."""
        self.share = min(2 * self.share, MAX_WIDENING)

    def slots(self, units: int, agents: int) -> int:
        """How many slots to ask of each of so many agents for so many units."""
        return min(units, self.share * units // agents + 1)


class Classes:
    """``PodClass`` to ``KnownClass``."""

    def __init__(self) -> None:
        self._known: dict[Hashable, KnownClass] = {}
        self._numbers = 0

    def of(self, pod_class: PodClass, template: Hashable | None = None) -> KnownClass:
        """The class's number, given at first sight; ``template``: pods of which more than the class counts have one of
        their own."""
        key = pod_class if template is None else template
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_CLASSES:
                self._known.clear()
            self._numbers += 1
            known = KnownClass(self._numbers, len(msgspec.msgpack.encode(pod_class)))
            self._known[key] = known
        return known
