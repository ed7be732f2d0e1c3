"""Which nodes a pod leaves to those that are nominated there: kept per class and priority, moved by what changes.

    a node changes, or who is nominated there --> row unknown --asked for--> judged with the nominated ones added

Thousands may be nominated at once, each a node of its own, and every one that waits asks: so a row is judged once per
change of it, many rows in one pass, and never anew for who asks. The verdict is that of ``DryRun`` with the nominated
pods added. Only pods about which their nodes alone decide are judged here; others prepare their rules each time.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from shared.model.constraints import PodClass, gpu_milli_of
from shared.model.pod import Pod
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.filters import LAST
from shared.scheduling.framework import Code, Rejection
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray, IntArray

KEPT = 256
"""Classes and priorities for which verdicts are kept, four bytes per node each."""


@dataclass(eq=False)
class Contested(Mapping[int, Rejection]):
    """Rejections by row that nominated pods cause. ``mask [rows]``: those rows, ``unresolvable [rows]``: those of them
    that no eviction opens; ``reasons`` and ``plugins``: how often each is the reason, over all rows that are known."""

    mask: BoolArray
    unresolvable: BoolArray
    rejections: dict[int, Rejection] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    plugins: Counter[str] = field(default_factory=Counter)

    @classmethod
    def none(cls, rows: int) -> Contested:
        """No row is."""
        return cls(np.zeros(rows, np.bool_), np.zeros(rows, np.bool_))

    def __getitem__(self, row: int) -> Rejection:
        if not self.mask[row]:
            raise KeyError(row)
        return self.rejections[row]

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and bool(self.mask[row])

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.mask).tolist())

    def __len__(self) -> int:
        return int(self.mask.sum())

    def put(self, row: int, rejection: Rejection) -> None:
        """The row is contested."""
        # A row that is judged again must not count under two reasons.
        self.drop(row)
        self.rejections[row] = rejection
        self.mask[row] = True
        self.unresolvable[row] = rejection.code is not Code.UNSCHEDULABLE
        self.reasons.update(rejection.reasons)
        self.plugins[rejection.plugin] += 1

    def drop(self, row: int) -> None:
        """The row is not contested any more, as far as is known; one that was not is fine."""
        known = self.rejections.pop(row, None)
        if known is None:
            return
        self.mask[row] = self.unresolvable[row] = False
        for reason in known.reasons:
            self.reasons[reason] -= 1
            if not self.reasons[reason]:
                del self.reasons[reason]
        self.plugins[known.plugin] -= 1
        if not self.plugins[known.plugin]:
            del self.plugins[known.plugin]

    def within(self, rows: BoolArray) -> Contested:
        """The same of these rows alone, to read at once; what is counted is over all."""
        return replace(self, mask=self.mask & rows)

    def other_on(self, rows: Mapping[int, Rejection | None]) -> Contested:
        """The same, but for some rows, whose verdicts these are."""
        other = Contested(
            self.mask.copy(), self.unresolvable.copy(), dict(self.rejections), self.reasons.copy(), self.plugins.copy()
        )
        for row, rejection in rows.items():
            if rejection is None:
                other.drop(row)
            else:
                other.put(row, rejection)
        return other


@dataclass(slots=True, eq=False)
class _Rows:
    """``held [rows]``: where somebody is nominated to whom a priority yields; as of ``seen``."""

    held: BoolArray
    seen: int = -1
    clock: int = -1


@dataclass(slots=True, eq=False)
class _Verdicts:
    """Of one class and priority: ``known [rows]`` says which rows of ``contested`` are as things stand."""

    known: BoolArray
    contested: Contested
    seen: int = -1
    clock: int = -1


class Yielding:
    """What pods yield to over one state and the verdicts about its table."""

    def __init__(self, state: ClusterState, feasibility: FeasibilityCache) -> None:
        self.state = state
        self._feasibility = feasibility
        self._rows: dict[int, _Rows] = {}
        self._verdicts: OrderedDict[tuple[PodClass, int], _Verdicts] = OrderedDict()

    def held(self, priority: int) -> BoolArray:
        """``[rows]``: where somebody is nominated whose priority is as high, or higher. For reading."""
        state, table = self.state, self.state.table
        known = self._rows.get(priority)
        if known is None:
            if len(self._rows) >= KEPT:
                self._rows.clear()
            known = self._rows[priority] = _Rows(np.zeros(table.rows, np.bool_))
        if len(known.held) < table.rows:
            known.held = _longer(known.held, table.rows)
        if known.seen < state.nominations or known.clock < table.static_stamp:
            names: Iterable[str] = state.renominated_since(known.seen)
            if known.clock < table.static_stamp:  # nodes came or went: rows are others' now
                known.held[:] = False
                names = state.nominated
            for name in names:
                if (row := table.row_of.get(name)) is not None:
                    there = state.nominated.get(name, {}).values()
                    # >=: of equals the nominated one goes first (upstream's addGENominatedPods).
                    known.held[row] = any(other.priority >= priority for other in there)
            known.seen, known.clock = state.nominations, table.clock
        return known.held

    def contested(self, pod: Pod, wanted: BoolArray | None) -> Contested:
        """Where the pod, about which its nodes alone decide, is refused for those nominated there. ``wanted [rows]``:
        the rows that are asked about; None: all."""
        table = self.state.table
        held, verdicts = self.held(pod.priority), self._followed(pod)
        asked = held & ~verdicts.known if wanted is None else held & ~verdicts.known & wanted
        rows = np.flatnonzero(asked)
        if len(rows):
            self._judge(pod, rows, verdicts.contested, all_others=True)
            verdicts.known[rows] = True
        found = verdicts.contested
        if pod.nominated_node or pod.group:
            own = self._own_rows(pod, wanted)
            if own:
                found = found.other_on(own)
        return found if wanted is None else found.within(wanted[: table.rows])

    def yields(self, pod: Pod, wanted: BoolArray | None = None) -> bool:
        """Whether somebody is nominated to whom the pod yields. ``wanted [rows]``: on one of these nodes."""
        held = self.held(pod.priority)
        if wanted is not None:
            held = held & wanted[: len(held)]
        if not (pod.nominated_node or pod.group):
            return bool(held.any())
        names = self.state.table.names
        return any(self.state.nominated_on(names[row], pod) for row in np.flatnonzero(held).tolist())

    # --- inside -------------------------------------------------------------------------------------------------

    def _followed(self, pod: Pod) -> _Verdicts:
        """What is kept for pods like this, without what may have changed."""
        state, table = self.state, self.state.table
        key = pod.pod_class, pod.priority
        known = self._verdicts.get(key)
        if known is None:
            known = self._verdicts[key] = _Verdicts(np.zeros(table.rows, np.bool_), Contested.none(table.rows))
            known.seen, known.clock = state.nominations, table.clock
            if len(self._verdicts) > KEPT:
                self._verdicts.popitem(last=False)
            return known
        self._verdicts.move_to_end(key)
        if len(known.known) < table.rows:
            known.known = _longer(known.known, table.rows)
            contested = known.contested
            contested.mask = _longer(contested.mask, table.rows)
            contested.unresolvable = _longer(contested.unresolvable, table.rows)
        changed = table.changed_since(known.clock) if known.clock < table.clock else ()
        if len(changed):
            known.known[changed] = False
            for row in changed[known.contested.mask[changed]].tolist():
                known.contested.drop(row)
            known.clock = table.clock
        if known.seen < state.nominations:
            for name in state.renominated_since(known.seen):
                if (row := table.row_of.get(name)) is not None:
                    known.known[row] = False
                    known.contested.drop(row)
            known.seen = state.nominations
        return known

    def _own_rows(self, pod: Pod, wanted: BoolArray | None) -> dict[int, Rejection | None]:
        """Rows, of those that are asked about, that are judged otherwise for this pod than for others like it: it does
        not yield to itself, nor to fellow members of its group."""
        state = self.state
        nodes = {pod.nominated_node} if pod.nominated_node else set[str]()
        if pod.group:
            nodes |= state.nominated_members.get(pod.group, {}).keys()
        known = (state.table.row_of.get(name) for name in nodes)
        rows = [row for row in known if row is not None and (wanted is None or wanted[row])]
        if not rows:
            return {}
        found: dict[int, Rejection | None] = dict.fromkeys(rows)
        alone = Contested.none(state.table.rows)
        kept = [row for row in rows if state.nominated_on(state.table.names[row], pod)]
        if kept:
            self._judge(pod, np.array(sorted(kept)), alone, all_others=False)
        found.update(alone.rejections)
        return found

    def _judge(self, pod: Pod, rows: IntArray, contested: Contested, *, all_others: bool) -> None:
        """Note which of the rows, ascending, refuse the pod with the nominated ones added. ``all_others``: as for one
        that is nominated nowhere and of no group."""
        state, feasibility, pod_class = self.state, self._feasibility, pod.pod_class
        names, none = state.table.names, np.zeros(len(rows), np.int64)
        beside = state.table.with_copies(rows, none, pod_class)
        for at, row in enumerate(rows.tolist()):
            there = state.nominated.get(names[row], {}).values() if all_others else state.nominated_on(names[row], pod)
            for other in there:
                # A more important pod does not wait for room that was made for a lesser one.
                if other.priority < pod.priority:
                    continue
                devices = beside.pick_devices(at, gpu_milli_of(other.pod_class))
                beside.add_usage(at, other.pod_class, devices)
        left = np.arange(len(rows))
        # the order in which a dry run asks: what no accounting changes first, kube-scheduler's last of all at the end
        for rule in sorted(feasibility.filters, key=lambda rule: (rule.name == LAST, not rule.static)):
            if not rule.applies(beside, pod_class):
                continue
            passing = rule.mask(beside, pod_class, left)
            for at in left[~passing].tolist():
                contested.put(int(rows[at]), Rejection(rule.name, *rule.reasons(beside, pod_class, at)))
            left = left[passing]


def yielding(state: ClusterState, feasibility: FeasibilityCache) -> Yielding:
    """What is kept beside the verdicts about the state's table."""
    known = feasibility.yielding
    if not isinstance(known, Yielding) or known.state is not state:
        known = feasibility.yielding = Yielding(state, feasibility)
    return known


def _longer(mask: BoolArray, rows: int) -> BoolArray:
    return np.concatenate((mask, np.zeros(rows - len(mask), np.bool_)))
