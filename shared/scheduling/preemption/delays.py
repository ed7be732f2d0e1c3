"""How long units that find no room wait before anybody is asked to leave for them, by priority, as a setting has it.

    0=60, 1000=10, 1000000=0

PRIORITY=SECONDS: units of that priority and above, up to the next that is named, wait so long; those below the lowest
do not wait. Meanwhile an autoscaler may add the node that spares a victim. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shared.errors import ConfigError

LOWEST, HIGHEST = -(2**31), 2**31 - 1
"""Priorities are int32."""

MOST_S = 86_400.0

_ENTRY = re.compile(r"(-?[0-9]{1,10})=([0-9]{1,5}(?:\.[0-9]{1,3})?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Delays:
    """``steps``: (priority, seconds), ascending; empty: nobody waits."""

    steps: tuple[tuple[int, float], ...] = ()

    def of(self, priority: int) -> float:
        """Seconds for which a unit of the priority waits."""
        return next((seconds for least, seconds in reversed(self.steps) if least <= priority), 0.0)


NO_DELAYS = Delays()


def parse_delays(text: str) -> Delays:
    """What the setting says. Raises ``ConfigError`` that names the entry."""
    found: dict[int, float] = {}
    for entry in filter(None, (one.strip() for one in text.split(","))):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ConfigError(
                f"preemption_delay: {entry[:80]!r} is not PRIORITY=SECONDS; write for instance 0=60,1000=10"
            )
        priority, seconds = int(match[1]), float(match[2])
        if not LOWEST <= priority <= HIGHEST:
            raise ConfigError(
                f"preemption_delay: {entry}: no pod has that priority; give one from {LOWEST} to {HIGHEST}"
            )
        if seconds > MOST_S:
            raise ConfigError(f"preemption_delay: {entry}: more than a day; give at most {MOST_S:g} seconds")
        if priority in found:
            raise ConfigError(f"preemption_delay: {priority} is there twice; drop one of the two")
        found[priority] = seconds
    return Delays(tuple(sorted(found.items())))
