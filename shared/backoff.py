"""The pause before something that failed is tried again: one formula for every watch, lease, queue and writer."""

from __future__ import annotations

MOST_DOUBLINGS = 32


def backoff_s(failures: int, *, first_s: float, most_s: float, drawn: float = 0.5) -> float:
    """Seconds to wait after so many failures in a row: ``first_s``, doubled by each further one, at most ``most_s``.

    ``drawn``: a uniform number from 0 to 1, which spreads processes that failed together from half of it to half as
    much again.
    """
    return min(most_s, first_s * 2.0 ** min(max(failures - 1, 0), MOST_DOUBLINGS)) * (0.5 + drawn)
