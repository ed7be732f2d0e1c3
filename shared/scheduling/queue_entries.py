"""What the scheduling queue holds: pending pods, and pod groups whose members move as one."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.model.pod import Pod
from shared.scheduling.places import Place


@dataclass(slots=True)
class Entry:
    """One pending pod. ``attempts`` failed ones; ``since``: seconds at which it entered its place; ``group``: the
    members it moves with, if it does not move alone."""

    pod: Pod
    place: Place
    arrival: int
    attempts: int = 0
    since: float = 0.0
    ready_at: float = 0.0
    plugins: frozenset[str] = frozenset()
    first_seen: float = 0.0
    version: int = 0
    able_since: float = 0.0
    """Since when a node may take it, as far as is known: first seen, or woken last. What latencies count from."""
    group: QueuedGroup | None = None
    held_s: float = 0.0
    """For how long it was gated since it was first seen, by its group or a quota: no latency of scheduling."""
    held: bool = False
    """Gated by a queue's quota, not by its group."""


@dataclass(slots=True, eq=False)
class QueuedGroup:
    """Members of one pod group that are in one place and go to the next together: one item of the queue.

    ``priority``: the group's; ``arrival``: that of the member that came first, below 0 where it goes before others;
    ``leads``: the members that stand for it among the parked groups, one of each kind.
    """

    key: str
    priority: int
    place: Place = Place.GATED
    members: dict[str, Entry] = field(default_factory=dict)
    arrival: int = 0
    attempts: int = 0
    ready_at: float = 0.0
    version: int = 0
    since: float = 0.0
    """Since when it is in its place."""
    leads: set[str] = field(default_factory=set)

    def in_order(self) -> list[Entry]:
        """The members as they are tried: higher priority first, then as they came."""
        return sorted(self.members.values(), key=lambda entry: (-entry.pod.priority, entry.arrival))
