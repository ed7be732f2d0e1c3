"""The pause before something that failed is tried again: one formula for every watch, lease, queue and writer."""

from __future__ import annotations

from random import Random

MOST_DOUBLINGS = 32


def backoff_s(failures: int, *, first_s: float, most_s: float, rng: Random | None = None) -> float:
    """Seconds to wait after so many failures in a row: ``first_s``, doubled by each further one, at most ``most_s``.

    ``rng`` spreads processes that failed together, uniformly from half of it to half as much again.
    """
    pause_s = min(most_s, first_s * 2.0 ** min(max(failures - 1, 0), MOST_DOUBLINGS))
    return pause_s if rng is None else pause_s * (0.5 + rng.random())
