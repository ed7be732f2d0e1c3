"""The evidence of a rollout: what choices are worth by the goals that policies are compared by, window by window. Pure.

    plans --> Arrivals: what pods ask for --window opens--> Room --\
    choices of a cycle, before anything of it is assumed (sampling.py) --+--> Sample: a value per goal and policy

Every policy is measured by the same goals, on the coordinator's own accounting: the one that decides (the operator's,
else the neutral one), and the neutral one beside it. The demand is fixed for a window, so that its samples are measured
alike. What the windows mean is judged elsewhere (``policy/rollout/judging.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from msgspec import Struct

from services.coordinator.core.state import CoordinatorState
from services.coordinator.usage.measured import MeasuredNode
from shared.model.constraints import PodClass
from shared.policy.power import NodePower
from shared.policy.rewards.expression import RewardFailed
from shared.policy.rollout.costs import Costs
from shared.policy.rollout.judging import HOT, Kpi, RolloutWindow
from shared.policy.rollout.outcome import NEUTRAL, goal_named, values
from shared.policy.rollout.room import Arrivals, RoomMeasure
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, BoolArray, NodeTable
from shared.scheduling.state.room.counted import Counted
from shared.wire.records import PolicyValue

MOST_TIMES = 4096

_Valued = dict[str, Costs | None]
"""By goal, the value of each open row; None: the goal tells none apart."""

Rows = Sequence[int]
"""Of nodes, one for each pod that is dealt one."""


@dataclass(frozen=True, slots=True)
class ChoiceWorth:
    """The value of each policy's choice by one goal; ``candidate`` None: only the active one was asked."""

    active: float
    candidate: float | None = None


class WindowSample(Struct, frozen=True):
    """One decision. ``worth`` by goal, the deciding one always; a goal that tells no node from another is left out."""

    worth: Mapping[str, ChoiceWorth]
    agreed: bool


class Skipped(StrEnum):
    """Why a cycle that was looked at gave no sample."""

    ONE_NODE = "one-node"
    """Nothing in it had a choice: one node was open to it, or it was to go to a certain one."""
    FULL = "full"
    """The offer had no room for another class."""
    UNHEARD = "unheard"
    """Half of the agents or more did not judge by both policies: they have not loaded the candidate, or were silent."""
    NO_NODE = "no-node"
    """A policy's answers named no node that takes it any more."""
    INDIFFERENT = "indifferent"
    """The goal tells no node from another."""
    UNDEFINED = "undefined"
    """The goal, an expression, has no finite value on some node."""


