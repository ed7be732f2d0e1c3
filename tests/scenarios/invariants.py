"""What must hold at every instant of every scenario, as pure functions over the API server's accepted changes.

A history is the audit's entries in order; a checker answers with one sentence per violation, nothing when all is well.
The arithmetic is ``lab.audit.rules``, which shares no code with the scheduler. Each checker has a test with a
history that breaks it (``test_invariants.py``). They refuse to know services, etcd or our own figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.audit.audit import AuditReport, audit
from lab.audit.judges.evictions import preemptor_named
from lab.audit.log import LogEntry
from lab.audit.pods import is_offline
from lab.audit.rules import Amounts, NodeFacts, node_facts, pod_facts
from tests.patience import PATIENCE

Json = dict[str, Any]
Checker = Callable[[Sequence[LogEntry]], list[str]]

OURS = "conclave"
FINISHED = ("Succeeded", "Failed")
SEEN_AFTER_S = 0.5 * PATIENCE
"""A change so shortly before a bind may not have been seen by anybody: what separate processes cannot exclude."""
TOLD_AFTER_S = 8.0
"""A pod that was created so shortly before the end may still be on its way to its first verdict: a reason that no node
helps is told after five seconds."""


@dataclass(slots=True)
class Cluster:
    """The cluster after an entry: nodes and pods (by uid) there are. ``gone``: when a node's name was deleted."""

    nodes: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)
    changed_s: dict[str, float] = field(default_factory=dict)

    def apply(self, entry: LogEntry) -> None:
        """Take one change over."""
        deleted = entry.verb == "delete"
        if entry.kind == "Node":
            known = self.nodes.get(entry.name)
            if deleted or known is None or _static(known) != _static(entry.object):
                self.changed_s[entry.name] = entry.time_s
            if deleted:
                self.nodes.pop(entry.name, None)
            else:
                self.nodes[entry.name] = entry.object
        elif entry.kind == "Pod":
            if deleted:
                self.pods.pop(entry.uid, None)
            else:
                self.pods[entry.uid] = entry.object

    def standing(self, node: str = "", **labels: str) -> list[Json]:
        """Bound pods that hold resources, on ``node`` (empty: anywhere) and with all of ``labels``."""
        return [
            pod
            for pod in self.pods.values()
            if node_of(pod) and node in ("", node_of(pod)) and phase_of(pod) not in FINISHED and has(pod, labels)
        ]


def binds(entries: Iterable[LogEntry]) -> Iterator[tuple[LogEntry, Cluster]]:
    """Every entry by which a pod got a node, with the cluster as it was just before."""
    cluster = Cluster()
    for entry in entries:
        if entry.kind == "Pod" and entry.verb != "delete" and node_of(entry.object):
            known = cluster.pods.get(entry.uid)
            if entry.verb == "bind" or (known is not None and node_of(known) != node_of(entry.object)):
                yield entry, cluster
        cluster.apply(entry)


# --- one pod ------------------------------------------------------------------------------------------------------


def bound_twice(entries: Sequence[LogEntry]) -> list[str]:
    """A uid gets a node once (I1)."""
    nodes: dict[str, list[str]] = {}
    for entry, _ in binds(entries):
        nodes.setdefault(entry.uid, []).append(f"{entry.name} to {node_of(entry.object)}")
    return [f"bound twice: {' and '.join(given)}" for given in nodes.values() if len(given) > 1]


def bound_while_gated(entries: Sequence[LogEntry]) -> list[str]:
    """A pod with scheduling gates stays where it is."""
    return [
        f"bound while gated: {entry.name}"
        for entry, before in binds(entries)
        if (before.pods.get(entry.uid) or entry.object)["spec"].get("schedulingGates")
    ]


def bound_not_ours(entries: Sequence[LogEntry]) -> list[str]:
    """Nobody but us binds in a scenario, and we bind our own."""
    return [
        f"bound though it names {name!r}: {entry.name}"
        for entry, _ in binds(entries)
        if (name := entry.object["spec"].get("schedulerName")) != OURS
    ]


