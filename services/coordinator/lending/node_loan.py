"""What one node may lend, judged by what it and its pods were last measured to use. Pure.

    system = what the node uses - what its pods use - what pods that are not measured request
    taken  = max(system, reserved) + what pods that are not offline use   -> Window -> lent (rule.py)

Where no pod of the node is measured (sensors, and no metrics API) the node's use counts as a whole, its offline pods'
included, and beside it the requests of pods that came within the last minute.

Nodes are measured sooner than pods. Beside offline pods a node's use counts as of when its pods were measured, or what
an offline pod that just began uses would be taken for use of online pods and take its own room away; what is used now
beyond all that offline pods may use counts at once. An offline pod that just began, or ended, and is not measured is in
its node's use with anything from nothing to its requests: what was taken before stays as far as both allow.

What cannot be is not believed: what was lent stays, less the requests of pods that came since, until the metrics agree
or are too old.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from msgspec import Struct

from services.coordinator.lending.pod_uses import KnownUse
from services.coordinator.lending.window import LoadWindow, Pair
from services.coordinator.usage.measured import MeasuredNode
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.qos import CPU_NAMES, Qos, is_lent
from shared.model.resources import CPU, MEMORY, amount_text
from shared.scheduling.lending.rule import TRADED, LendingRule, PodUse, lent, taken

SETTLED_S = 60.0
"""A pod that has been on a node for so long is in what the node is measured to use, and one that has been gone for so
long is not: it is an average over as much, from a metrics server."""
GONE_S = 300.0
"""For so long a pod that the metrics name and that is gone still counts."""
YOUNG_S = 120.0
"""An offline pod that is not measured yet may use what it requests for so long."""
HISTORY_S = 180.0
NEAR_S = 2.5
"""What was measured within so long of each other was measured at once."""
HELD_S = 120.0
"""What a node used so long ago is no measurement of now."""
BEYOND = 2.0
"""So many times its capacity no node uses."""
DISAGREE, DISAGREE_SHARE = 1.25, 0.05
"""Pods that use so many times the CPU that their node uses, and so much of its capacity more, are measured wrongly, or
the node is. Of memory that may be so, since a working set counts cache that a node counts as available: what they use
is not taken off the system's part then, which stays what it was."""

Amounts = tuple[int, int]
"""Cpu and memory: milli-cores, bytes."""
UseOf = Callable[[str], KnownUse | None]
"""What a pod uses, by namespace/name; None: nobody says so now."""
_OfPods = Sequence[tuple[Pod, KnownUse | None]]


@dataclass(slots=True)
class NodeLoan:
    """One node's. ``want``: what it may lend; None: not known yet, what is there stays. ``why``: in a line, what it
    follows from; ``doubts``: what of its metrics is not believed."""

    uid: str
    window: LoadWindow
    want: Amounts | None = None
    why: str = ""
    doubts: tuple[str, ...] = ()
    degraded: bool = False
    """Whether it lends nothing for want of metrics."""
    taken: Pair = (0.0, 0.0)
    before: Pair = (0.0, 0.0)
    """What was taken by the last measurement of pods and node together."""
    system_memory: float | None = None
    """What of it was the system's, by the last one in which pods did not use more than their node."""
    since_s: float = math.nan
    """When it was first looked at."""
    good_s: float = math.nan
    """When what was last believed was measured."""
    history: deque[tuple[float, Pair]] = field(default_factory=deque)
    """What the node used, as measured and believed lately."""
    base: Amounts | None = None
    """What it may lend by that."""
    here: dict[str, tuple[float, Qos, Amounts]] = field(default_factory=dict)
    """Since when each pod has been seen here, those of the first look for ever; what it requests of lent resources."""
    gone: dict[str, tuple[float, Qos, Amounts]] = field(default_factory=dict)
    """Since when it is not seen any more."""

    @property
    def held(self) -> Amounts:
        """What pods that are here request of lent resources."""
        return sum(of[0] for _, _, of in self.here.values()), sum(of[1] for _, _, of in self.here.values())


