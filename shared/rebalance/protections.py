"""Who is never moved, and why: descheduler's protections under their names, and what our own rules add.

Source: descheduler v0.36 ``DefaultEvictor`` (``podProtections``, ``priorityThreshold``, ``minReplicas``, ``minPodAge``;
``nodeFit`` always holds here: a move goes to a node that passes every filter). A pod of a DaemonSet and one without an
owner never move: nobody would make a replacement that stands elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from shared.model.cluster_objects import DisruptionBudget
from shared.rebalance.history import MoveHistory
from shared.rebalance.residents import Resident
from shared.scheduling.preemption.budgets import covers

SYSTEM_CRITICAL = 2_000_000_000
"""The priority of system-cluster-critical; users' classes stay below."""

LOCAL_STORAGE, DAEMON_SETS, CRITICAL, BARE = (
    "PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "BarePods",
)  # fmt: skip
VOLUME_CLAIMS, WITHOUT_BUDGET, DEVICE_CLAIMS = "PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"
LIFTED = (LOCAL_STORAGE, CRITICAL)
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


def budgets_of(resident: Resident, budgets: Sequence[DisruptionBudget]) -> tuple[int, ...]:
    """Numbers of the budgets that cover the pod."""
    return tuple(number for number, budget in enumerate(budgets) if covers(budget, resident.pod))


def protected(
    residents: Iterable[Resident],
    budgets: Sequence[DisruptionBudget],
    rules: Protections,
    history: MoveHistory,
    now: float,
) -> dict[str, str]:
    """Why each pod that has to stay does, by uid: the protection's name, and what it rests on."""
    standing = list(residents)
    copies = Counter(one.workload for one in standing)
    found: dict[str, str] = {}
    for one in standing:
        if reason := _reason(one, copies[one.workload], budgets, rules, history, now):
            found[one.uid] = reason
    return found


def _reason(
    one: Resident,
    copies: int,
    budgets: Sequence[DisruptionBudget],
    rules: Protections,
    history: MoveHistory,
    now: float,
) -> str:
    if reason := _never(one):
        return reason
    if rules.namespaces and one.pod.namespace not in rules.namespaces:
        return "namespaces: its namespace was not named"
    if reason := _budget(one, budgets, rules):
        return reason
    if history.moved_lately(one.uid, now):
        return "moved lately: it came by a move"
    if not one.forced and (reason := _default(one, copies, rules)):
        return reason
    age_s = now - one.created_s
    if one.created_s and age_s < rules.min_age_s:
        return f"minPodAge: it is {max(0.0, age_s):.0f} s old"
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
    if one.pod.asks is not None or one.pod.extended:
        return f"{DEVICE_CLAIMS}: what it was allocated is its node's"
    if one.pod.group:
        return f"pod group: a member of {one.pod.group} leaves the others short"
    if one.pod.terminating:
        return "terminating: it leaves already"
    return "" if one.pod.preemptible else "conclave.io/preemptible: false"


def _budget(one: Resident, budgets: Sequence[DisruptionBudget], rules: Protections) -> str:
    covering = budgets_of(one, budgets)
    if len(covering) > 1:
        return f"PodDisruptionBudget: {len(covering)} cover it, and the eviction API takes no pod of more than one"
    for number in covering:
        if budgets[number].allowed < 1:
            return f"PodDisruptionBudget: {budgets[number].name} allows none"
    if WITHOUT_BUDGET in rules.extra and not covering:
        return f"{WITHOUT_BUDGET}: none covers it"
    return ""


def _default(one: Resident, copies: int, rules: Protections) -> str:
    """What ``descheduler.alpha.kubernetes.io/evict`` overrides."""
    if one.kept_by:
        return f"annotation: {one.kept_by}"
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
