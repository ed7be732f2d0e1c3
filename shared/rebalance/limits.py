"""How much may be moved: caps in all, per node, namespace, workload and hour, and what a move must be worth."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from shared.rebalance.residents import Resident

NO_CAP = 0
AN_HOUR = 3600.0


class Caps(Struct, frozen=True):
    """0: no cap. ``per_node``: moves away from a node (descheduler's maxNoOfPodsToEvictPerNode); ``per_hour``: with
    those of the history; ``at_once``: moves of one batch; ``workload_part``: of a workload's pods at most this part,
    and at least one, moves in one batch; ``min_gain`` None: the goal's own."""

    moves: int = 100
    per_node: int = NO_CAP
    per_namespace: int = NO_CAP
    per_workload: int = NO_CAP
    per_hour: int = NO_CAP
    at_once: int = 20
    workload_part: float = 0.25
    min_gain: float | None = None


def at_most_at_once(copies: int, part: float) -> int:
    """So many of a workload's pods may be away at once."""
    return max(1, int(copies * part))


class CountedMoves:
    """Moves counted against the caps. Each pod counts once, with where it stood at first. ``done``: moves of the last
    hour before this plan."""

    def __init__(self, caps: Caps, done: int = 0) -> None:
        self._caps = caps
        self.most = caps.moves if not caps.per_hour else max(0, min(caps.moves or caps.per_hour, caps.per_hour - done))
        self._capped = bool(caps.moves or caps.per_hour)
        self.uids: set[str] = set()
        self._nodes: Counter[str] = Counter()
        self._namespaces: Counter[str] = Counter()
        self._workloads: Counter[str] = Counter()

    def refusal(self, resident: Resident, source: str, more: int = 1) -> str:
        """Which cap forbids that the pod moves, as one of ``more`` that go together; "": none, or it moves already."""
        caps = self._caps
        if resident.uid in self.uids:
            return ""
        if full := self.full(more):
            return full
        for name, cap, count in (
            ("perNode", caps.per_node, self._nodes[source]),
            ("perNamespace", caps.per_namespace, self._namespaces[resident.pod.namespace]),
            ("perWorkload", caps.per_workload, self._workloads[resident.workload]),
        ):
            if cap and count >= cap:
                return name
        return ""

    def full(self, more: int) -> str:
        """Which cap over all forbids that so many more pods move."""
        if not self._capped or len(self.uids) + more <= self.most:
            return ""
        caps = self._caps
        return "perHour" if caps.per_hour and self.most < (caps.moves or self.most + 1) else "moves"

    def count(self, resident: Resident, source: str, sign: int = 1) -> None:
        """The pod moves, or (-1) does not after all."""
        if (resident.uid in self.uids) is (sign > 0):
            return
        (self.uids.add if sign > 0 else self.uids.discard)(resident.uid)
        self._nodes[source] += sign
        self._namespaces[resident.pod.namespace] += sign
        self._workloads[resident.workload] += sign
