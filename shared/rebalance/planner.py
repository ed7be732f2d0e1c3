"""From a cluster and a goal to a plan: who moves where, in which batches, and what it wins.

The state that is given is worked on and left as it was. Same cluster, goal and history: same plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shared.errors import ConfigError
from shared.model.pod import Pod
from shared.model.power import PUBLISHED, PowerCurves
from shared.model.units.pod_group import group_title
from shared.rebalance.emptying import Emptying
from shared.rebalance.goals.fragmentation import Fragments
from shared.rebalance.goals.latency import KeptLatency
from shared.rebalance.goals.load import EvenLoad
from shared.rebalance.goals.measure import GoalMeasure
from shared.rebalance.history import MoveHistory
from shared.rebalance.limits import AN_HOUR, Caps, CountedMoves
from shared.rebalance.order import MoveOrdering, OrderedMoves
from shared.rebalance.plan import GoalName, LeftOut, Move, MovePlan
from shared.rebalance.protections import CoveringBudgets, Protections, lasting, protected
from shared.rebalance.residents import Resident, pending_again
from shared.rebalance.search import SingleMoves, Wish
from shared.rebalance.trial import ClusterTrial
from shared.rebalance.unblocking import Unblocking
from shared.rebalance.watts import drawn_power
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray

MOST_SETTLED, MOST_MERGED = 8, 3
"""Searches from what comes of a plan as it is carried out, and after how many what is found changes the plan no more
but is appended: another order gives shares other devices, and that may go round."""


@dataclass(frozen=True, slots=True)
class ClusterSituation:
    """``state``: nodes, pods and whatever rules read; ``residents``: the pods that stand; ``waiting``: those that do
    not; ``used``: by node (milli-cores, bytes) measured; ``notes``: what could not be looked at; ``reserved``: nodes on
    which room is kept for others, which ``state`` knows of."""

    state: ClusterState
    residents: tuple[Resident, ...]
    waiting: tuple[Pod, ...] = ()
    used: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    reserved: frozenset[str] = frozenset()

    @property
    def away(self) -> Counter[str]:
        """By workload the pods of it that stand nowhere yet."""
        return Counter(pod.workload for pod in self.waiting if pod.workload)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """``unit``: of ``unblock``, the key of a pod or group."""

    goal: GoalName
    unit: str = ""
    caps: Caps = field(default_factory=Caps)
    protections: Protections = field(default_factory=Protections)
    history: MoveHistory = field(default_factory=MoveHistory)
    power: PowerCurves = PUBLISHED


@dataclass(slots=True)
class _Searched:
    wishes: list[Wish]
    unit: str
    before: float
    after: float
    stopped: str
    freed: tuple[str, ...] = ()
    unblocked: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def movable_in(there: ClusterSituation, asked: PlanRequest) -> frozenset[str]:
    """Namespaces with pods that the request's protections let move, now or later: moves do not change them."""
    copies = Counter(one.workload for one in there.residents) + Counter(there.away)
    return frozenset(
        one.pod.namespace for one in there.residents if not lasting(one, copies[one.workload], asked.protections)
    )


def _protected(there: ClusterSituation, asked: PlanRequest, standing: Sequence[Resident], now: float) -> dict[str, str]:
    budgets, part = CoveringBudgets(there.state.budgets), asked.caps.workload_part
    return protected(standing, budgets, asked.protections, asked.history, now, part, there.away)


def plan(there: ClusterSituation, asked: PlanRequest, now: float) -> MovePlan:
    """The plan. ``ConfigError``: of ``unblock``, there is no such unit that waits."""
    state, budgets = there.state, CoveringBudgets(there.state.budgets)
    trial = ClusterTrial(state)
    standing = [one for one in there.residents if trial.row(one.uid) >= 0]
    stay = _protected(there, asked, standing, now)
    movable = [one for one in standing if one.uid not in stay]
    counted = CountedMoves(asked.caps, asked.history.within(AN_HOUR, now))
    closed = asked.history.closed(now)
    try:
        found = _searched(there, asked, trial, standing, movable, counted, closed)
        ordered = in_order(trial, budgets, asked.caps, standing, found.wishes, there.away)
        if asked.goal is GoalName.FRAGMENTATION:
            ordered = _settled(there, asked, trial, standing, movable, counted, closed, found, ordered)
    finally:
        trial.undo(0)
    names, moves = trial.table.names, list[Move]()
    for number, batch in enumerate(ordered.batches, start=1):
        for step in batch:
            one, wish = step.wish.resident, step.wish
            disturbs = (*(f"budget {budgets.all[index].name}" for index in budgets.of(one)), one.workload)
            moves.append(
                Move(
                    one.uid,
                    one.pod.namespace,
                    one.pod.name,
                    one.workload,
                    names[wish.source],
                    names[wish.target],
                    wish.gain,
                    number,
                    disturbs,
                    step.after,
                    step.why,
                    wish.group,
                )
            )
    left = tuple(LeftOut(w.resident.pod.key, names[w.source], names[w.target], why) for w, why in ordered.left)
    lost = sum(wish.gain for wish, _ in ordered.left)
    held = Counter(reason.partition(":")[0] for reason in stay.values())
    notes = (*there.notes, *found.notes)
    if left and asked.goal is GoalName.UNBLOCK:
        notes = (*notes, "moves were left out: the unit would not fit, so nobody is moved")
    not_left = {names[wish.source] for wish, _ in ordered.left}
    return MovePlan(
        goal=str(asked.goal), unit=found.unit, before=found.before, after=found.after + lost, moves=tuple(moves),
        left_out=left, stopped=found.stopped, protected=dict(held.most_common()), notes=notes,
        freed=tuple(name for name in found.freed if name not in not_left),
        unblocked=found.unblocked if not left else {},
    )  # fmt: skip


