"""Additive Holt-Winters with a damped trend, one value at a time. Pure.

Source: R. J. Hyndman, G. Athanasopoulos, "Forecasting: Principles and Practice", 3rd ed., sections 8.2 (damped trend)
and 8.3 (seasonal), https://otexts.com/fpp3/expsmooth.html. Before a whole season was seen there is no seasonal part.
"""

from __future__ import annotations

from msgspec import Struct


class Smoothing(Struct, frozen=True, kw_only=True):
    """How fast level, trend and season follow (0 to 1 each), and what of the trend lasts into the next step."""

    level: float = 0.5
    trend: float = 0.1
    season: float = 0.3
    damping: float = 0.9


class HoltWinters:
    """``season``: values in one season, at least 2; 0: there is none."""

    def __init__(self, season: int, smoothing: Smoothing = Smoothing()) -> None:  # noqa: B008 - frozen
        self._length = season
        self._smoothing = smoothing
        self._level: float | None = None
        self._trend = 0.0
        self._seen: list[float] = []
        """The first season, until it is whole; then what each place in the season adds."""
        self._place = 0
        self._seasonal = False

    @property
    def ready(self) -> bool:
        """Whether anything has been seen."""
        return self._level is not None

    def observe(self, value: float) -> None:
        """The next value of the series."""
        rates = self._smoothing
        last = value if self._level is None else self._level
        expected = last + rates.damping * self._trend
        added = self._seen[self._place] if self._seasonal else 0.0
        self._level = rates.level * (value - added) + (1 - rates.level) * expected
        self._trend = rates.trend * (self._level - last) + (1 - rates.trend) * rates.damping * self._trend
        if self._seasonal:
            self._seen[self._place] = rates.season * (value - expected) + (1 - rates.season) * added
            self._place = (self._place + 1) % self._length
        elif self._length:
            self._seen.append(value)
            if len(self._seen) == self._length:
                self._begin_seasons()

    def _begin_seasons(self) -> None:
        """The first season's deviations from its mean (section 8.6 of the 2nd edition); its trend is not known yet."""
        mean = sum(self._seen) / self._length
        self._seen = [value - mean for value in self._seen]
        self._level, self._trend, self._seasonal = mean, 0.0, True

    def forecast(self, steps: int) -> float:
        """The value so many steps from now, ``steps`` >= 1. Raises ``ValueError`` before anything was seen."""
        if self._level is None:
            raise ValueError("nothing has been observed yet")
        damping = self._smoothing.damping
        lasting = sum(damping**step for step in range(1, steps + 1))
        added = self._seen[(self._place + steps - 1) % self._length] if self._seasonal else 0.0
        return self._level + lasting * self._trend + added
