"""A reason of a recommendation: what was found beside what was wanted."""

from __future__ import annotations

from msgspec import Struct


class Check(Struct, frozen=True):
    """One reason. ``found`` None: it could not be told, which is no go."""

    name: str
    wanted: float
    found: float | None
    met: bool
    meaning: str


def at_least(name: str, wanted: float, found: float | None, meaning: str) -> Check:
    """Met when ``found`` is known and not below ``wanted``."""
    return Check(name, wanted, found, found is not None and found >= wanted, meaning)


def at_most(name: str, wanted: float, found: float | None, meaning: str) -> Check:
    """Met when ``found`` is known and not above ``wanted``."""
    return Check(name, wanted, found, found is not None and found <= wanted, meaning)