def in_order(
    trial: ClusterTrial, budgets: CoveringBudgets, caps: Caps, standing: Sequence[Resident], wishes: Sequence[Wish],
    away: Mapping[str, int] | None = None,
) -> OrderedMoves:  # fmt: skip
    """The wishes in order. ``away``: by workload pods that stand nowhere yet. Where one is left out, so are those that
    win nothing without it."""
    left = list[tuple[Wish, str]]()
    while True:
        trial.undo(0)
        found = MoveOrdering(trial, budgets, caps, standing, away).run(wishes)
        without = {wish.group: wish.resident.pod.key for wish, _ in found.left if wish.group}
        if not without:
            found.left[:0] = left
            return found
        uids = {wish.resident.uid: why for wish, why in found.left}
        for wish in wishes:
            if wish.group in without:
                other = f"{without[wish.group]} is left out, and without it nothing is won"
                left.append((wish, uids.get(wish.resident.uid, other)))
        wishes = [wish for wish in wishes if wish.group not in without]


def _settled(
    there: ClusterSituation,
    asked: PlanRequest,
    trial: ClusterTrial,
    standing: Sequence[Resident],
    movable: Sequence[Resident],
    counted: CountedMoves,
    closed: Mapping[str, frozenset[str]],
    found: _Searched,
    ordered: OrderedMoves,
) -> OrderedMoves:
    """The search goes on from what comes of the moves as they are carried out, until it finds none there: a share of a
    GPU gets its device as its room is reserved, beside whoever has not left by then, and not as the search assumed."""
    first = {one.uid: trial.row(one.uid) for one in standing}
    for wish in found.wishes:
        first[wish.resident.uid] = wish.source
    budgets = CoveringBudgets(there.state.budgets)
    for number in range(MOST_SETTLED):
        measure, _ = _measure(there, asked.goal, trial, standing)
        found.after, start = measure.value(), trial.mark
        if ordered.left:
            break
        least = measure.least_gain if asked.caps.min_gain is None else asked.caps.min_gain
        appends = number >= MOST_MERGED
        moved = {wish.resident.uid for wish in found.wishes} if appends else set()
        others = [one for one in movable if one.uid not in moved]
        search = SingleMoves(trial, measure, others, counted, closed, least)
        search.run()
        if not search.wishes:
            break
        if appends:
            trial.undo(start)
            found.wishes = [*found.wishes, *search.wishes.values()]
            appended = MoveOrdering(trial, budgets, asked.caps, standing, there.away).run(list(search.wishes.values()))
            ordered.batches.extend(appended.batches)
            ordered.left.extend(appended.left)
            continue
        wishes = {wish.resident.uid: wish for wish in found.wishes}
        for uid, more in search.wishes.items():
            if more.target == first[uid]:
                wishes.pop(uid, None)
                counted.count(more.resident, trial.table.names[more.target], -1)
            else:
                gain = more.gain + (wishes[uid].gain if uid in wishes else 0.0)
                wishes[uid] = Wish(more.resident, first[uid], more.target, gain)
        found.wishes = list(wishes.values())
        ordered = in_order(trial, budgets, asked.caps, standing, found.wishes, there.away)
    else:
        found.after = _measure(there, asked.goal, trial, standing)[0].value()
    return ordered