def pending_without_reason(entries: Sequence[LogEntry]) -> list[str]:
    """At the end every pending pod of ours says why: PodScheduled=False with a reason and a message."""
    cluster, created_s = Cluster(), dict[str, float]()
    for entry in entries:
        created_s.setdefault(entry.uid, entry.time_s)
        cluster.apply(entry)
    end_s = entries[-1].time_s if entries else 0.0
    found = []
    for uid, pod in cluster.pods.items():
        if end_s - created_s[uid] < TOLD_AFTER_S:
            continue
        if not has_verdict(pod):
            told = scheduled_condition(pod) or "no condition"
            found.append(f"pending without a reason: {pod['metadata']['name']}: {told}")
    return found


# --- nodes --------------------------------------------------------------------------------------------------------


def overcommitted(entries: Sequence[LogEntry]) -> list[str]:
    """No bind takes a node above its allocatable as it is at that instant, in any resource (I2)."""
    found = []
    for entry, before in binds(entries):
        node = node_of(entry.object)
        if node not in before.nodes:
            continue  # ``bound_to_missing_node`` says so
        used: Amounts = {"pods": 1}
        facts = pod_facts(entry.object)
        mine = facts.requests
        others = [pod for pod in before.standing(node) if pod["metadata"]["uid"] != entry.uid]
        for requests in [mine, *(pod_facts(pod).requests for pod in others)]:
            for name, value in requests.items():
                used[name] = used.get(name, 0) + value
        used["pods"] += len(others)
        offered = node_facts(before.nodes[node]).allocatable
        counted = [name for name in mine if offered.get(name) or name not in facts.by_claim]
        short = [name for name in [*counted, "pods"] if used[name] > offered.get(name, 0)]
        found += [
            f"over-committed: {entry.name} on {node}: {name} {used[name]} of {offered.get(name, 0)}" for name in short
        ]
    return found


def bound_to_missing_node(entries: Sequence[LogEntry]) -> list[str]:
    """A Binding names a node that exists; one deleted ``SEEN_AFTER_S`` ago or less could not be known to be gone."""
    return [
        f"bound to a node that is gone: {entry.name} on {node}"
        for entry, before in binds(entries)
        if (node := node_of(entry.object)) not in before.nodes
        and entry.time_s - before.changed_s.get(node, 0.0) > SEEN_AFTER_S
    ]


def bound_to_closed_node(entries: Sequence[LogEntry]) -> list[str]:
    """No bind to a node that has been cordoned, or tainted against the pod, for longer than ``SEEN_AFTER_S``."""
    found = []
    for entry, before in binds(entries):
        node = node_of(entry.object)
        if node not in before.nodes or entry.time_s - before.changed_s.get(node, 0.0) <= SEEN_AFTER_S:
            continue
        closing = [taint for taint in node_facts(before.nodes[node]).taints if not tolerates(entry.object, taint)]
        if closing:
            late_s = entry.time_s - before.changed_s[node]
            found.append(f"bound to a closed node: {entry.name} on {node}, {late_s:.1f} s after {closing[0]['key']}")
    return found


# --- among pods ---------------------------------------------------------------------------------------------------


def sharing_a_node(entries: Sequence[LogEntry], **labels: str) -> list[str]:
    """Pods with ``labels`` stand on different nodes at every instant (required anti-affinity by hostname)."""
    found = []
    for entry, before in binds(entries):
        if not has(entry.object, labels):
            continue
        node = node_of(entry.object)
        there = [p["metadata"]["name"] for p in before.standing(node, **labels) if p["metadata"]["uid"] != entry.uid]
        if there:
            found.append(f"anti-affinity broken: {entry.name} joins {there[0]} on {node}")
    return found


