"""What the jobs core counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class JobsStats:
    """Counters of the term."""

    decisions: int = 0
    policy_failures: int = 0
    rollouts_back: int = 0
    wishes_refused: int = 0
    reports: int = 0
    reports_refused: int = 0
    workers_made: int = 0
    workers_removed: int = 0
    restarts: int = 0
    failures: int = 0
    writes_refused: int = 0
