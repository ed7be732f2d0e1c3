"""Whom to evict on a node where offline pods hold more than is lent there, so that the least work is lost. Pure.

    short --members that gangs can spare--> --lone pods--> --gangs, broken whole--> enough is freed, or nobody is left

Before all of them those that bear the mark: somebody was about to evict them for this, and may have done so. A gang
of which too few would stay without its marked members was about to break, and goes on breaking.
Of each kind the lowest priority first, then who loses the least work for what of the need it frees: seconds since it
saved, and what beginning anew costs, times its share of the cluster. What turns out not to be needed stays, the most
costly first. A gang that would fall below its minimum goes whole, on whatever nodes it stands. Nobody goes whose
disruption budget forbids it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shared.model.pod import Pod
from shared.scheduling.preemption.budgets import covers
from shared.scheduling.preemption.loss import lost_s, share
from shared.scheduling.state.cluster_state import ClusterState

SPARED, LONE, BROKEN = 0, 1, 2
"""Kinds of victims: a member above its gang's minimum, a pod of no gang, a gang that goes whole."""

NEVER = float("inf")

BUDGET = "its disruption budget allows no eviction now"


@dataclass(frozen=True, slots=True)
class GivingWayState:
    """``now``: seconds since 1970. ``totals``: what all nodes have, by resource. ``keeps``: of a group's key, so many
    members stay or none does. ``stays``: why a pod may not go, "" where it may. ``leaving``: whether it goes already.
    """

    now: float
    totals: Mapping[str, int]
    keeps: Callable[[str], int]
    stays: Callable[[Pod], str]
    leaving: Callable[[Pod], bool]


@dataclass(frozen=True, slots=True)
class VictimChoice:
    """``victims``, and ``stays``: why others, by uid, may not go that would have helped. ``lacking``: what is short
    still once the victims have left; ``broken``: keys of gangs that go whole."""

    victims: tuple[Pod, ...] = ()
    stays: Mapping[str, str] = field(default_factory=dict)
    lacking: Mapping[str, int] = field(default_factory=dict)
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Unit:
    """What goes together. ``here``: those of it that stand on the node and hold something that is short there.
    ``marked``: somebody has begun to evict it."""

    pods: tuple[Pod, ...]
    here: tuple[Pod, ...]
    kind: int
    priority: int
    loss: float
    marked: bool
    group: str = ""


def gives_way(pod: Pod) -> bool:
    """Whether the pod bears the mark of one that is to leave since less is lent."""
    return pod.offline is not None and pod.offline.gives_way


def choose(cluster: ClusterState, node: str, short: Mapping[str, int], moment: GivingWayState) -> VictimChoice:
    """Who is to leave the node, on which ``short`` of each resource is lent too little, those that leave already left
    out. Nothing is changed."""
    return _Search(cluster, node, short, moment).choice()