def skewed(entries: Sequence[LogEntry], key: str, max_skew: int, **labels: str) -> list[str]:
    """After no bind do pods with ``labels`` differ by more than ``max_skew`` between domains of ``key``.

    A bind is judged as DoNotSchedule judges it: its own domain against the emptiest one.
    """
    found = []
    for entry, before in binds(entries):
        if not has(entry.object, labels):
            continue
        domains = {name: (node["metadata"].get("labels") or {}).get(key, "") for name, node in before.nodes.items()}
        counts = dict.fromkeys(filter(None, domains.values()), 0)
        for pod in before.standing(**labels):
            if domains.get(node_of(pod)):
                counts[domains[node_of(pod)]] += 1
        mine = domains.get(node_of(entry.object), "")
        if mine and counts[mine] + 1 - min(counts.values()) > max_skew:
            found.append(f"skew above {max_skew}: {entry.name} on {mine} of {counts}")
    return found


_audits: list[tuple[Sequence[LogEntry], int, AuditReport]] = []
"""The last audit: of which entries, and how many they were; a list of them grows, and never changes else."""


def _audited(entries: Sequence[LogEntry]) -> AuditReport:
    """One audit for all who ask about the same entries."""
    if not _audits or _audits[0][0] is not entries or _audits[0][1] != len(entries):
        _audits[:] = [(entries, len(entries), audit(entries, OURS))]
    return _audits[0][2]


def placed_against_a_rule(entries: Sequence[LogEntry]) -> list[str]:
    """The independent audit finds no pod misplaced: selectors, taints, ports, other pods, spread, volumes."""
    report = _audited(entries)
    found = [example for example in report.examples if example.startswith("misplaced")]
    return found or [f"misplaced: {report.misplaced} pods"] * bool(report.misplaced)


def zones_or_lent_over(entries: Sequence[LogEntry]) -> list[str]:
    """The independent audit finds no node that was given pods for which no seating in its zones exists, nor one where
    offline pods were given more than it lends."""
    report = _audited(entries)
    found = [example for example in report.examples if example.startswith(("zones:", "overlent:"))]
    over = report.zones_overcommitted, report.lent_overcommitted
    return found or [f"zones over-committed on {over[0]} nodes, lent resources on {over[1]}"] * any(over)


def devices_lost(entries: Sequence[LogEntry]) -> list[str]:
    """The independent audit finds no device in two claims, and no claim that outlives the pods that it is for."""
    report = _audited(entries)
    found = [example for example in report.examples if example.startswith(("device twice", "claim leaked"))]
    lost = report.devices_twice + report.claims_leaked
    return found or [f"devices: {report.devices_twice} twice, {report.claims_leaked} claims leaked"] * bool(lost)


def broken_for_units(entries: Sequence[LogEntry]) -> list[str]:
    """The independent audit finds no gang in part or scattered, no queue above its maximum, no group that left in part,
    and nobody evicted for nobody."""
    checks = ("partial:", "orphan:", "scattered:", "half:", "evicted:", "quota:")
    report = _audited(entries)
    found = [example for example in report.examples if example.startswith(checks)]
    return found or [f"units: {report.units}"] * report.units.wrong


def bound_members(entries: Sequence[LogEntry], group: str) -> list[tuple[float, int]]:
    """(time, how many stand) after each change in the number of a native group's members that hold a node."""
    standing: set[str] = set()
    found: list[tuple[float, int]] = []
    for entry in entries:
        if entry.kind != "Pod" or (entry.object["spec"].get("schedulingGroup") or {}).get("podGroupName") != group:
            continue
        holds = entry.verb != "delete" and node_of(entry.object) and phase_of(entry.object) not in FINISHED
        before = len(standing)
        (standing.add if holds else standing.discard)(entry.uid)
        if len(standing) != before:
            found.append((entry.time_s, len(standing)))
    return found


# --- evictions ----------------------------------------------------------------------------------------------------


