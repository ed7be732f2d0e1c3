"""Who is never moved, and why: descheduler's protections under their names, and what our own rules add.

Source: descheduler v0.36 ``DefaultEvictor`` (``podProtections``, ``priorityThreshold``, ``minReplicas``, ``minPodAge``;
``nodeFit`` always holds here: a move goes to a node that passes every filter). A pod of a DaemonSet and one without an
owner never move: nobody would make a replacement that stands elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from shared.model.cluster_objects import DisruptionBudget
from shared.rebalance.history import MoveHistory
from shared.rebalance.limits import at_most_at_once
from shared.rebalance.residents import Resident
from shared.scheduling.preemption.budgets import covers

SYSTEM_CRITICAL = 2_000_000_000
"""The priority of system-cluster-critical; users' classes stay below."""

LOCAL_STORAGE, DAEMON_SETS, CRITICAL, BARE = (
    "PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "BarePods",
)  # fmt: skip
VOLUME_CLAIMS, WITHOUT_BUDGET, DEVICE_CLAIMS = "PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"
OTHER_OWNERS = "PodsOfOtherOwners"
REPLACING = ("ReplicaSet", "ReplicationController", "StatefulSet")
"""Kinds of owners that make a new pod for one that is evicted, and lose no work by it."""
LIFTED = (LOCAL_STORAGE, CRITICAL, OTHER_OWNERS)
"""Protections that hold unless somebody lifts them."""
EXTRA = (VOLUME_CLAIMS, WITHOUT_BUDGET)
"""Protections that hold only where somebody asks for them."""


class Protections(Struct, frozen=True):
    """``lifted``: of ``LIFTED``; ``extra``: of ``EXTRA``; ``priority_threshold``: pods of it and above stay, None: none
    but the critical ones; ``min_replicas``: workloads with fewer pods stay; ``min_age_s``: younger pods stay;
    ``namespaces``: only those, () all; ``scheduler_names``: whose pods are placed by reservation."""

    lifted: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    priority_threshold: int | None = None
    min_replicas: int = 0
    min_age_s: float = 0.0
    namespaces: tuple[str, ...] = ()
    scheduler_names: tuple[str, ...] = ("conclave",)


class CoveringBudgets:
    """Which budgets cover a pod: looked up by namespace, and once for pods whose labels are equal."""

    def __init__(self, budgets: Sequence[DisruptionBudget]) -> None:
        self.all = budgets
        self._numbers: dict[str, list[int]] = {}
        for number, budget in enumerate(budgets):
            self._numbers.setdefault(budget.namespace, []).append(number)
        self._known: dict[tuple[str, frozenset[tuple[str, str]]], tuple[int, ...]] = {}

    def of(self, resident: Resident) -> tuple[int, ...]:
        """Numbers of the budgets that cover the pod."""
        pod = resident.pod
        if not (numbers := self._numbers.get(pod.namespace)):
            return ()
        key = pod.namespace, frozenset(pod.labels.items())
        if key not in self._known:
            self._known[key] = tuple(number for number in numbers if covers(self.all[number], pod))
        return self._known[key]


