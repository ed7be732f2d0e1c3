"""What choices are worth by the goals that policies are compared by, on the coordinator's own accounting. Pure.

    plans --> Arrivals: what pods ask for --window opens--> Room --\
    round's first choices, before anything of it is assumed --------+--> Sample: a value per goal and policy

Every policy is measured by the same goals: the one that decides (the operator's, else the neutral one), and the neutral
one beside it. The demand is fixed for a window, so that its samples are measured alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from services.coordinator.core.state import State
from shared.model.constraints import PodClass
from shared.policy.rollout.outcome import GOALS, NEUTRAL, values
from shared.policy.rollout.room import Arrivals, Room
from shared.wire.messages import Placement


@dataclass(frozen=True, slots=True)
class Worth:
    """The value of each policy's choice by one goal; ``candidate`` None: only the active one was asked."""

    active: float
    candidate: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One decision. ``worth`` by goal, the deciding one always; a goal that tells no node from another is left out."""

    worth: Mapping[str, Worth]
    agreed: bool


class Valuing:
    """Keeps what pods ask for, and measures choices."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._arrivals = Arrivals()
        self._room: Room | None = None

    def placed(self, placements: Iterable[Placement]) -> None:
        """Pods that are being bound: what comes is what came."""
        entries = self._state.queue.entries
        for placement in placements:
            entry = entries.get(placement.uid)
            if entry is not None:
                self._arrivals.placed(entry.pod.pod_class.requests)

    def reopen(self) -> None:
        """A window begins: take over the demand anew."""
        self._room = None

    def sample(self, pod_class: PodClass, goal: str, active: int, candidate: int | None) -> Sample | None:
        """What choosing these rows is worth; None where one is not feasible (any more), or ``goal`` tells nothing."""
        mask = self._state.feasibility.of(pod_class).mask
        chosen = [active] if candidate is None else [active, candidate]
        if not all(mask[row] for row in chosen):
            return None
        rows = np.flatnonzero(mask)
        places = np.searchsorted(rows, chosen).tolist()
        worth: dict[str, Worth] = {}
        for name in dict.fromkeys((goal, NEUTRAL)):
            found = self._values(name, pod_class, rows, places)
            if found is not None:
                worth[name] = Worth(*found)
            elif name == goal:
                return None
        return Sample(worth, active == candidate)

    def _values(
        self, goal: str, pod_class: PodClass, rows: np.ndarray[tuple[int], np.dtype[np.int64]], places: Sequence[int]
    ) -> list[float] | None:
        table = self._state.cache.table
        if self._room is None:
            self._room = Room(table, self._arrivals.typical())
        found = values(GOALS[goal](table, pod_class, rows, self._room))
        return None if found is None else [float(found[place]) for place in places]