def evicted(entries: Sequence[LogEntry]) -> dict[str, LogEntry]:
    """Pods that somebody evicted, by uid, with the entry that first shows it (condition DisruptionTarget)."""
    found: dict[str, LogEntry] = {}
    for entry in entries:
        if entry.kind == "Pod" and entry.uid not in found and _condition(entry.object, "DisruptionTarget"):
            found[entry.uid] = entry
    return found


def evictions_above(entries: Sequence[LogEntry], limit: int) -> list[str]:
    """At most ``limit`` pods were evicted in all."""
    names = sorted(entry.name for entry in evicted(entries).values())
    return [f"{len(names)} evictions, {limit} would do: {names[:10]}"] if len(names) > limit else []


def unjust_evictions(entries: Sequence[LogEntry]) -> list[str]:
    """Each victim made room for a pod of strictly higher priority that may preempt, or held what a node lends no more.

    That pod is one nominated to the victim's node when it was evicted, or that gets the node later; or the one that the
    victim's mark names, which waits then, and may be bound elsewhere or gone before its status says anything.
    """
    victims = evicted(entries)
    nodes = {node_of(entry.object) for entry in victims.values()} - {""}
    named = {preemptor_named(_said(entry.object, "DisruptionTarget")) for entry in victims.values()}
    rivals: dict[str, list[tuple[tuple[int, bool], LogEntry]]] = {node: [] for node in nodes}
    waited: dict[str, LogEntry] = {}
    just: set[str] = set()
    cluster, gave_way = Cluster(), set[str]()
    for entry in entries if nodes else ():
        group = _group_of(entry.object)
        leaves = victims.get(entry.uid) is entry and _is_offline(entry.object)
        if leaves and (group in gave_way or _lends_less(cluster, entry.object, group)):
            just.add(entry.uid)
            gave_way |= {group} if group else set()
        cluster.apply(entry)
        if entry.kind != "Pod":
            continue
        if victims.get(entry.uid) is entry:
            rival = waited.get(preemptor_named(_said(entry.object, "DisruptionTarget")))
            if rival is not None and _rank(rival.object) > _rank(entry.object):
                just.add(entry.uid)
        if entry.object["spec"].get("preemptionPolicy") == "Never":
            continue
        if entry.uid in named and entry.verb != "delete" and not node_of(entry.object):
            waited[entry.uid] = entry
        else:
            waited.pop(entry.uid, None)
        nominated = str((entry.object.get("status") or {}).get("nominatedNodeName") or "")
        for node in nodes & {node_of(entry.object), nominated}:
            rivals[node].append((_rank(entry.object), entry))
    found = []
    for uid, victim in victims.items():
        node, rank = node_of(victim.object), _rank(victim.object)
        if uid not in just and not any(
            higher > rank and other.uid != uid and (other.rv > victim.rv or not node_of(other.object))
            for higher, other in rivals.get(node, ())
        ):
            found.append(f"evicted for nobody of higher priority: {victim.name} (priority {rank[0]}) on {node}")
    return found


def _rank(pod: Json) -> tuple[int, bool]:
    """Of one priority an online pod may go before an offline one."""
    return priority_of(pod), not _is_offline(pod)


def _is_offline(pod: Json) -> bool:
    return is_offline(pod["metadata"], pod_facts(pod).requests.items())