def judge(
    loan: NodeLoan,
    node: Node,
    pods: Sequence[Pod],
    measured: MeasuredNode | None,
    use_of: UseOf,
    rule: LendingRule,
    now_s: float,
) -> None:
    """Look at the node again: ``want``, ``why`` and ``doubts`` follow."""
    allocatable = node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0)
    capacity = node.capacity[0] or allocatable[0], node.capacity[1] or allocatable[1]
    _note(loan, pods, now_s)
    used, at_s, doubts = _measured(
        measured, capacity, now_s, since_s=min((since_s for since_s, *_ in loan.here.values()), default=math.inf)
    )
    of_pods = [(pod, use_of(pod.key)) for pod in pods]
    of_gone = [_Gone(*one, use_of(key)) for key, one in loan.gone.items()]
    uses = [use for _, use in of_pods if use is not None]
    known = [*uses, *(one.use for one in of_gone if one.use is not None)]
    then, then_s, memory_doubt = used, at_s, ""
    if used is not None:
        if not loan.history or loan.history[-1][0] < at_s:
            loan.history.append((at_s, used))
        while loan.history[0][0] < at_s - HISTORY_S:
            loan.history.popleft()
        if known and Qos.OFFLINE in {*(pod.qos for pod in pods), *(one.qos for one in of_gone)}:
            then_s, then = _then(loan, max(use.at_s for use in known))
        if uses:
            of_node_s, of_node = _then(loan, max(use.at_s for use in uses))
            in_it = [use.amounts for pod, use in of_pods if use is not None and loan.here[pod.key][0] <= of_node_s]
            cpu_doubt, memory_doubt = (
                _disagreement(resource, of_node[part], sum(one[part] for one in in_it), capacity[part])
                for part, resource in enumerate(TRADED)
            )
            impossible = _impossible(of_pods, capacity[1])
            doubts += filter(None, (cpu_doubt, impossible or memory_doubt))
            if cpu_doubt or impossible:
                used = None
    loan.doubts = tuple(doubts)
    if used is None or then is None:
        _hold(loan, pods, rule, now_s)
        return
    loan.good_s, loan.degraded = max(loan.good_s, at_s), False
    reserved = [max(0, capacity[part] - allocatable[part]) for part in range(len(TRADED))]
    by_pods, found = [], []
    for part in range(len(TRADED)):
        ended = _ended(of_gone, part, then_s)
        doubted = bool(memory_doubt) and TRADED[part] == MEMORY
        least, most_of_it, online = _taken(
            loan, part, of_pods, ended, then[part], reserved[part], now_s, then_s, doubted=doubted
        )
        by_pods.append(max(least, min(most_of_it, loan.before[part])))
        if TRADED[part] == MEMORY and not doubted:
            loan.system_memory = by_pods[part] - online
        beyond = _beyond_offline(part, of_pods, _ended(of_gone, part, at_s), used[part]) if known else 0.0
        found.append(max(by_pods[part], beyond))
    loan.before = by_pods[0], by_pods[1]
    loan.taken = found[0], found[1]
    loan.window.add(now_s, loan.taken)
    most = loan.window.percentile(rule.percentile)
    cpu, memory = (
        lent(resource, capacity[part], max(loan.taken[part], most[part]), rule, age_s=0.0)
        for part, resource in enumerate(TRADED)
    )
    loan.base = loan.want = cpu, memory
    loan.why = "; ".join(
        f"{resource}: {rule.threshold(resource) * 100:g} % of {amount_text(resource, capacity[part])} less "
        f"{amount_text(resource, round(max(loan.taken[part], most[part])))} that is taken"
        for part, resource in enumerate(TRADED)
    )
    if pods and not uses:
        loan.why += "; no pod of it is measured"


