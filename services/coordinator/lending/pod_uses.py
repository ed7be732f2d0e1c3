"""What pods use, as last told, with its age by our own clock. Pure.

A source says when it measured by a clock of its own. That counts where it is in the past; a measurement from the future
is new once, when it is first seen, and grows old from then on: a source that stands still is not new for ever.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from shared.kube.nodes.pod_metrics import PodMetric

STALE_S = 180.0
"""What a pod used is not known any more after so long; a metrics server tells every 15 s, or every minute."""


class KnownUse(Struct, frozen=True, gc=False):
    """``said_s``: when, as its source says; ``at_s``: by our clock; ``amounts``: milli-cores, bytes."""

    said_s: float
    at_s: float
    amounts: tuple[int, int]


class PodUses:
    """By namespace/name: no other key is in the metrics."""

    def __init__(self) -> None:
        self._known: dict[str, KnownUse] = {}
        self.answered = False
        """Whether the source has said anything in this term, be it that there is none: before, nobody is unmeasured."""

    def __len__(self) -> int:
        return len(self._known)

    def take(self, metric: PodMetric, *, wall_s: float, now_s: float) -> None:
        """What a source told, at ``wall_s`` since 1970."""
        known = self._known.get(metric.key)
        if known is not None and known.said_s == metric.at_s:
            return
        at_s = now_s - max(0.0, wall_s - metric.at_s)
        self._known[metric.key] = KnownUse(metric.at_s, at_s, (metric.cpu_millis, metric.memory_bytes))

    def keep(self, named: Collection[str]) -> None:
        """Leave out all but these, which the source has just told of."""
        self._known = {key: one for key, one in self._known.items() if key in named}
        self.answered = True

    def get(self, key: str, now_s: float) -> KnownUse | None:
        """What the pod uses; None where nobody says so now."""
        known = self._known.get(key)
        return known if known is not None and now_s - known.at_s < STALE_S else None
