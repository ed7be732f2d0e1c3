"""Values that change over the day and are measured elsewhere: a price, the grid's carbon, a temperature. Pure.

    somebody asks for them --take(name, value, now)--> the last good one --values(now)--> name: value, while it is young

A value that is not finite is not taken: the last good one stays, until it is older than ``most_age_s``; then there is
none, which whoever reads it must be able to go on without.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared.policy.rewards.expression import FUNCTIONS, RewardInvalid

NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
MOST_SIGNALS = 16
MOST_AGE_S = 3600.0


@dataclass(frozen=True, slots=True)
class RewardSignal:
    """``query``: in Prometheus' language, worth one number."""

    name: str
    query: str


def parse_signals(given: Sequence[str], taken: Sequence[str]) -> tuple[RewardSignal, ...]:
    """Signals given as NAME=QUERY; ``taken``: names of features. Raises ``RewardInvalid`` naming what is wrong."""
    found: dict[str, RewardSignal] = {}
    for text in given:
        name, separator, query = (part.strip() for part in text.partition("="))
        if not separator or not query or NAME.fullmatch(name) is None:
            raise RewardInvalid(f"signal: {text[:64]!r} is no NAME=QUERY; write price=avg(energy_price)")
        if name in found or name in taken or name in FUNCTIONS:
            raise RewardInvalid(f"signal {name}: the name is taken; choose another")
        found[name] = RewardSignal(name, query)
    if len(found) > MOST_SIGNALS:
        raise RewardInvalid(f"signal: {len(found)} are more than {MOST_SIGNALS}; leave some out")
    return tuple(found.values())


class RewardSignals:
    """The last good values by name, and how old they are. ``missed``: readings that could not be used."""

    def __init__(self, names: Sequence[str] = (), *, most_age_s: float = MOST_AGE_S) -> None:
        self.names = tuple(names)
        self.missed = 0
        self._most_age_s = most_age_s
        self._known: dict[str, tuple[float, float]] = {}

    def take(self, name: str, value: float | None, now_s: float) -> bool:
        """A reading of ``now_s``; None or not finite: it is missing, and the last good one stays. Whether it was
        taken."""
        if value is None or not math.isfinite(value):
            self.missed += 1
            return False
        self._known[name] = (value, now_s)
        return True

    def values(self, now_s: float) -> dict[str, float]:
        """Of those that are young enough."""
        return {name: value for name, (value, at_s) in self._known.items() if now_s - at_s <= self._most_age_s}

    def ages(self, now_s: float) -> Mapping[str, float | None]:
        """Seconds since the last good reading of each; None: there was none."""
        return {name: now_s - self._known[name][1] if name in self._known else None for name in self.names}