class _Search:
    def __init__(self, cluster: ClusterState, node: str, short: Mapping[str, int], moment: GivingWayState) -> None:
        self._cluster = cluster
        self._short = short
        self._moment = moment
        self._stays: dict[str, str] = {}
        self._here = [
            pod for pod in cluster.index.pods_on(node)
            if pod.offline is not None and not moment.leaving(pod) and any(_amounts(pod, short).values())
        ]  # fmt: skip
        self._spare = {key: self._spare_of(key) for key in sorted({pod.group for pod in self._here if pod.group})}
        self._budgets = _Budgets(cluster, {pod.namespace for pod in self._here})

    def choice(self) -> VictimChoice:
        left, taken = dict(self._short), list[_Unit]()
        gone = dict[str, Pod]()
        ranks: dict[tuple[bool, int, int], list[_Unit]] = {}
        for unit in self._units():
            ranks.setdefault((not unit.marked, unit.kind, unit.priority), []).append(unit)
        for rank in sorted(ranks):
            for unit in self._in_turn(ranks[rank], left, gone):
                if not self._may_go(unit, gone):
                    continue
                if unit.kind == SPARED:
                    self._spare[unit.group] -= 1
                for pod in unit.here:
                    if pod.uid not in gone:
                        for name, amount in _amounts(pod, left).items():
                            left[name] -= amount
                gone.update((pod.uid, pod) for pod in unit.pods)
                taken.append(unit)
        kept = self._put_back(taken, left)
        victims = {pod.uid: pod for unit in kept for pod in unit.pods}
        lacking = {name: amount for name, amount in left.items() if amount > 0}
        return VictimChoice(
            tuple(victims.values()), self._stays, lacking, tuple(one.group for one in kept if one.kind == BROKEN)
        )

    # --- what there is ------------------------------------------------------------------------------------------

    def _spare_of(self, key: str) -> int:
        """How many members the group can spare, wherever they stand; of one without a minimum all."""
        keeps = self._moment.keeps(key)
        return len(self._standing(key)) - keeps if keeps > 1 else len(self._standing(key))

    def _standing(self, key: str) -> list[Pod]:
        index, leaving = self._cluster.index, self._moment.leaving
        found = (index.get(uid) for uid in sorted(self._cluster.members.get(key, ())))
        return [pod for pod in found if pod is not None and not leaving(pod)]

    def _units(self) -> Iterable[_Unit]:
        gangs = dict[str, None]()
        for pod in self._here:
            gang = bool(pod.group) and self._moment.keeps(pod.group) > 1
            if gang:
                gangs[pod.group] = None
            if not gang or self._spare[pod.group] > 0:
                kind = SPARED if gang else LONE
                group = pod.group if gang else ""
                yield _Unit((pod,), (pod,), kind, pod.priority, self._loss((pod,)), gives_way(pod), group)
        for key in gangs:
            pods = tuple(self._standing(key))
            here = tuple(pod for pod in self._here if pod.group == key)
            yield _Unit(
                pods, here, BROKEN, max(pod.priority for pod in pods), self._loss(pods), self._breaks(key, pods), key
            )

    def _breaks(self, key: str, standing: Sequence[Pod]) -> bool:
        """Whether somebody has begun to break the gang: without its marked members, of which some may leave already,
        too few would stay. A mark alone does not say it: it may be that of a member which the gang could spare."""
        found = (self._cluster.index.get(uid) for uid in self._cluster.members.get(key, ()))
        keeps = sum(not gives_way(pod) for pod in standing)
        return keeps < self._moment.keeps(key) and any(pod is not None and gives_way(pod) for pod in found)

    def _loss(self, pods: Iterable[Pod]) -> float:
        moment = self._moment
        return sum(lost_s(pod, moment.now) * share(pod, moment.totals) for pod in pods)

    # --- who goes -----------------------------------------------------------------------------------------------

    def _in_turn(self, units: Sequence[_Unit], left: Mapping[str, int], gone: Mapping[str, Pod]) -> Iterator[_Unit]:
        """Who frees something of what is short still, the one first that loses least for that. What others free the
        less of it is short: so nobody's turn comes sooner than it was reckoned before, and one heap will do."""
        heap = [(self._price(unit, left, gone), number) for number, unit in enumerate(units)]
        heapq.heapify(heap)
        while heap and any(amount > 0 for amount in left.values()):
            price, number = heap[0]
            now = self._price(units[number], left, gone)
            if now > price:
                heapq.heapreplace(heap, (now, number))
                continue
            heapq.heappop(heap)
            if now[0] < NEVER and not (units[number].kind == SPARED and self._spare[units[number].group] <= 0):
                yield units[number]

    def _price(self, unit: _Unit, left: Mapping[str, int], gone: Mapping[str, Pod]) -> tuple[float, float, str]:
        gain = self._gain(unit, left, gone)
        return unit.loss / gain if gain > 0 else NEVER, -gain, unit.pods[0].uid

    def _gain(self, unit: _Unit, left: Mapping[str, int], gone: Mapping[str, Pod]) -> float:
        """Parts of the need, one for each resource at most."""
        total = 0.0
        for name, need in left.items():
            if need > 0:
                freed = sum(_amounts(pod, (name,))[name] for pod in unit.here if pod.uid not in gone)
                total += min(freed, need) / self._short[name]
        return total

    def _may_go(self, unit: _Unit, gone: Mapping[str, Pod]) -> bool:
        pods = [pod for pod in unit.pods if pod.uid not in gone]
        why = ""
        for pod in pods:
            if why := self._moment.stays(pod):
                break
        if not why and not self._budgets.take(pods):
            why = BUDGET
        for pod in unit.here if why else ():
            self._stays[pod.uid] = why
        return not why

    def _put_back(self, taken: Sequence[_Unit], left: dict[str, int]) -> list[_Unit]:
        """Those without whom enough is freed too stay, the most costly first; ``left`` follows."""
        kept, held = dict.fromkeys(taken), Counter(pod.uid for unit in taken for pod in unit.pods)
        for unit in sorted(taken, key=lambda one: (one.marked, -one.kind, -one.priority, -one.loss, one.pods[0].uid)):
            back = dict.fromkeys(left, 0)
            for pod in unit.here:
                if held[pod.uid] == 1:
                    for name, amount in _amounts(pod, left).items():
                        back[name] += amount
            if all(max(0, left[name] + back[name]) <= max(0, left[name]) for name in left):
                del kept[unit]
                held.subtract(pod.uid for pod in unit.pods)
                for name, amount in back.items():
                    left[name] += amount
        return list(kept)


class _Budgets:
    """What disruption budgets allow still, used up by those that are to go."""

    def __init__(self, cluster: ClusterState, namespaces: set[str]) -> None:
        self._release = cluster.release
        self._of = [budget for budget in cluster.budgets if budget.namespace in namespaces]
        self._names: list[set[str]] = [
            {*budget.disrupted, *cluster.promised.get((budget.namespace, budget.name), ())} for budget in self._of
        ]
        self._left = [
            budget.allowed - len(names) + len(budget.disrupted)
            for budget, names in zip(self._of, self._names, strict=True)
        ]

    def take(self, pods: Iterable[Pod]) -> bool:
        """Whether all of them may go; if so they are counted."""
        taken: list[tuple[int, str]] = []
        for pod in pods if self._of else ():
            for at, budget in enumerate(self._of):
                if covers(budget, pod, self._release) and pod.name not in self._names[at]:
                    self._left[at] -= 1
                    self._names[at].add(pod.name)
                    taken.append((at, pod.name))
        if all(self._left[at] >= 0 for at, _ in taken):
            return True
        for at, name in taken:
            self._left[at] += 1
            self._names[at].discard(name)
        return False


def _amounts(pod: Pod, names: Iterable[str]) -> dict[str, int]:
    requests = dict(pod.pod_class.requests)
    return {name: requests.get(name, 0) for name in names}