def _group_of(pod: Json) -> str:
    """The native group that it names."""
    return str(((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or "")


def _lends_less(cluster: Cluster, victim: Json, group: str) -> bool:
    """Whether more of a lent resource is held where an offline pod, or one of its group, stands than the node says it
    has: offline pods leave then for nobody, a gang whole."""
    fellows = [pod for pod in cluster.standing() if group and _group_of(pod) == group]
    return any(_short(cluster, node) for node in {node_of(pod) for pod in (victim, *fellows)})


def _short(cluster: Cluster, node: str) -> bool:
    offered = node_facts(cluster.nodes[node]).allocatable if node in cluster.nodes else {}
    used: Amounts = {}
    for pod in cluster.standing(node):
        for name, value in pod_facts(pod).requests.items():
            used[name] = used.get(name, 0) + value
    return any(value > offered.get(name, value) for name, value in used.items() if "/batch-" in name)


def below_budget(entries: Sequence[LogEntry], min_available: int, **labels: str) -> list[str]:
    """No eviction leaves fewer than ``min_available`` pods with ``labels`` running (a PodDisruptionBudget)."""
    victims, cluster, found = evicted(entries), Cluster(), []
    for entry in entries:
        cluster.apply(entry)
        if victims.get(entry.uid) is not entry or not has(entry.object, labels):
            continue
        left = [pod for pod in cluster.standing(**labels) if not _condition(pod, "DisruptionTarget")]
        if len(left) < min_available:
            found.append(f"budget exceeded: {entry.name} evicted, {len(left)} of {min_available} left")
    return found


ALWAYS: tuple[Checker, ...] = (
    bound_twice,
    bound_while_gated,
    bound_not_ours,
    pending_without_reason,
    overcommitted,
    bound_to_missing_node,
    bound_to_closed_node,
    placed_against_a_rule,
    zones_or_lent_over,
    devices_lost,
    unjust_evictions,
    broken_for_units,
)
"""Checked at the end of every scenario."""


# --- figures ------------------------------------------------------------------------------------------------------


def latencies_s(entries: Sequence[LogEntry]) -> list[float]:
    """Seconds from a pod's creation to its bind, sorted."""
    created: dict[str, float] = {}
    for entry in entries:
        if entry.kind == "Pod":
            created.setdefault(entry.uid, entry.time_s)
    return sorted(entry.time_s - created[entry.uid] for entry, _ in binds(entries))


# --- reading an object --------------------------------------------------------------------------------------------


def node_of(pod: Json) -> str:
    """The node a pod is bound to, or ""."""
    return str(pod["spec"].get("nodeName") or "")


def phase_of(pod: Json) -> str:
    """``status.phase``."""
    return str((pod.get("status") or {}).get("phase") or "")


def priority_of(pod: Json) -> int:
    """``spec.priority``, 0 where it has none."""
    return int(pod["spec"].get("priority") or 0)


def has(obj: Json, labels: dict[str, str]) -> bool:
    """Whether the object carries all of ``labels``."""
    own = obj["metadata"].get("labels") or {}
    return all(own.get(key) == value for key, value in labels.items())


def is_pending(pod: Json) -> bool:
    """Ours, unbound, and neither finished nor going."""
    return (
        pod["spec"].get("schedulerName") == OURS
        and not node_of(pod)
        and phase_of(pod) not in FINISHED
        and not pod["metadata"].get("deletionTimestamp")
    )


def has_verdict(pod: Json) -> bool:
    """Whether nobody has to tell it anything: it has a node, is none of ours, is gated, or says why it waits."""
    condition = scheduled_condition(pod)
    told = condition.get("status") == "False" and condition.get("reason") and condition.get("message")
    return bool(told or not is_pending(pod) or pod["spec"].get("schedulingGates"))


def scheduled_condition(pod: Json) -> Json:
    """The condition PodScheduled, empty where there is none."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled":
            return dict(condition)
    return {}


def tolerates(pod: Json, taint: Json) -> bool:
    """Whether one of the pod's tolerations covers the taint."""
    for toleration in pod["spec"].get("tolerations") or ():
        if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
            continue
        if toleration.get("key") and toleration["key"] != taint.get("key"):
            continue
        if toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def _condition(pod: Json, name: str) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == name and c.get("status") == "True" for c in conditions)


def _said(pod: Json, name: str) -> str:
    """The condition's message, "" where there is none."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((str(c.get("message") or "") for c in conditions if c.get("type") == name), "")


def _static(node: Json) -> NodeFacts:
    return node_facts(node)
