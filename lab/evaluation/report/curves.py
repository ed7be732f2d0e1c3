"""Learning curves of a training run, as a trainer leaves them: JSON lines of ``{"step": 500, "loss": 0.2, ...}``.

Each key beside ``step`` is one curve; a line may name only some. Steps ascend: a run that was resumed after an
interruption may repeat steps, and then the later line counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from shared.errors import ConfigError

STEP = "step"
REMEDY = 'give the curves.jsonl of a training run, lines such as {"step": 500, "loss": 0.2}'


@dataclass(frozen=True)
class Curves:
    """``points[name]``: (step, value) with ascending steps. ``title`` says whose they are."""

    title: str
    points: Mapping[str, tuple[tuple[float, float], ...]]


def parse_curves(lines: Iterable[str], title: str) -> Curves:
    """The curves of a file called ``title``. Raises ``ConfigError`` with the number of a line it cannot use."""
    found: dict[str, dict[float, float]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            raise ConfigError(f"{title}, line {number}: no JSON; {REMEDY}") from None
        if not isinstance(entry, dict) or not _is_number(entry.get(STEP)):
            raise ConfigError(f"{title}, line {number}: no number under 'step'; {REMEDY}")
        for name, value in entry.items():
            if name != STEP and _is_number(value) and isfinite(value):
                found.setdefault(name, {})[float(entry[STEP])] = float(value)
    if not found:
        raise ConfigError(f"{title}: holds no curve; {REMEDY}")
    return Curves(title, {name: tuple(sorted(points.items())) for name, points in found.items()})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
