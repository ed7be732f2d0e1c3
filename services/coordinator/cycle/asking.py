"""What each agent is asked in a cycle: its groups of units, in which order, and what it counts of them meanwhile.

Units of one cycle compete for the same few best nodes. So an agent judges its groups one after the other, each with
what those before it are expected to get counted (``UnitGroup.counted``): all units of a class that is asked of one
agent alone; of one that is asked of several, each agent's even part, dealt in turn. Where it comes otherwise, the node
that a unit gets is judged anew (``assign.py``).

    compared classes (nothing counted: both policies are asked about the nodes as they are)  then the others

Nothing is counted for members of pod groups: where they go was found before (``GroupOutlook.nodes``), and a node that
is counted to the wrong one of them would be missing for the right one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from services.coordinator.agents.views import AgentView
from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.candidates import scored_here
from services.coordinator.cycle.classes import OfferedClass
from shared.scheduling.cycle.scoring import norms_of
from shared.scheduling.state.slot_sets import guidance_of
from shared.wire.messages import MAX_EXTRA, UnitGroup

DISTINCT_SHARE, DISTINCT_SLACK, MOST_DISTINCT = 2, 16, 1024
"""How many different nodes each agent is asked for of a guided class: so many times the units, and some more, since the
best nodes may all lie in one domain that is full after the first unit."""

MOST_AHEAD = 256
"""Units of a guided class for which an agent looks ahead at most, and never for more than it would be asked of a plain
one (``OfferedClass.asked``); the others are dealt by what it said of those."""


class _Asked(NamedTuple):
    """A class as it is asked about. ``before``: units that are dealt in turn before its own; -1: none of it is."""

    offered: OfferedClass
    units: list[int]
    before: int


class Asking:
    """Makes one cycle's questions. ``agents``: how many own nodes; the ``idle`` are asked; ``compared``: classes by
    which policies are compared; ``together``: there are members of pod groups; ``policies``: the one that decides and
    the candidate, by their names."""

    def __init__(
        self, state: CoordinatorState, classes: dict[int, OfferedClass], agents: int, idle: Sequence[AgentView],
        compared: Collection[int], *, together: bool, policies: tuple[str, str],
    ) -> None:  # fmt: skip
        self._state = state
        self._idle = idle
        self._policies = policies
        self._asked: list[_Asked] = []
        self.extra = state.settings.extra_candidates
        """Next-best nodes that an agent names beside one per unit: the more, the more classes compete for them."""
        placed = [offered for offered in classes.values() if not offered.shadow]
        rivals = sum(not offered.sole and offered.guidance is None for offered in placed)
        if len(idle) > 1 and rivals > 1:
            self.extra = min(MAX_EXTRA, self.extra + rivals // len(idle))
        before = 0
        for class_id in dict.fromkeys((*compared, *classes)):
            offered = classes[class_id]
            units = len(offered.units)
            offered.asked = units if offered.sole else min(units, offered.known.share * units // agents + 1)
            offered.extra = self.extra
            counts = len(placed) > 1 and not together and class_id not in compared
            numbers = [unit.number for unit in offered.units[: offered.asked]]
            self._asked.append(_Asked(offered, numbers, before if counts else -1))
            before += units if counts and not offered.sole else 0

    def groups(self, place: int) -> list[UnitGroup]:
        """What the idle agent at this place is asked."""
        view, found = self._idle[place], []
        for offered, units, before in self._asked:
            if offered.sole not in ("", view.record.id):
                continue
            counted = 0
            if before >= 0:
                many = len(offered.units)
                counted = many if offered.sole else dealt(many, before, place, len(self._idle))
            group = self._guided(view, offered, counted) if offered.guidance else self._plain(offered, units, counted)
            if group is not None:
                found.append(group)
        return found

    def _plain(self, offered: OfferedClass, units: list[int], counted: int) -> UnitGroup:
        norms = norms_of(self._state.feasibility, offered.pod_class)
        return UnitGroup(offered.known.id, units, norms, None, counted)

    def _guided(self, view: AgentView, offered: OfferedClass, counted: int) -> UnitGroup | None:
        """About units that the agent's own nodes alone do not decide about; None: none of its nodes is right."""
        guidance = offered.guidance
        assert guidance is not None
        wanted = DISTINCT_SHARE * len(offered.units) + DISTINCT_SLACK + self._state.settings.extra_candidates
        told = guidance_of(view.owned_slots(), guidance.mask, guidance.scores, min(MOST_DISTINCT, wanted))
        if told is None:
            return None
        own = self._state.settings.profile.scores
        policy = offered.known.own or self._policies[offered.candidate]
        rescored = scored_here(policy, own)  # then nobody need look ahead
        numbers = [unit.number for unit in offered.units[: 1 if rescored else min(MOST_AHEAD, offered.asked)]]
        return UnitGroup(offered.known.id, numbers, guidance.norms, told, counted)


def dealt(units: int, before: int, place: int, agents: int) -> int:
    """Of so many units that are dealt to agents in turn, ``before`` of others having been: what one agent gets."""
    return (units + agents - 1 - (place - before) % agents) // agents
