"""What one node may lend, judged by what it and its pods were last measured to use. Pure.

    system = what the node uses - what its pods use - what pods that are not measured request
    taken  = max(system, reserved) + what pods that are not offline use   -> Window -> lent (rule.py)

Where no pod of the node is measured (sensors, and no metrics API) the node's use counts as a whole, its offline pods'
included, and beside it the requests of pods that came within the last minute.

Nodes are measured sooner than pods. Beside offline pods a node's use counts as of when its pods were measured, or what
an offline pod that just began uses would be taken for use of online pods and take its own room away; what is used now
beyond all that offline pods may use counts at once.

What cannot be is not believed: what was lent stays, less the requests of pods that came since, until the metrics agree
or are too old.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from services.coordinator.lending.pod_uses import KnownUse
from services.coordinator.lending.window import Pair, Window
from services.coordinator.usage.measured import MeasuredNode
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.qos import CPU_NAMES, Qos, is_lent
from shared.model.resources import CPU, MEMORY, amount_text
from shared.scheduling.lending.rule import TRADED, LendingRule, PodUse, lent, taken

SETTLED_S = 60.0
"""A pod that has been on a node for so long is in what the node is measured to use."""
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
the node is. Memory may differ so: a working set counts cache that a node counts as available."""

Amounts = tuple[int, int]
"""Cpu and memory: milli-cores, bytes."""
UseOf = Callable[[str], KnownUse | None]
"""What a pod uses, by namespace/name; None: nobody says so now."""


@dataclass(slots=True)
class NodeLoan:
    """One node's. ``want``: what it may lend; None: not known yet, what is there stays. ``why``: in a line, what it
    follows from; ``doubts``: what of its metrics is not believed."""

    uid: str
    window: Window
    want: Amounts | None = None
    why: str = ""
    doubts: tuple[str, ...] = ()
    degraded: bool = False
    """Whether it lends nothing for want of metrics."""
    taken: Pair = (0.0, 0.0)
    since_s: float = math.nan
    """When it was first looked at."""
    good_s: float = math.nan
    """When what was last believed was measured."""
    history: deque[tuple[float, Pair]] = field(default_factory=deque)
    """What the node used, as measured and believed lately."""
    base: Amounts | None = None
    """What it may lend by that."""
    here: dict[str, tuple[float, Qos]] = field(default_factory=dict)
    """Since when each pod has been seen here; those of the first look for ever."""
    gone: dict[str, tuple[float, Qos]] = field(default_factory=dict)


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
    used, at_s, doubts = _measured(measured, capacity, now_s, empty=not pods)
    of_pods = [(pod, use_of(pod.key)) for pod in pods]
    of_gone = [(qos, use) for key, (_, qos) in loan.gone.items() if (use := use_of(key)) is not None]
    uses = [use for _, use in (*of_pods, *of_gone) if use is not None]
    if used is not None:
        then = used
        if not loan.history or loan.history[-1][0] < at_s:
            loan.history.append((at_s, used))
        while loan.history[0][0] < at_s - HISTORY_S:
            loan.history.popleft()
        if uses and any(pod.qos is Qos.OFFLINE for pod in pods):
            then = _then(loan, max(use.at_s for use in uses))
        doubt = _disagreement(then[0], sum(use.amounts[0] for use in uses), capacity[0])
        if doubt:
            used, doubts = None, [*doubts, doubt]
    loan.doubts = tuple(doubts)
    if used is None:
        _hold(loan, pods, rule, now_s)
        return
    loan.good_s, loan.degraded = max(loan.good_s, at_s), False
    found = [
        max(
            _taken(loan, part, of_pods, of_gone, then[part], max(0, capacity[part] - allocatable[part]), now_s),
            _beyond_offline(part, of_pods, used[part]),
        )
        for part in range(len(TRADED))
    ]
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


def lent_requests(pod: Pod) -> Amounts:
    """What the pod requests of lent resources, whoever lends them."""
    cpu = memory = 0
    for name, amount in pod.pod_class.requests:
        if "/" in name and is_lent(name):
            if name.rpartition("/")[2] in CPU_NAMES:
                cpu += amount
            else:
                memory += amount
    return cpu, memory


def _requests(pod: Pod) -> Amounts:
    asked = dict(pod.pod_class.requests)
    return asked.get(CPU, 0), asked.get(MEMORY, 0)


