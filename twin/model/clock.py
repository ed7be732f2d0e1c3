"""Virtual time: how seconds of a scenario follow from seconds of the machine, so that a demo can run sped up.

Pure: it never reads a clock. Whoever owns one passes ``real_s`` in, monotonic seconds of any origin.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import ConfigError

MIN_SPEED = 0.01
MAX_SPEED = 10_000.0


@dataclass(frozen=True, slots=True)
class ScaledClock:
    """``speed`` virtual seconds pass in one real second; virtual 0 is at ``origin_s`` of the real clock.

    Refused with ``ConfigError``: a speed outside ``MIN_SPEED`` to ``MAX_SPEED``.
    """

    origin_s: float
    speed: float = 1.0

    def __post_init__(self) -> None:
        if not MIN_SPEED <= self.speed <= MAX_SPEED:
            raise ConfigError(f"--speed: {self.speed:g} must be between {MIN_SPEED:g} and {MAX_SPEED:g}")

    def virtual(self, real_s: float) -> float:
        """Virtual seconds at ``real_s``."""
        return (real_s - self.origin_s) * self.speed

    def real(self, virtual_s: float) -> float:
        """The moment of the real clock at which ``virtual_s`` is reached."""
        return self.origin_s + virtual_s / self.speed