@lru_cache(maxsize=4096)
def _asked(of: PodClass) -> tuple[Amounts, Amounts]:
    """What its pods request: plainly, and of lent resources, whoever lends them."""
    plain, cpu, memory = dict(of.requests), 0, 0
    for name, amount in of.requests:
        if "/" in name and is_lent(name):
            if name.rpartition("/")[2] in CPU_NAMES:
                cpu += amount
            else:
                memory += amount
    return (plain.get(CPU, 0), plain.get(MEMORY, 0)), (cpu, memory)


def lent_requests(pod: Pod) -> Amounts:
    """What the pod requests of lent resources."""
    return _asked(pod.pod_class)[1]


def _requests(pod: Pod) -> Amounts:
    return _asked(pod.pod_class)[0]


def _note(loan: NodeLoan, pods: Iterable[Pod], now_s: float) -> None:
    """Who came, and who is gone."""
    first = math.isnan(loan.since_s)
    if first:
        loan.since_s = loan.good_s = now_s
    there = {pod.key: pod for pod in pods}
    for key in loan.here.keys() - there.keys():
        loan.gone[key] = now_s, *loan.here.pop(key)[1:]
    since_s = -math.inf if first else now_s
    for key, pod in there.items():
        loan.here[key] = (loan.here[key][0] if key in loan.here else since_s), pod.qos, lent_requests(pod)
    if loan.gone:
        loan.gone = {key: one for key, one in loan.gone.items() if key not in there and now_s - one[0] < GONE_S}


def _measured(
    measured: MeasuredNode | None, capacity: Amounts, now_s: float, *, since_s: float
) -> tuple[Pair | None, float, list[str]]:
    """(what the node uses or None, when it was measured, what of it is not believed). ``since_s``: when the first of
    its pods came; a node that was empty may have used 0."""
    found: list[float] = []
    at_s = math.inf
    doubts: list[str] = []
    for part, resource in enumerate(TRADED):
        one = measured.parts[part] if measured is not None else None
        if one is None or now_s - one.at_s >= HELD_S:
            continue
        if not 0 <= one.amount <= BEYOND * capacity[part] or not (one.amount or one.at_s < since_s):  # nor a NaN
            of_it = amount_text(resource, capacity[part])
            doubts.append(f"{resource}: {one.amount:.4g} is not what a node of {of_it} uses ({one.source})")
            continue
        found.append(one.amount)
        at_s = min(at_s, one.at_s)
    return (found[0], found[1]) if len(found) == len(TRADED) else None, at_s, doubts


def _disagreement(resource: str, of_node: float, of_pods: float, capacity: int) -> str:
    if of_pods <= DISAGREE * of_node + DISAGREE_SHARE * capacity:
        return ""
    return f"{resource}: pods are measured to use {of_pods:.0f}, and their node {of_node:.0f}"


def _impossible(of_pods: _OfPods, capacity: int) -> str:
    """A pod that is measured to use more memory than its node has."""
    for pod, use in of_pods:
        if use is not None and use.amounts[1] > capacity:
            return f"memory: {use.amounts[1]} is not what {pod.key} uses on a node of {amount_text(MEMORY, capacity)}"
    return ""


def _hold(loan: NodeLoan, pods: Iterable[Pod], rule: LendingRule, now_s: float) -> None:
    """Without metrics: what was lent by the last that there were stays, less what came since; nothing in the end."""
    age_s = now_s - loan.good_s
    loan.degraded = not age_s < rule.degrade_s
    if loan.degraded:
        loan.base = loan.want = None
        loan.why = f"no metrics to go by for {age_s:.0f} s; after {rule.degrade_s:g} s nothing is lent"
        return
    if loan.base is None:
        loan.why = "no metrics yet"
        return
    came = [_requests(pod) for pod in pods if loan.here[pod.key][0] > loan.good_s and pod.qos is not Qos.OFFLINE]
    loan.want = (
        max(0, loan.base[0] - sum(cpu for cpu, _ in came)),
        max(0, loan.base[1] - sum(memory for _, memory in came)),
    )
    loan.why = f"no metrics to go by for {age_s:.0f} s; what was lent stays, less what came since"


