"""The audit's judges of groups, queues and evictions behind one door: feed entries in order, take the verdict.

It keeps its own view of pods and groups, and only borrows the books of nodes (labels). It can also be fed from a watch,
by one who wants to know at once: ``passed`` says how late it is where no entry does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lab.audit.judges.evictions import TOGETHER_S, EvictionsAudit
from lab.audit.judges.gangs import Gangs
from lab.audit.judges.groups import AuditedGroup, Groups
from lab.audit.judges.queues import KIND as QUEUE_KIND
from lab.audit.judges.queues import Queues
from lab.audit.ledger import NodeBook
from lab.audit.lent import gives_way
from lab.audit.log import LogEntry
from lab.audit.pods import AuditedPod, pod_view
from shared.quantiles import nearest_rank

GROUP_KINDS = ("PodGroup", "Job", "Namespace")


@dataclass(slots=True)
class UnitReport:
    """What was found. ``gangs``: with a minimum above one and a member; ``broken``: stayed in part, with an excuse."""

    gangs: int = 0
    gangs_whole: int = 0
    gangs_broken: int = 0
    gangs_partial: int = 0
    gangs_scattered: int = 0
    groups_half_evicted: int = 0
    gangs_broken_needlessly: int = 0
    evictions_unjust: int = 0
    over_quota: int = 0
    gang_bind_ms: dict[str, float] = field(default_factory=dict)
    """p50, p99 and the longest time from the first bind of a gang to the one that gave it its minimum."""

    @property
    def wrong(self) -> bool:
        """Whether a rule was broken."""
        return any(getattr(self, name) for name in CHECKS.values())


CHECKS = {
    "partial": "gangs_partial", "orphan": "gangs_partial", "scattered": "gangs_scattered",
    "half": "groups_half_evicted", "second": "gangs_broken_needlessly", "evicted": "evictions_unjust",
    "quota": "over_quota",
}  # fmt: skip
"""Which figure counts a check."""


class UnitsAudit:
    """``note(text)`` is called for each violation, the check first. ``scheduler_name``: whose binds are judged
    (``pod_view``)."""

    def __init__(
        self, nodes: Mapping[str, NodeBook], note: Callable[[str], None], scheduler_name: str | None = None
    ) -> None:
        self._say = note
        self._scheduler_name = scheduler_name
        self._counts = dict.fromkeys(CHECKS.values(), 0)
        self.groups = Groups()
        self.pods: dict[str, AuditedPod] = {}
        self.gangs = Gangs(nodes, self._note)
        self.queues = Queues(self._note)
        self._evictions = EvictionsAudit(self.gangs, self._note, self._explains)
        self._nodes = nodes
        self._now_s = 0.0
        self._gave_way: dict[str, float] = {}
        """By group, when a member last left where less is lent: the others leave with it, wherever they stand."""
        self._rv = 0

    def _note(self, check: str, text: str) -> None:
        self._counts[CHECKS[check]] += 1
        self._say(f"{check}: {text} (rv {self._rv})")

    def feed(self, entry: LogEntry) -> None:
        """Take one accepted change into account."""
        self._rv, self._now_s = entry.rv, entry.time_s
        self.passed(entry.time_s)
        if entry.kind == "Pod":
            self._pod(entry)
        elif entry.kind == "Node":
            if entry.gone:
                self.gangs.node_gone(entry.time_s)
        elif entry.kind == "PodDisruptionBudget":
            self._evictions.budgets = True
        elif entry.kind == QUEUE_KIND:
            self.queues.change(entry.object, gone=entry.gone, time_s=entry.time_s)
        elif entry.kind in GROUP_KINDS:
            key = self.groups.change(entry.kind, entry.object, gone=entry.gone, time_s=entry.time_s)
            if key is not None:
                group = self.groups.get(key)
                self.gangs.group(group, entry.time_s)
                self.queues.group(group)

    def _explains(self, pod: AuditedPod) -> bool:
        """Whether the objects tell why the pod is evicted: its queue, or what is lent."""
        fellows = self.gangs.get(pod.group).standing.values() if pod.group is not None else ()
        key = pod.group.key if pod.group is not None else ""
        if gives_way(pod, fellows, self._nodes, self._now_s):
            self._gave_way[key] = self._now_s
            return True
        together = pod.offline and key and self._now_s - self._gave_way.get(key, -TOGETHER_S) < TOGETHER_S
        return bool(together) or self.queues.explains(pod)

    def _pod(self, entry: LogEntry) -> None:
        before = self.pods.get(entry.uid)
        after = None if entry.gone else pod_view(entry.object, self.groups, self._scheduler_name)
        if after is None:
            self.pods.pop(entry.uid, None)
        else:
            self.pods[entry.uid] = after
        came = after is not None and after.node and (before.node if before else "") != after.node
        bound = bool(came) and (before is not None or entry.verb == "bind")
        self.gangs.pod(before, after, bound=bound, time_s=entry.time_s)
        self.queues.pod(before, after, bound=bound, time_s=entry.time_s)
        self._evictions.pod(before, after, entry.time_s)

    def passed(self, time_s: float) -> None:
        """It is that late now."""
        self.gangs.passed(time_s)
        self._evictions.passed(time_s)

    def members(self, group: AuditedGroup) -> list[AuditedPod]:
        """Pods of a group that are there and have not finished."""
        return [pod for pod in self.pods.values() if pod.group is group and not pod.finished]

    def report(self) -> UnitReport:
        """The verdict on everything fed so far; what stands in part now counts. Only once."""
        self.gangs.end()
        self._evictions.end()
        known = [gang.group.key for gang in self.gangs if gang.group.facts is not None and gang.group.facts.minimum > 1]
        p50, p99, longest = nearest_rank([seconds * 1000 for seconds in self.gangs.took_s], 0.5, 0.99, 1.0)
        return UnitReport(
            gangs=len({*known, *self.gangs.whole}),
            gangs_whole=len(self.gangs.whole),
            gangs_broken=len(self.gangs.broken),
            gang_bind_ms={"p50": round(p50, 1), "p99": round(p99, 1), "max": round(longest, 1)},
            **self._counts,
        )
