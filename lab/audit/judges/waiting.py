"""The audit's question about those left unbound: could the unit that a pod belongs to be placed as things are?

A lone pod could where a node admits it; a member of a gang could where enough members to make up the minimum fit
together, within one domain where the group asks for that. The answer is yes only with a placement in hand (first fit),
so a gang that waits is never called lost for an arithmetic that this file cannot do: members that depend on each other
by affinity, spread or volumes, and members that share devices, are believed when they say that they do not fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from lab.audit.judges.gangs import AuditedGang
from lab.audit.judges.groups import AuditedGroup
from lab.audit.judges.units import UnitsAudit
from lab.audit.ledger import NodeBook
from lab.audit.relations import FOREVER
from lab.audit.rules import Amounts, AuditedPodFacts, Json, add

Admits = Callable[[str, str], bool]
"""(pod uid, node name): whether the node takes one more such pod."""


class WaitingAudit:
    """The verdict at the end, unit by unit. ``pods``: of every pod left unbound, by uid."""

    def __init__(
        self,
        units: UnitsAudit,
        nodes: Mapping[str, NodeBook],
        pods: Mapping[str, AuditedPodFacts],
        drained: Collection[str] = (),
    ) -> None:
        """``drained``: nodes on which a gang is not tried."""
        self._units = units
        self._nodes = nodes
        self._drained = drained
        self._pods = pods
        self._members: defaultdict[str, list[str]] = defaultdict(list)
        self._together: dict[str, bool] = {}
        for uid in pods:
            group = units.pods[uid].group
            if group is not None:
                self._members[group.key].append(uid)

    def nodes(self, uid: str, admits: Admits) -> list[str]:
        """The nodes that would take the pod now, its whole unit considered."""
        pod = self._units.pods[uid]
        if self._units.queues.holds_back(pod, pod.amounts):
            return []
        if pod.group is None:
            return [name for name in self._nodes if admits(uid, name)]
        if not self._group_fits(pod.group, admits):
            return []
        allowed = {name for domain in self._domains(self._units.gangs.get(pod.group)) for name in domain}
        return [name for name in self._nodes if name in allowed and admits(uid, name)]

    def _group_fits(self, group: AuditedGroup, admits: Admits) -> bool:
        """Whether so many of its waiting members as are missing to the minimum find room together."""
        if group.key not in self._together:
            self._together[group.key] = group.facts is not None and not group.facts.refused and self._try(group, admits)
        return self._together[group.key]

    def _try(self, group: AuditedGroup, admits: Admits) -> bool:
        gang, waiting = self._units.gangs.get(group), self._members[group.key]
        for name, amount in group.facts.demands if group.facts is not None and not gang.standing else ():
            if sum(book.facts.allocatable.get(name, 0) for book in self._nodes.values() if book.facts) < amount:
                return False
        missing = (group.facts.minimum if group.facts is not None else 1) - len(gang.standing)
        if missing > len(waiting) or not all(pod.mine for pod in self._units.members(group)):
            return False
        if missing <= 1:
            return True  # each is judged by itself
        if any(_depends(self._pods[uid]) for uid in waiting):
            return False
        asked: Amounts = {}
        least = sorted((self._pods[uid].requests for uid in waiting), key=lambda one: sum(one.values()))
        for amounts in least[:missing]:
            add(asked, amounts)
        if self._units.queues.holds_back(self._units.pods[waiting[0]], asked):
            return False
        open_ = ([name for name in nodes if name not in self._drained] for nodes in self._domains(gang))
        return any(self._place(waiting, missing, nodes, admits) for nodes in open_)

    def _place(self, waiting: Sequence[str], missing: int, nodes: Sequence[str], admits: Admits) -> bool:
        """First fit, the same shape never twice on a node that refused it."""
        tried: list[tuple[NodeBook, str]] = []
        shape: Json = {}
        left: Iterator[str] = iter(())
        node = ""
        try:
            for uid in waiting:
                facts = self._pods[uid]
                if facts.spec != shape or not node:
                    shape, left = facts.spec, iter(nodes)
                    node = next(left, "")
                while node and not admits(uid, node):
                    node = next(left, "")
                if not node:
                    continue
                book = self._nodes[node]
                trial = f"trial {uid}"
                list(book.add(trial, facts, {}, FOREVER))
                tried.append((book, trial))
                if len(tried) == missing:
                    return True
            return False
        finally:
            for book, trial in tried:
                book.remove(trial)

    def _domains(self, gang: AuditedGang) -> Iterator[list[str]]:
        """The nodes among which the group may be placed, one list per domain; one list of all without a topology."""
        key = gang.group.facts.topology if gang.group.facts is not None else ""
        if not key:
            yield list(self._nodes)
            return
        taken = {pod.node for pod in gang.standing.values()}
        domains: defaultdict[str, list[str]] = defaultdict(list)
        for name, book in self._nodes.items():
            if book.facts is not None and book.facts.labels.get(key):
                domains[book.facts.labels[key]].append(name)
        yield from (nodes for nodes in domains.values() if taken <= set(nodes))


def _depends(facts: AuditedPodFacts) -> bool:
    """Whether where one member is decides where another may be, beyond what nodes offer."""
    spec = facts.spec
    affinity = spec.get("affinity") or {}
    among = affinity.get("podAffinity") or affinity.get("podAntiAffinity") or spec.get("topologySpreadConstraints")
    return bool(among or spec.get("volumes") or facts.ports or facts.gpu_milli)
