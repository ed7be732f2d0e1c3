"""Counters of one term."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RebalancerStats:
    """``rounds``: looks at the cluster; ``moves_*``: of plans carried out; ``swept``: reservations of dead leaders that
    were given back; ``rollouts_back``: goals that were given up; ``unread``: rounds whose cluster was not read."""

    rounds: int = 0
    moves_planned: int = 0
    moves_made: int = 0
    moves_failed: int = 0
    swept: int = 0
    rollouts_back: int = 0
    unread: int = 0
