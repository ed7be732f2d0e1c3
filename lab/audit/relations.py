"""The audit's rules among pods: required (anti-)affinity and DoNotSchedule spread, as a Binding found them.

A Binding counts against what the API server had at that moment, in the order in which it accepted the changes: what a
scheduler had decided but not yet bound excuses nothing. Only what others did less than ``GRACE_S`` before, and what
nobody can have seen, is given the benefit of the doubt: a pod that left may still be counted, a node that came or
changed may be left out.

Sources: kube-scheduler 1.36 ``plugins/interpodaffinity``, ``plugins/podtopologyspread``. Preferences are not judged.
``matchLabelKeys`` are merged into the selectors by the API server.

Members of a gang are decided together, and their Bindings land in any order. One that should not have been bound at
that moment is judged again once the others have landed (``Landing``): some order of them must have been right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lab.audit.ledger import ELIGIBILITY_GRACE_S as GRACE_S
from lab.audit.ledger import NodeBook
from lab.audit.rules import Json, NodeFacts, selected_by, taint_in_the_way
from twin.model.plain_selectors import is_empty, selects

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
FOREVER = float("inf")
"""The time at which everybody has seen everything."""


@dataclass(frozen=True, slots=True)
class Stander:
    """A pod that stands on ``node``, or is to stand there."""

    uid: str
    key: str
    namespace: str
    labels: Mapping[str, str]
    spec: Json
    node: str
    terminating: bool = False


def stander(pod: Json, node: str) -> Stander:
    """Read a Pod object."""
    meta = pod["metadata"]
    namespace = meta.get("namespace") or ""
    return Stander(
        meta.get("uid", ""), f"{namespace}/{meta['name']}", namespace, meta.get("labels") or {}, pod.get("spec") or {},
        node, bool(meta.get("deletionTimestamp")),
    )  # fmt: skip


class RelationsAudit:
    """Who stands where. ``nodes``: the audit's books by node name, which somebody else keeps."""

    def __init__(self, nodes: Mapping[str, NodeBook]) -> None:
        self._nodes = nodes
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._standing: dict[str, dict[str, Stander]] = {}
        self._apart: dict[str, Stander] = {}
        self._left: deque[tuple[float, Stander]] = deque()

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace came, changed or (None) went."""
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels

    def stand(self, pod: Stander, time_s: float) -> None:
        """A pod stands on its node, or changed there."""
        known = self._standing.get(pod.namespace, {}).get(pod.uid)
        if known is not None and known != pod:
            self._remember(known, time_s)
        self._put(pod)

    def leave(self, namespace: str, uid: str, time_s: float) -> None:
        """A pod finished or is gone; one that stood nowhere is fine."""
        known = self._standing.get(namespace, {}).pop(uid, None)
        self._apart.pop(uid, None)
        if known is not None:
            self._remember(known, time_s)

    def _remember(self, pod: Stander, time_s: float) -> None:
        self._left.append((time_s, pod))
        while time_s - self._left[0][0] > GRACE_S:
            self._left.popleft()

    def refusal(self, pod: Stander, time_s: float) -> str:
        """The rule among pods by which ``pod`` should not be bound to its node now; empty when there is none.

        ``FOREVER`` as the time: nothing is given the benefit of the doubt.
        """
        book = self._nodes.get(pod.node)
        found = ""
        for facts in book.seen(time_s) if book is not None else ():
            found = self._apart_from(pod, facts) or self._near(pod, facts, time_s) or self._skewed(pod, facts, time_s)
            if not found:
                return ""
        return found

    def in_no_order(self, pods: Sequence[Stander], time_s: float) -> list[Stander]:
        """Those of these pods, which stand, that could not have been bound after any of the others."""
        for pod in pods:
            self._standing.get(pod.namespace, {}).pop(pod.uid, None)
            self._apart.pop(pod.uid, None)
        left, before = list(pods), -1
        while left and len(left) != before:
            before, late = len(left), []
            for pod in left:
                if self.refusal(pod, time_s):
                    late.append(pod)
                else:
                    self._put(pod)
            left = late
        for pod in left:
            self._put(pod)
        return left

    def _put(self, pod: Stander) -> None:
        self._standing.setdefault(pod.namespace, {})[pod.uid] = pod
        if any(_terms(pod, "podAntiAffinity")):
            self._apart[pod.uid] = pod

    # --- affinity -------------------------------------------------------------------------------------------------

    def _apart_from(self, pod: Stander, facts: NodeFacts) -> str:
        for term in _terms(pod, "podAntiAffinity"):
            for other in self._covered(term, pod):
                if self._shares(term, facts, other):
                    return f"required anti-affinity to {other.key} ({term.get('topologyKey')})"
        for other in self._apart.values():
            if other.uid == pod.uid:
                continue
            for term in _terms(other, "podAntiAffinity"):
                if self._covers(term, other, pod) and self._shares(term, facts, other):
                    return f"required anti-affinity of {other.key} to it ({term.get('topologyKey')})"
        return ""

    def _near(self, pod: Stander, facts: NodeFacts, time_s: float) -> str:
        """An existing pod counts only if all terms cover it; the first of its kind needs nobody."""
        terms = list(_terms(pod, "podAffinity"))
        if not terms:
            return ""
        for key in {term.get("topologyKey", "") for term in terms}:
            if key not in facts.labels:
                return f"required affinity: the node has no label {key}"
        peers = [
            other
            for other in (*self._everybody(), *self._lately(time_s))
            if other.uid != pod.uid and all(self._covers(term, pod, other) for term in terms)
        ]
        if not peers:
            alone = all(self._covers(term, pod, pod) for term in terms)
            return "" if alone else "required affinity to pods that are not there"
        for term in terms:
            if not any(self._shares(term, facts, other) for other in peers):
                return f"required affinity: no such pod in its {term.get('topologyKey')}"
        return ""

    def _covered(self, term: Json, pod: Stander) -> Iterator[Stander]:
        for other in self._everybody():
            if other.uid != pod.uid and self._covers(term, pod, other):
                yield other

    def _covers(self, term: Json, owner: Stander, other: Stander) -> bool:
        """Whether a term of ``owner`` speaks of ``other``."""
        names, wanted = term.get("namespaces") or (), term.get("namespaceSelector")
        if not names and wanted is None:
            inside = other.namespace == owner.namespace
        else:
            labels = self._namespaces.get(other.namespace, {NAMESPACE_NAME: other.namespace})
            inside = other.namespace in names or selects(wanted, labels)
        return inside and selects(term.get("labelSelector"), other.labels)

    def _shares(self, term: Json, facts: NodeFacts, other: Stander) -> bool:
        """Whether ``other`` stands in the domain of a node."""
        key, book = term.get("topologyKey", ""), self._nodes.get(other.node)
        there = facts if other.node == facts.name else book.facts if book is not None else None
        return there is not None and key in facts.labels and there.labels.get(key) == facts.labels[key]

    def _everybody(self) -> Iterator[Stander]:
        for pods in self._standing.values():
            yield from pods.values()

    def _lately(self, time_s: float) -> Iterator[Stander]:
        """Pods as they were before they left or changed, so shortly ago that nobody need have seen it."""
        for left_s, pod in self._left:
            if time_s - left_s <= GRACE_S:
                yield pod

    # --- spread ---------------------------------------------------------------------------------------------------

    def _skewed(self, pod: Stander, facts: NodeFacts, time_s: float) -> str:
        hard = [
            rule
            for rule in pod.spec.get("topologySpreadConstraints") or ()
            if (rule.get("whenUnsatisfiable") or "DoNotSchedule") == "DoNotSchedule"
        ]
        keys = {rule["topologyKey"] for rule in hard}
        for rule in hard:
            key, allowed = rule["topologyKey"], rule["maxSkew"]
            if key not in facts.labels:
                return f"spread: the node has no label {key}"
            mine, least = self._counts(rule, pod, facts, keys, time_s)
            own = selects(rule.get("labelSelector"), pod.labels)
            if mine + own - least > allowed:
                return f"spread: {mine + own} pods in {key}={facts.labels[key]}, {least} in another, maxSkew {allowed}"
        return ""

    def _counts(self, rule: Json, pod: Stander, facts: NodeFacts, keys: set[str], time_s: float) -> tuple[int, int]:
        """(pods that the rule counts in the node's domain, the fewest in any domain)."""
        key = rule["topologyKey"]
        settled, fresh, of_node = set[str](), set[str](), dict[str, str]()
        for name, book in self._nodes.items():
            there = book.facts
            if there is None or not keys <= there.labels.keys() or not _counts_node(rule, pod, there):
                continue
            of_node[name] = there.labels[key]
            (fresh if time_s - book.changed_s <= GRACE_S else settled).add(there.labels[key])
        counts, lately = dict.fromkeys(settled | fresh, 0), dict.fromkeys(settled | fresh, 0)
        if not is_empty(rule.get("labelSelector")):
            counted = set[str]()
            for other in self._standing.get(pod.namespace, {}).values():
                if _counts_pod(rule, pod, other) and other.node in of_node:
                    counts[of_node[other.node]] += 1
                    counted.add(other.uid)
            for other in {other.uid: other for other in self._lately(time_s) if other.uid not in counted}.values():
                if other.namespace == pod.namespace and _counts_pod(rule, pod, other) and other.node in of_node:
                    lately[of_node[other.node]] += 1
        known = settled or fresh
        least = min((counts[domain] + lately[domain] for domain in known), default=0)
        if len(settled | fresh) < (rule.get("minDomains") or 1):
            least = 0
        return counts.get(facts.labels[key], 0), least


@dataclass(slots=True)
class _Landed:
    """Members of one gang that were bound lately, and which of them too early (with what was said), since when."""

    members: dict[str, tuple[Stander, float]] = field(default_factory=dict)
    early: dict[str, str] = field(default_factory=dict)
    since_s: float = 0.0
    last_s: float = 0.0


class Landing:
    """Gangs whose Bindings land. ``note(uid, text)`` is called for each member that no order of them excuses."""

    def __init__(self, relations: RelationsAudit, note: Callable[[str, str], None], settled_s: float) -> None:
        self._relations = relations
        self._note = note
        self._settled_s = settled_s
        self._gangs: dict[str, _Landed] = {}
        self._early: dict[str, None] = {}
        """Gangs with members that were bound too early."""

    def bound(self, gang: str, pod: Stander, error: str, time_s: float) -> None:
        """A member was bound, and stands; ``error``: why it should not have been at that moment, if anything."""
        landed = self._gangs.setdefault(gang, _Landed())
        if not landed.early:
            lately = {uid: one for uid, one in landed.members.items() if time_s - one[1] <= self._settled_s}
            landed.members, landed.since_s = lately, time_s
        landed.members[pod.uid] = pod, time_s
        landed.last_s = time_s
        if error:
            landed.early[pod.uid] = error
            self._early[gang] = None

    def left(self, gang: str, uid: str) -> None:
        """The member is gone, or has finished."""
        if (landed := self._gangs.get(gang)) is not None:
            landed.members.pop(uid, None)
            landed.early.pop(uid, None)

    def passed(self, time_s: float, *, ends: bool = False) -> None:
        """It is that late now."""
        for gang in list(self._early):
            landed = self._gangs[gang]
            if not ends and time_s - landed.last_s <= GRACE_S:
                continue
            now_s = landed.last_s if ends else time_s
            landed.last_s = now_s
            wrong = self._relations.in_no_order([pod for pod, _ in landed.members.values()], now_s)
            if wrong and not ends and now_s - landed.since_s <= self._settled_s:
                continue
            for pod in wrong:
                self._note(pod.uid, landed.early.get(pod.uid) or self._relations.refusal(pod, now_s))
            landed.early.clear()
            landed.members.clear()
            del self._early[gang]


def _counts_node(rule: Json, pod: Stander, facts: NodeFacts) -> bool:
    """Whether the node forms a domain by the rule's policies."""
    if (rule.get("nodeAffinityPolicy") or "Honor") == "Honor" and selected_by(pod.spec, facts):
        return False
    if (rule.get("nodeTaintsPolicy") or "Ignore") == "Honor":
        return not taint_in_the_way(pod.spec, facts, cordon=False)
    return True


def _counts_pod(rule: Json, pod: Stander, other: Stander) -> bool:
    return other.uid != pod.uid and not other.terminating and selects(rule.get("labelSelector"), other.labels)


def _terms(pod: Stander, kind: str) -> Iterator[Json]:
    affinity = pod.spec.get("affinity")
    if affinity:
        yield from (affinity.get(kind) or {}).get(REQUIRED) or ()
