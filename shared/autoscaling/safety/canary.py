"""Which share of the services, or of the time, is acted upon while a policy is on trial. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

WINDOW_S = 3600.0
"""The share of time is of each hour, at its beginning."""


def chosen(names: Iterable[str], percent: int, *, salt: str) -> frozenset[str]:
    """So many of the services, rounded up; the same ones as long as the object is the same. 0: none."""
    ranked = sorted(names, key=lambda name: hashlib.sha256(f"{salt}/{name}".encode()).digest())
    return frozenset(ranked[: math.ceil(len(ranked) * percent / 100)])


def in_window(wall_s: float, percent: int) -> bool:
    """Whether the policy's part of the hour is now. ``wall_s``: seconds since 1970."""
    return (wall_s % WINDOW_S) < WINDOW_S * percent / 100
