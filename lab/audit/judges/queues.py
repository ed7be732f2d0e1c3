"""The audit's rule for queues: no bind takes a queue, or a queue above it in the tree, over its maximum.

A queue uses what its bound pods ask for until they have finished or are gone, and what the queues below it use. A pod
is in the queue that its label names, else its group's label, else the one that its namespace is bound to. What an
operator changed less than ``GRACE_S`` before counts in the form that is better for the scheduler. Where no Queue is
served there is nothing to judge.

Guaranteed amounts, order and shares are matters of time and demand; the audit does not judge them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from lab.audit.judges.groups import AuditedGroup
from lab.audit.ledger import ELIGIBILITY_GRACE_S as GRACE_S
from lab.audit.pods import AuditedPod
from lab.audit.rules import Amounts, Json, add, amounts

KIND = "Queue"
LABEL = "conclave.io/queue"
DEEPEST = 4
"""So many levels a tree of queues may have."""


@dataclass(frozen=True, slots=True)
class AuditedQueue:
    """One Queue as an audit line showed it. A resource that ``maximum`` does not name is not limited. ``maximum``: also
    by what it is guaranteed and may borrow, where the latter is limited."""

    parent: str = ""
    namespaces: tuple[str, ...] = ()
    guaranteed: tuple[tuple[str, int], ...] = ()
    maximum: tuple[tuple[str, int], ...] = ()
    reclaims: bool = False
    """What was borrowed from it is taken back by eviction."""
    within: bool = False
    """Its own pods of lower priority make room where its limit holds a unit back."""


def queue_facts(obj: Json) -> AuditedQueue:
    """Read a Queue. A quantity that is none limits nothing: the object is told so by others."""
    spec = obj.get("spec") or {}
    reclaim = spec.get("reclaim") or {}
    guaranteed, maximum = _amounts(spec.get("guaranteed")), _amounts(spec.get("maximum"))
    for name, more in _amounts(spec.get("borrowingLimit")).items():
        most = guaranteed.get(name, 0) + more
        maximum[name] = min(maximum.get(name, most), most)
    return AuditedQueue(
        parent=spec.get("parent") or "",
        namespaces=tuple(spec.get("namespaces") or ()),
        guaranteed=tuple(sorted(guaranteed.items())),
        maximum=tuple(sorted(maximum.items())),
        reclaims=bool(reclaim.get("enabled")),
        within=reclaim.get("withinQueue") == "LowerPriority",
    )


def _amounts(quantities: Json | None) -> Amounts:
    try:
        return amounts(quantities)
    except ValueError:
        return {}


@dataclass(slots=True)
class _Queue:
    facts: AuditedQueue | None = None
    lately: deque[tuple[float, AuditedQueue | None]] = field(default_factory=deque)
    used: Amounts = field(default_factory=dict)
    """Of its own pods and of those in the queues below it."""

    def maximum(self, resource: str, time_s: float) -> float:
        """The largest limit that somebody may have gone by; infinite where there was none."""
        seen = [self.facts, *(facts for until_s, facts in self.lately if until_s >= time_s - GRACE_S)]
        return max(dict(facts.maximum).get(resource, float("inf")) if facts else float("inf") for facts in seen)


class Queues:
    """Feed queues and pods in order. ``note(check, text)`` is called for each violation."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self._note = note
        self._queues: dict[str, _Queue] = {}
        self._holding: dict[str, tuple[AuditedPod, str]] = {}
        self._named: dict[str, str] = {}
        """By group, the queue that it names."""

    def change(self, obj: Json, *, gone: bool, time_s: float) -> None:
        """A Queue came, changed or went."""
        queue = self._queues.setdefault(obj["metadata"]["name"], _Queue())
        before, after = queue.facts, None if gone else queue_facts(obj)
        queue.facts = after
        if before != after:
            queue.lately.append((time_s, before))
        while queue.lately and queue.lately[0][0] < time_s - GRACE_S:
            queue.lately.popleft()
        if _whose(before) != _whose(after):
            self._count_again()

    def group(self, group: AuditedGroup) -> None:
        """A group's object came, changed or went: its members may count elsewhere."""
        name = dict(group.facts.labels).get(LABEL, "") if group.facts is not None else ""
        if self._named.get(group.key, "") == name:
            return
        self._named[group.key] = name
        for pod in [pod for pod, _ in self._holding.values() if pod.group is group]:
            self._release(pod.uid)
            self._hold(pod)

    def _count_again(self) -> None:
        for queue in self._queues.values():
            queue.used = {}
        for pod, _ in list(self._holding.values()):
            self._hold(pod)

    def of(self, pod: AuditedPod) -> str:
        """The name of a pod's queue; "": it is in none."""
        name = dict(pod.labels).get(LABEL)
        if not name and pod.group is not None and pod.group.facts is not None:
            name = dict(pod.group.facts.labels).get(LABEL)
        if name:
            return name
        named = (title for title, queue in self._queues.items()
                 if queue.facts is not None and pod.namespace in queue.facts.namespaces)  # fmt: skip
        return min(named, default="")

    def _chain(self, name: str) -> Iterator[tuple[str, _Queue]]:
        """The queue and those above it; a loop ends where it closes."""
        seen: set[str] = set()
        while name and name not in seen and (queue := self._queues.get(name)) is not None:
            seen.add(name)
            yield name, queue
            name = queue.facts.parent if queue.facts is not None else ""

    def pod(self, before: AuditedPod | None, after: AuditedPod | None, *, bound: bool, time_s: float) -> None:
        """A pod came, changed or is gone."""
        if (pod := after or before) is None or not pod.mine:
            return
        self._release(pod.uid)
        if after is None or after.finished or not after.node:
            return
        name = self._hold(after)
        if not bound:
            return
        for title, queue in self._chain(name):
            for resource, _ in after.requests:
                limit = queue.maximum(resource, time_s)
                if queue.used.get(resource, 0) > limit:
                    used = queue.used[resource]
                    self._note("quota", f"{after.key} takes queue {title} to {used} of {resource}, at most {limit:g}")

    def _hold(self, pod: AuditedPod) -> str:
        name = self.of(pod)
        self._holding[pod.uid] = (pod, name)
        for _, queue in self._chain(name):
            add(queue.used, pod.amounts)
        return name

    def _release(self, uid: str) -> None:
        known = self._holding.pop(uid, None)
        if known is not None:
            for _, queue in self._chain(known[1]):
                add(queue.used, known[0].amounts, -1)

    def holds_back(self, pod: AuditedPod, asked: Amounts) -> bool:
        """Whether so much more for that pod's unit would take a queue over its maximum as things are; a queue that
        is named and cannot be used holds everything back."""
        name = self.of(pod)
        if self._unusable(name):
            return True
        for _, queue in self._chain(name):
            limits = dict(queue.facts.maximum) if queue.facts is not None else {}
            if any(queue.used.get(resource, 0) + value > limits.get(resource, float("inf"))
                   for resource, value in asked.items()):  # fmt: skip
                return True
        return False

    def _unusable(self, name: str) -> bool:
        """Whether the queue, or one above it, is not there, is guaranteed more than it may have, or is on a way up that
        is too long or never ends."""
        for _ in range(DEEPEST):
            if not name:
                return False
            queue = self._queues.get(name)
            if queue is None or queue.facts is None:
                return True
            most = dict(queue.facts.maximum)
            if any(amount > most.get(resource, amount) for resource, amount in queue.facts.guaranteed):
                return True
            name = queue.facts.parent
        return bool(name)

    def explains(self, pod: AuditedPod) -> bool:
        """Whether a pod that is evicted just now gives back what its queue, or one above it, had only borrowed, or
        makes room within its queue; then whoever gains need not go to its node."""
        chain = [queue for _, queue in self._chain(self.of(pod)) if queue.facts is not None]
        if any(queue.facts is not None and queue.facts.within for queue in chain):
            return True
        reclaimed = any(other.facts is not None and other.facts.reclaims for other in self._queues.values())
        return reclaimed and any(self._borrows(queue, pod) for queue in chain)

    @staticmethod
    def _borrows(queue: _Queue, pod: AuditedPod) -> bool:
        guaranteed = dict(queue.facts.guaranteed) if queue.facts is not None else {}
        return any(queue.used.get(resource, 0) > guaranteed.get(resource, 0) for resource, _ in pod.requests)


def _whose(facts: AuditedQueue | None) -> tuple[str, tuple[str, ...]] | None:
    """What decides whose pods count in the queue, and where its own count."""
    return None if facts is None else (facts.parent, tuple(facts.namespaces))