class Valuing:
    """Keeps what pods ask for, and measures choices."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self.arrivals = Arrivals()
        self._room: RoomMeasure | None = None
        self._used = False
        """Whether a sample of the window that is open rests on it."""

    def reopen(self) -> None:
        """A window begins: take over the demand anew."""
        self._room, self._used = None, False

    def sample(
        self, pod_class: PodClass, allowed: BoolArray | None, goal: str, active: Rows, candidate: Rows | None
    ) -> WindowSample | Skipped:
        """What it is worth to deal these rows to pods of the class, one after the other, among the ``allowed`` nodes
        (None: all); or why ``goal`` does not tell it."""
        goals = dict.fromkeys((goal, NEUTRAL))
        if not self._used:  # a window that stays empty must not rest for ever on the demand that it began with
            self._room = None
        try:
            first: _Valued = {}  # both begin on the same state, which is valued once
            mine = None if candidate is None else self._worth(goals, pod_class, allowed, candidate, first)
            theirs = self._worth(goals, pod_class, allowed, active, first)
        except RewardFailed:
            return Skipped.UNDEFINED
        worth: dict[str, ChoiceWorth] = {}
        for name in goals:
            if name in theirs and (mine is None or name in mine):
                worth[name] = ChoiceWorth(theirs[name], None if mine is None else mine[name])
            elif name == goal:
                return Skipped.INDIFFERENT
        self._used = True
        return WindowSample(worth, candidate is not None and sorted(active) == sorted(candidate))

    def _worth(
        self, goals: Iterable[str], pod_class: PodClass, allowed: BoolArray | None, rows: Rows, first: _Valued
    ) -> dict[str, float]:
        """The mean value of the choices by each goal that tells nodes apart, each on the state with those before it.
        ``first``: values on the state before any, kept for the other policy."""
        table, feasibility = self._state.cache.table, self._state.feasibility
        if self._room is None:
            profile = self._state.settings.profile
            power = NodePower(profile.power, profile.gpu_shares)
            self._room = RoomMeasure(table, self.arrivals.typical(), power, profile.load_parts)
        if len(rows) > 1:
            table = table.fork()
            feasibility = feasibility.fork(table, {pod_class})
        told: dict[str, list[float]] = {}
        with Counted(table) as counted:
            for row in rows:
                mask = feasibility.of(pod_class).mask
                open_rows = np.flatnonzero(mask if allowed is None else mask & allowed)
                place = int(np.searchsorted(open_rows, row))
                known: _Valued = first if not len(counted) else {}
                for name in goals:
                    if name not in known:
                        known[name] = values(goal_named(name)(table, pod_class, open_rows, self._room))
                    if (found := known[name]) is not None:
                        told.setdefault(name, []).append(float(found[place]))
                if len(rows) > 1:
                    counted.add(row, pod_class)
        return {name: sum(each) / len(each) for name, each in told.items()}


class VariantBook:
    """What one policy variant did."""

    def __init__(self) -> None:
        self.groups = self.fallen = self.placements = self.rejected = self.evictions = 0
        self.nodes: set[str] = set()
        """On which it placed pods."""
        self._waited_s = 0.0
        self._times_us: deque[float] = deque(maxlen=MOST_TIMES)

    def judged(self, groups: int, fallen: int, spent_us: int) -> None:
        """One agent's report."""
        self.groups += groups
        self.fallen += fallen
        if groups:
            self._times_us.append(spent_us / groups)

    def placed(self, node: str, waited_s: float, *, rejected: bool) -> None:
        """One pod was handed to the binder for this node."""
        self.placements += 1
        if not rejected:
            self.nodes.add(node)
        self.rejected += rejected
        self._waited_s += waited_s

    def kpi(self, value: float = 0.0) -> Kpi:
        """The figures; ``value``: mean of the window's samples."""
        ordered = sorted(self._times_us)
        p99_us = ordered[-(-99 * len(ordered) // 100) - 1] if ordered else 0.0
        waited_s = self._waited_s / max(1, self.placements)
        return Kpi(
            value, self.groups, self.fallen, self.placements, self.rejected, p99_us / 1000, waited_s, self.evictions
        )


@dataclass(slots=True)
class HarmSeen:
    """What pods bore while the active policy placed: ``before``, its last window with placements enough; ``hot``: share
    of measured nodes that run hot now, ``hot_before``: when no candidate placed anything yet; ``mine_hot``,
    ``theirs_hot``: of those that the candidate, and the active policy, placed pods on in the window."""

    before: Kpi | None = None
    hot: float | None = None
    hot_before: float | None = None
    mine_hot: float | None = None
    theirs_hot: float | None = None

    def look(self, active: Kpi, hot: float | None, *, least: int, places: bool) -> None:
        """At the end of a window. ``places``: a candidate may place pods."""
        if active.placements >= least:
            self.before = active
        self.hot = hot
        if not places:
            self.hot_before = hot


def running_hot(
    used: Mapping[str, MeasuredNode], table: NodeTable, least: int, among: Iterable[str] | None = None
) -> float | None:
    """The share of measured nodes (``among`` these; None: all) that use more than ``HOT`` of their cpu or memory; None:
    too few are measured."""
    hot = known = 0
    for name in used if among is None else among:
        row, node = table.row_of.get(name), used.get(name)
        if row is None or node is None:
            continue
        cpu, memory = node.fresh()[:2]
        parts = [(part.amount, column) for part, column in ((cpu, CPU_COLUMN), (memory, MEMORY_COLUMN)) if part]
        known += bool(parts)
        hot += any(amount > HOT * table.allocatable[column, row] for amount, column in parts)
    return hot / known if known >= least else None


class OpenWindow:
    """What is gathered until it is closed."""

    def __init__(self, opened: float) -> None:
        self.opened = opened
        self.candidate, self.active = VariantBook(), VariantBook()
        self.samples: deque[WindowSample] = deque(maxlen=MOST_TIMES)

    def values(self, goal: str) -> tuple[PolicyValue, ...]:
        """The mean values by each goal, ``goal`` first."""
        names = dict.fromkeys((goal, *(name for sample in self.samples for name in sample.worth)))
        return tuple(self._value(name) for name in names)

    def closed(self, goal: str, harm: HarmSeen) -> RolloutWindow:
        """The window, judged by ``goal``, which every sample has; ``harm``: what was seen of harm before."""
        pairs = [worth for sample in self.samples if (worth := _pair(sample.worth[goal])) is not None]
        count = len(pairs)
        mine, theirs = (sum(pair[side] for pair in pairs) / count for side in (0, 1))
        squares = sum((pair[0] - pair[1] - mine + theirs) ** 2 for pair in pairs)
        return RolloutWindow(
            self.candidate.kpi(mine),
            self.active.kpi(theirs),
            count,
            sum(sample.agreed for sample in self.samples),
            goal,
            (squares / (count - 1) / count) ** 0.5 if count > 1 else 0.0,
            harm.before,
            harm.hot,
            harm.hot_before,
            harm.mine_hot,
            harm.theirs_hot,
        )

    def _value(self, goal: str) -> PolicyValue:
        told = [worth for sample in self.samples if (worth := sample.worth.get(goal)) is not None]
        candidates = [worth.candidate for worth in told if worth.candidate is not None]
        return PolicyValue(
            goal=goal,
            active=sum(worth.active for worth in told) / len(told) if told else None,
            candidate=sum(candidates) / len(candidates) if candidates else None,
        )


def _pair(worth: ChoiceWorth) -> tuple[float, float] | None:
    return None if worth.candidate is None else (worth.candidate, worth.active)
