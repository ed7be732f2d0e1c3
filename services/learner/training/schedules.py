"""Schedules of a training run: a number as a function of the step, nothing else.

No state and no clock, so a resumed run continues the same curve from its step alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import ConfigError


@dataclass(frozen=True, slots=True)
class LinearSchedule:
    """``begin`` up to ``begin_step``, then a straight line to ``end`` at ``end_step``, then ``end``.

    Raises ``ConfigError`` when ``end_step`` is not after ``begin_step``.
    """

    begin: float
    end: float
    begin_step: int
    end_step: int

    def __post_init__(self) -> None:
        if self.end_step <= self.begin_step:
            raise ConfigError(
                f"schedule.end_step: {self.end_step} is not after begin_step {self.begin_step}; make it greater"
            )

    def __call__(self, step: int) -> float:
        """The value at ``step``."""
        done = (step - self.begin_step) / (self.end_step - self.begin_step)
        return self.begin + (self.end - self.begin) * min(1.0, max(0.0, done))
