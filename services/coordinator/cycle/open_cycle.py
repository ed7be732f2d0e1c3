"""The cycle whose offers are out."""

from __future__ import annotations

from dataclasses import dataclass

from services.coordinator.cycle.classes import Group
from services.coordinator.cycle.taking import Together
from shared.model.unit import Unit


@dataclass(slots=True)
class OpenCycle:
    """``waiting``: agents that were asked and have not answered; ``missing``: how many own nodes and were not asked, or
    gave no answer of use; ``order``: the units in queue order, ``together`` of them pod groups."""

    groups: dict[int, Group]
    class_of: dict[int, int]
    order: list[Unit | Together]
    together: int
    waiting: set[str]
    missing: int
    started_at: float
    deadline: float
    first_offer: int
    policy: str
    """The active one as it was offered."""
