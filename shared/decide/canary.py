"""Who is in a canary: the same subjects whoever leads, and more of them as the share grows (R4). Pure.

A subject is what a domain decides about one by one: a pod or pod group, a training job.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterable

WINDOW_S = 3600.0
"""A share of time is of each hour, at its beginning."""


def in_canary(subject: str, candidate: str, percent: int) -> bool:
    """Whether the candidate decides for this subject. ``candidate``: the digest of its weights, or its title: another
    candidate is tried on others. The hash may not change: agents and leaders of two releases would disagree."""
    # < and the same numbers at any share: who is in at 1 % is in at 10 % (R4), and nobody is in at 0.
    return zlib.crc32(f"{candidate}:{subject}".encode()) % 10_000 < percent * 100


def first_of(subjects: Iterable[str], salt: str, percent: int) -> frozenset[str]:
    """So many of a few subjects, rounded up, as by a hash of each none of three may be in 10 %. The hash stays: such a
    share is a setting that stands for months, and those that were acted upon must not change by an upgrade."""
    ranked = sorted(subjects, key=lambda one: hashlib.sha256(f"{salt}/{one}".encode()).digest())
    return frozenset(ranked[: math.ceil(len(ranked) * percent / 100)])


def in_window(wall_s: float, percent: int) -> bool:
    """Whether a canary's share of time is now. ``wall_s``: seconds since 1970."""
    return (wall_s % WINDOW_S) < WINDOW_S * percent / 100
