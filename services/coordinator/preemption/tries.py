"""How often room was made for a unit in vain: in a row, and until when nobody is asked to leave for it.

    victims asked --not placed--> asked again --... ``MOST`` times--> a pause, twice as long each time --> asked again
        placed or gone: forgotten

Why: whoever takes what victims leave, another scheduler or whatever else we do not know of, would do so again; each
search finds the next victim, and its end is the next. What is lost to that must not grow with time.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.coordinator.core.state import CoordinatorState

MOST = 3
"""Times in a row: one may be bad luck, and so may two."""

PAUSE_S, LONGEST_S = 300.0, 14_400.0
"""Seconds for which nobody is asked then; doubles."""


@dataclass(slots=True)
class _Tried:
    """``count``: times in a row since the last pause; ``pauses``: how many there were, ``until``: the newest's end."""

    count: int = 0
    pauses: int = 0
    until: float = 0.0


class Tries:
    """One term's, by a lone pod's uid, or a pod group's key: of those that wait still."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self.of: dict[str, _Tried] = {}

    def begun(self, unit: str) -> None:
        """Somebody leaves for it."""
        tried = self.of.setdefault(unit, _Tried())
        tried.count += 1
        if tried.count >= MOST:
            pause_s = min(PAUSE_S * 2.0**tried.pauses, LONGEST_S)
            tried.count, tried.pauses, tried.until = 0, tried.pauses + 1, self._state.now + pause_s

    def refusal(self, unit: str) -> str:
        """Why nobody is asked to leave for it now; "" where some may be."""
        tried = self.of.get(unit)
        if tried is None or tried.until <= self._state.now:
            return ""
        return (
            f"room was made {MOST} times in a row, and other pods took it or nobody left; nobody else is evicted for "
            "some minutes."
        )

    def forget(self, unit: str) -> None:
        """It is placed or gone; an unknown one is fine."""
        self.of.pop(unit, None)