def _then(loan: NodeLoan, pods_s: float) -> tuple[float, Pair]:
    """What the node used when its pods were measured, or as near to it as is known, and when that was."""
    before = [one for one in loan.history if one[0] <= pods_s + NEAR_S]
    return before[-1] if before else loan.history[0]


class _Gone(Struct, frozen=True):
    """A pod that is not on the node any more. ``lent``: what it requested of lent resources; ``use``: as metrics still
    have it."""

    gone_s: float
    qos: Qos
    lent: Amounts
    use: KnownUse | None


class _Ended(Struct, frozen=True):
    """Of pods that are gone, what of their use is still in the node's: as measured, of it online pods'; what offline
    ones may have used at most, of it those that are not measured."""

    used: float
    online: float
    offline_most: float
    unmeasured_most: float
    measured: bool


def _ended(of_gone: Iterable[_Gone], part: int, node_s: float) -> _Ended:
    """As the node was measured at ``node_s``: an offline pod that ended just before may have used its requests."""
    used = online = most = unmeasured = 0.0
    measured = False
    for one in of_gone:
        of_it = one.use.amounts[part] if one.use is not None else 0
        offline = one.qos is Qos.OFFLINE
        asked = one.lent[part] if offline and node_s < one.gone_s + SETTLED_S else 0
        used += of_it
        unmeasured += asked if one.use is None else 0
        online += 0 if offline else of_it
        most += max(of_it, asked) if offline else 0
        measured = measured or one.use is not None
    return _Ended(used, online, most, unmeasured, measured)


def _beyond_offline(part: int, of_pods: _OfPods, ended: _Ended, used: float) -> float:
    """What is used now beyond all that offline pods were measured to use, or may."""
    offline = (
        max(use.amounts[part] if use is not None else 0, lent_requests(pod)[part])
        for pod, use in of_pods
        if pod.qos is Qos.OFFLINE
    )
    return max(0.0, used - ended.offline_most - sum(offline))


def _taken(
    loan: NodeLoan,
    part: int,
    of_pods: _OfPods,
    ended: _Ended,
    used: float,
    reserved: int,
    now_s: float,
    at_s: float,
    *,
    doubted: bool,
) -> tuple[float, float, float]:
    """At least, and at most: offline pods that are not measured use anything up to what they request; and what of it
    pods that are not offline use. ``used``: as of ``at_s``; ``doubted``: pods are measured to use more."""
    alone = not ended.measured and all(use is None for _, use in of_pods)
    uses: list[PodUse] = []
    system, hidden = used - ended.used, ended.unmeasured_most
    for pod, use in of_pods:
        request, here_s = _requests(pod)[part], now_s - loan.here[pod.key][0]
        if use is not None:
            system -= use.amounts[part]
        elif pod.qos is Qos.OFFLINE and here_s < YOUNG_S:
            hidden += lent_requests(pod)[part]
        elif pod.qos is not Qos.OFFLINE and not alone:
            system -= request
        if alone and here_s >= SETTLED_S and loan.here[pod.key][0] <= at_s:
            uses.append(PodUse(pod.qos, request, 0.0))
        else:
            uses.append(PodUse(pod.qos, request, None if use is None else use.amounts[part]))
    online = taken(TRADED[part], uses, system_used=0.0, reserved=0, gone_used=ended.online)
    floor = 0.0
    if doubted:  # where it was never believed all that is used counts
        floor = max(0.0, used - online) if loan.system_memory is None else loan.system_memory
    least, most = (
        taken(TRADED[part], uses, system_used=max(floor, of_it), reserved=reserved, gone_used=ended.online)
        for of_it in (system - hidden, system)
    )
    return least, most, online