def _searched(
    there: ClusterSituation,
    asked: PlanRequest,
    trial: ClusterTrial,
    standing: Sequence[Resident],
    movable: Sequence[Resident],
    counted: CountedMoves,
    closed: Mapping[str, frozenset[str]],
) -> _Searched:
    if asked.goal is GoalName.EMPTY_NODES:
        rows = frozenset(trial.table.row_of[name] for name in there.reserved if name in trial.table.row_of)
        return _emptied(asked, trial, standing, movable, counted, closed, rows)
    if asked.goal is GoalName.UNBLOCK:
        return _unblocked(there, asked, trial, movable, counted, closed)
    measure, notes = _measure(there, asked.goal, trial, standing)
    least = measure.least_gain if asked.caps.min_gain is None else asked.caps.min_gain
    before = measure.value()
    search = SingleMoves(trial, measure, movable, counted, closed, least)
    stopped = search.run()
    return _Searched(list(search.wishes.values()), measure.unit, before, measure.value(), stopped, notes=notes)


def _measure(
    there: ClusterSituation, goal: GoalName, trial: ClusterTrial, standing: Sequence[Resident]
) -> tuple[GoalMeasure, tuple[str, ...]]:
    if goal is GoalName.LOAD:
        return EvenLoad(trial, standing, there.used), _unmeasured(there, trial)
    if goal is GoalName.LATENCY:
        targets = sorted({one.pod.pod_class.latency_target for one in standing if one.pod.pod_class.latency_target})
        return KeptLatency(trial, standing), tuple(
            f"not known: latencies to {name}, which a mesh measures and no object says" for name in targets[:3]
        )
    return Fragments(trial, [*(one.pod for one in standing if not one.stationary), *there.waiting]), ()


def _unmeasured(there: ClusterSituation, trial: ClusterTrial) -> tuple[str, ...]:
    if not there.used:
        return ("no use was measured: load is what is requested",)
    missing = [name for name in sorted(trial.table.row_of) if name not in there.used]
    if not missing:
        return ()
    return (f"no use was measured of {len(missing)} nodes ({', '.join(missing[:3])}): there load is what is requested",)


def _emptied(
    asked: PlanRequest,
    trial: ClusterTrial,
    standing: Sequence[Resident],
    movable: Sequence[Resident],
    counted: CountedMoves,
    closed: Mapping[str, frozenset[str]],
    reserved: frozenset[int],
) -> _Searched:
    power = drawn_power(trial.table, asked.power)
    idle = power.of_rows(idle=True)
    emptying = Emptying(
        trial, standing, frozenset(one.uid for one in movable), counted, closed, lambda row: float(idle[row]),
        1.0 if asked.caps.min_gain is None else asked.caps.min_gain, reserved,
    )  # fmt: skip
    before, drawn = emptying.in_use, power.drawn(_used_rows(trial, standing))
    stopped = emptying.run()
    saved = drawn - power.drawn(_used_rows(trial, standing))
    notes = (f"{saved:.0f} W less by the power curves, where unused nodes are turned off",) if emptying.freed else ()
    freed = tuple(trial.table.names[row] for row in emptying.freed)
    return _Searched(
        emptying.wishes, "nodes in use", float(before), float(emptying.in_use), stopped, freed, notes=notes
    )  # fmt: skip


def _used_rows(trial: ClusterTrial, standing: Sequence[Resident]) -> BoolArray:
    used: BoolArray = np.zeros(trial.table.rows, np.bool_)
    used[[trial.row(one.uid) for one in standing if not one.stationary]] = True
    return used


def _unblocked(
    there: ClusterSituation,
    asked: PlanRequest,
    trial: ClusterTrial,
    movable: Sequence[Resident],
    counted: CountedMoves,
    closed: Mapping[str, frozenset[str]],
) -> _Searched:
    groups = sorted({pod.group for pod in there.waiting if asked.unit in (pod.group, group_title(pod.group))})
    if len(groups) > 1:
        raise ConfigError(f"unblock: {asked.unit} is the name of several groups; give one of {', '.join(groups)}")
    key = groups[0] if groups else ""
    members = [pod for pod in there.waiting if (pod.group == key if key else pod.key == asked.unit)]
    if not members:
        raise ConfigError(
            f"unblock: no pod waits that is {asked.unit}, or a member of that group; see 'conclave pending'"
        )
    group = there.state.pod_groups.get(key)
    standing = len(there.state.members.get(key, ()))
    needed = max(1, min(len(members), group.min_count - standing)) if group is not None else len(members)
    unblocking = Unblocking(trial, movable, [pending_again(pod) for pod in members], needed, counted, closed)
    stopped = unblocking.run()
    places = {key: trial.table.names[row] for key, row in unblocking.places.items()}
    return _Searched(
        unblocking.wishes, "members without room", float(needed), float(unblocking.short), stopped, unblocked=places
    )  # fmt: skip