def _note(loan: NodeLoan, pods: Iterable[Pod], now_s: float) -> None:
    """Who came, and who is gone."""
    first = math.isnan(loan.since_s)
    if first:
        loan.since_s = loan.good_s = now_s
    there = {pod.key: pod.qos for pod in pods}
    for key in loan.here.keys() - there.keys():
        loan.gone[key] = now_s, loan.here.pop(key)[1]
    since_s = -math.inf if first else now_s
    for key, qos in there.items():
        loan.here[key] = (loan.here[key][0] if key in loan.here else since_s), qos
    if loan.gone:
        loan.gone = {key: one for key, one in loan.gone.items() if key not in there and now_s - one[0] < GONE_S}


def _measured(
    measured: MeasuredNode | None, capacity: Amounts, now_s: float, *, empty: bool
) -> tuple[Pair | None, float, list[str]]:
    """(what the node uses or None, when it was measured, what of it is not believed). ``empty``: no pod is there."""
    found: list[float] = []
    at_s = math.inf
    doubts: list[str] = []
    for part, resource in enumerate(TRADED):
        one = measured.parts[part] if measured is not None else None
        if one is None or now_s - one.at_s >= HELD_S:
            continue
        if not 0 <= one.amount <= BEYOND * capacity[part] or not (one.amount or empty):  # nor a NaN
            of_it = amount_text(resource, capacity[part])
            doubts.append(f"{resource}: {one.amount:.4g} is not what a node of {of_it} uses ({one.source})")
            continue
        found.append(one.amount)
        at_s = min(at_s, one.at_s)
    return (found[0], found[1]) if len(found) == len(TRADED) else None, at_s, doubts


def _disagreement(of_node: float, of_pods: float, capacity: int) -> str:
    if of_pods <= DISAGREE * of_node + DISAGREE_SHARE * capacity:
        return ""
    return f"cpu: pods are measured to use {of_pods:.0f}, and their node {of_node:.0f}"


def _hold(loan: NodeLoan, pods: Iterable[Pod], rule: LendingRule, now_s: float) -> None:
    """Without metrics: what was lent by the last that there were stays, less what came since; nothing in the end."""
    age_s = now_s - loan.good_s
    loan.degraded = not age_s < rule.degrade_s
    if loan.degraded:
        loan.base = loan.want = 0, 0
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


def _then(loan: NodeLoan, pods_s: float) -> Pair:
    """What the node used when its pods were measured, or as near to it as is known."""
    before = [one for at_s, one in loan.history if at_s <= pods_s + NEAR_S]
    return before[-1] if before else loan.history[0][1]


_OfPods = Sequence[tuple[Pod, KnownUse | None]]


def _beyond_offline(part: int, of_pods: _OfPods, used: float) -> float:
    """What is used now beyond all that offline pods were measured to use, or may."""
    offline = (
        max(use.amounts[part] if use is not None else 0, lent_requests(pod)[part])
        for pod, use in of_pods
        if pod.qos is Qos.OFFLINE
    )
    return max(0.0, used - sum(offline)) if any(use is not None for _, use in of_pods) else 0.0


def _taken(
    loan: NodeLoan,
    part: int,
    of_pods: _OfPods,
    of_gone: Sequence[tuple[Qos, KnownUse]],
    used: float,
    reserved: int,
    now_s: float,
) -> float:
    alone = not of_gone and all(use is None for _, use in of_pods)
    uses: list[PodUse] = []
    system = used - sum(use.amounts[part] for _, use in of_gone)
    for pod, use in of_pods:
        request, here_s = _requests(pod)[part], now_s - loan.here[pod.key][0]
        if use is not None:
            system -= use.amounts[part]
        elif pod.qos is Qos.OFFLINE and here_s < YOUNG_S:
            system -= lent_requests(pod)[part]
        elif pod.qos is not Qos.OFFLINE and not alone:
            system -= request
        if alone and here_s >= SETTLED_S:
            uses.append(PodUse(pod.qos, request, 0.0))
        else:
            uses.append(PodUse(pod.qos, request, None if use is None else use.amounts[part]))
    gone = sum(use.amounts[part] for qos, use in of_gone if qos is not Qos.OFFLINE)
    return taken(TRADED[part], uses, system_used=max(0.0, system), reserved=reserved, gone_used=gone)
