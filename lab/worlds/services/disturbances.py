"""What goes wrong in an episode, as events with a time: surges, dearer requests, failing pods, neighbours on a node.

An event is data; ``world.ServiceWorld`` plays it. Which events a scenario has, and how strong they are, is drawn in
``scenarios.py``.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf, isfinite

import msgspec

from shared.errors import ConfigError


class DisturbanceKind(StrEnum):
    """What an event does while it lasts."""

    SURGE = "surge"
    """Requests that nobody wants come beside the genuine ones: ``amount`` times these, to ``target`` (an entry)."""
    DEARER = "dearer"
    """Each call to ``target`` costs ``1 + amount`` times the work."""
    FAILURES = "failures"
    """At its start each replica of ``target`` (every service where empty) fails with probability ``amount``: half of
    them crash, half hang: Ready and answering nothing until a readiness probe notices, then not Ready until they are
    restarted at ``until_s``."""
    PRESSURE = "pressure"
    """Neighbours of a higher priority ask for ``amount`` of the cpu of node ``target``, and evict whoever is in their
    way."""


class Disturbance(msgspec.Struct, frozen=True):
    """One disturbance, from ``since_s`` until before ``until_s``."""

    kind: DisturbanceKind
    since_s: float
    until_s: float
    amount: float
    target: str = ""

    def at(self, now_s: float) -> bool:
        """Whether it lasts at that moment."""
        return self.since_s <= now_s < self.until_s


def check_events(events: tuple[Disturbance, ...]) -> None:
    """Raises ``ConfigError`` for an event that ends before it begins, or whose strength is no number."""
    for number, event in enumerate(events):
        if not (0 <= event.since_s < event.until_s <= inf):
            raise ConfigError(f"events[{number}]: until_s {event.until_s} is not after since_s {event.since_s}")
        if not isfinite(event.amount) or event.amount < 0:
            raise ConfigError(f"events[{number}].amount: {event.amount} is out of range; give 0 or more")