def protected(
    residents: Iterable[Resident],
    budgets: CoveringBudgets,
    rules: Protections,
    history: MoveHistory,
    now: float,
    workload_part: float = 1.0,
    away: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """Why each pod that has to stay does, by uid: the protection's name, and what it rests on. ``workload_part``: of a
    workload's pods more than this are never away at once; ``away``: pods of each that stand nowhere yet, as the
    replacement of one that a leader which died has moved."""
    standing, waiting = list(residents), Counter(away or {})
    copies = Counter(one.workload for one in standing) + waiting
    unready = Counter(one.workload for one in standing if one.unready) + waiting
    full = {
        workload: f"not Ready: {count} of its workload's {copies[workload]} pods are not"
        for workload, count in unready.items()
        if count >= at_most_at_once(copies[workload], workload_part)
    }
    lately = history.moved_lately(now)
    found: dict[str, str] = {}
    for one in standing:
        reason = _reason(one, copies[one.workload], budgets, rules, lately, now) or full.get(one.workload, "")
        if reason:
            found[one.uid] = reason
    return found


def lasting(one: Resident, copies: int, rules: Protections) -> str:
    """Why a pod does not move for as long as it stands, "": it may. What passes is left out, such as a budget that
    allows none now or a move just made: who is in a canary must not change by what was done to it."""
    if not one.pod.terminating and (reason := _never(one)):
        return reason
    if not one.forced and (reason := _default(one, copies, rules)):
        return reason
    return _foreign(one, rules)


def _reason(
    one: Resident,
    copies: int,
    budgets: CoveringBudgets,
    rules: Protections,
    lately: frozenset[str],
    now: float,
) -> str:
    if reason := _never(one):
        return reason
    if rules.namespaces and one.pod.namespace not in rules.namespaces:
        return "namespaces: its namespace was not named"
    if reason := _budget(one, budgets, rules):
        return reason
    if one.uid in lately:
        return "moved lately: it came by a move"
    if not one.forced and (reason := _default(one, copies, rules)):
        return reason
    age_s = now - one.created_s
    if rules.min_age_s and one.created_s and age_s < rules.min_age_s:
        return f"minPodAge: it is {max(0.0, age_s):.0f} s old"
    return _foreign(one, rules)


def _foreign(one: Resident, rules: Protections) -> str:
    return "" if one.pod.scheduler_name in rules.scheduler_names else (
        f"schedulerName: {one.pod.scheduler_name or 'default-scheduler'} would place its replacement"
    )  # fmt: skip


def _never(one: Resident) -> str:
    """Where a move could not work at all."""
    if one.mirror or one.owner[1] == "Node":
        return "mirror pod: its kubelet makes it"
    if one.owner[1] == "DaemonSet":
        return f"{DAEMON_SETS}: it would come back to its node"
    if not one.owner[2]:
        return f"{BARE}: nobody would replace it"
    if one.pod.asks is not None or one.pod.extended_claim is not None:
        return f"{DEVICE_CLAIMS}: what it was allocated is its node's"
    if one.pod.group:
        return f"pod group: a member of {one.pod.group} leaves the others short"
    if one.pod.terminating:
        return "terminating: it leaves already"
    return "" if one.pod.preemptible else "conclave.io/preemptible: false"


def _budget(one: Resident, budgets: CoveringBudgets, rules: Protections) -> str:
    covering = budgets.of(one)
    if len(covering) > 1:
        return f"PodDisruptionBudget: {len(covering)} cover it, and the eviction API takes no pod of more than one"
    for number in covering:
        if budgets.all[number].allowed < 1:
            return f"PodDisruptionBudget: {budgets.all[number].name} allows none"
    if WITHOUT_BUDGET in rules.extra and not covering:
        return f"{WITHOUT_BUDGET}: none covers it"
    return ""


def _default(one: Resident, copies: int, rules: Protections) -> str:
    """What ``descheduler.alpha.kubernetes.io/evict`` overrides."""
    if one.kept_by:
        return f"annotation: {one.kept_by}"
    if OTHER_OWNERS not in rules.lifted and one.owner[1] not in REPLACING:
        return f"{OTHER_OWNERS}: a {one.owner[1]} may lose its work, or make no replacement"
    if CRITICAL not in rules.lifted and one.pod.priority >= SYSTEM_CRITICAL:
        return f"{CRITICAL}: priority {one.pod.priority}"
    if rules.priority_threshold is not None and one.pod.priority >= rules.priority_threshold:
        return f"priorityThreshold: priority {one.pod.priority}"
    if LOCAL_STORAGE not in rules.lifted and one.local_storage:
        return f"{LOCAL_STORAGE}: what lies there would be lost"
    if VOLUME_CLAIMS in rules.extra and one.volume_claims:
        return f"{VOLUME_CLAIMS}: it uses a claim"
    if copies < rules.min_replicas:
        return f"minReplicas: its workload has {copies}"
    return ""
