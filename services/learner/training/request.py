"""What a trainer is asked for: the same for every policy, so that one command line starts them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """One order. A trainer raises ``ConfigError`` naming what it cannot do."""

    policy: str
    out: Path
    """Where weights, card, curves and checkpoints go."""
    seeds: tuple[int, ...] | None = None
    """Training seeds; None: those the shipped weights come from."""
    resume: bool = False
    """Go on from the checkpoints in ``out``."""
    workers: int = 1
    """Processes that may be used."""
    warm_up: str | None = None
    """First imitate this policy, or the decisions recorded in this file."""
    steps: int | None = None
    """How long to train, in the trainer's own steps; None: as the shipped weights."""


Trainer = Callable[[TrainRequest], None]
