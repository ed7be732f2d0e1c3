"""The audit: recompute from the API server's file alone what the mesh claims of itself.

In: entries of ``audit_log``. Out: one ``AuditReport``. It trusts neither the scheduler nor its figures, shares no code
with it, and looks at nothing but the file. What is counted:

- ``pods_bound``: pods (uids) that got a node by a bind; ``double_bound``: those that got one more than once;
- ``overcommitted_nodes``: nodes that at any time got a pod beyond their allocatable;
- ``zones_overcommitted``: nodes that at any time got a pod by which no seating in their zones exists; Bindings of
  which that could not be found out are ``zones_unjudged`` (``zone_sums``);
- ``lent_overcommitted``: of the over-committed nodes those that got more of what they lend than they lend;
- ``lent_wrong``: writes of what nodes lend that took another's place, or cannot be (``loans``);
- ``reserved_wrong``: Bindings by which room that a Reservation keeps went to others, or was taken twice
  (``reservations``);
- ``gpu_violations``: pods whose devices are missing, wrong or over-used (no device over 1000);
- ``misplaced``: pods bound against a selector, affinity, taint or host port, against required affinity or
  anti-affinity to other pods, a DoNotSchedule spread, or what their volumes allow;
- ``devices_twice``: devices that several claims have for themselves at the end; ``claims_leaked``: claims that the mesh
  wrote and whose devices, consumers or finalizer are left though no pod that they are reserved for is bound, for
  longer than whoever frees them may take, or waits for its devices' driver;
- of the pods left unbound at the end: ``schedulable_but_unbound`` where some node fits, ``pods_unschedulable`` where
  none does and the pod says so; ``lost``: every pod that is neither bound, nor deleted, nor shown unschedulable because
  no node fits. Gated, finished and terminating pods wait for nobody and are none of these;
- ``pods_held_by_drains``: unbound, and every node that fits is drained from scheduling. A drain is between an operator
  and the mesh: the API server does not see it. So drained is what the caller names; where it names none, a pod is
  believed whose condition tells of at least as many drained nodes as there are nodes that fit. These are not lost;
- of gangs, their topology, queues and evictions what ``units`` finds (``UnitReport``). A member of a gang is left
  unbound with its gang: a node that would take it alone proves nothing while the minimum does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from lab.audit.devices import KIND as CLAIM_KIND
from lab.audit.devices import DevicesAudit
from lab.audit.judges.gangs import BINDING_S
from lab.audit.judges.units import UnitReport, UnitsAudit
from lab.audit.judges.waiting import WaitingAudit
from lab.audit.ledger import ELIGIBILITY_GRACE_S, NodeBook
from lab.audit.loans import LoansAudit
from lab.audit.log import LogEntry
from lab.audit.relations import FOREVER, Landing, RelationsAudit, stander
from lab.audit.reservations import KIND as RESERVATION_KIND
from lab.audit.reservations import Reservations
from lab.audit.rules import AuditedPodFacts, Json, bears_us, beyond_us, node_facts, pod_facts, waits_for_latency
from lab.audit.storage import KINDS as STORAGE_KINDS
from lab.audit.storage import StorageAudit
from lab.audit.zone_sums import ZoneSums
from lab.audit.zones import KINDS as TOPOLOGY_KINDS
from lab.audit.zones import ZonesAudit, refused

FINISHED = ("Succeeded", "Failed")
MAX_EXAMPLES = 20
_DRAINED = re.compile(r"\b([0-9]{1,6}) (?:node\(s\) were )?drained from scheduling by ")
"""In a condition's message: how many nodes it tells of. ADR 0010: the words are repeated here, not imported."""
FOREIGN_SCHEDULER = "default-scheduler"
"""Pending pods of this name are another scheduler's, unless the caller asks for it by name."""


@dataclass(slots=True)
class AuditReport:
    """What the file shows. ``ok``: nothing was bound twice, over-committed, misplaced, leaked or lost."""

    pods_submitted: int = 0
    pods_bound: int = 0
    pods_unschedulable: int = 0
    pods_held_by_drains: int = 0
    pods_deleted: int = 0
    pods_finished: int = 0
    double_bound: int = 0
    overcommitted_nodes: int = 0
    zones_overcommitted: int = 0
    zones_unjudged: int = 0
    lent_overcommitted: int = 0
    lent_wrong: int = 0
    reserved_wrong: int = 0
    gpu_violations: int = 0
    misplaced: int = 0
    devices_twice: int = 0
    claims_leaked: int = 0
    schedulable_but_unbound: int = 0
    lost: int = 0
    refused_by_kubelets: int = 0
    """Bound, and refused for want of room on the node, or in one zone; a late exporter may be why of the latter."""
    units: UnitReport = field(default_factory=UnitReport)
    first_submit_s: float | None = None
    last_bind_s: float | None = None
    examples: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every invariant held."""
        wrong = (
            self.double_bound, self.overcommitted_nodes, self.zones_overcommitted, self.lent_overcommitted,
            self.lent_wrong, self.reserved_wrong, self.gpu_violations, self.misplaced, self.devices_twice,
            self.claims_leaked, self.schedulable_but_unbound, self.lost,
        )  # fmt: skip
        return not (any(wrong) or self.units.wrong)

    def to_json(self) -> dict[str, Any]:
        """The figures by name, those of gangs, queues and evictions among them, with ``ok``."""
        figures = asdict(self)
        units, examples = figures.pop("units"), figures.pop("examples")
        return {**figures, **units, "examples": examples, "ok": self.ok}


@dataclass(slots=True)
class _PodRecord:
    """One uid. ``binds`` counts every time it got a node that it did not have."""

    key: str
    facts: AuditedPodFacts
    mine: bool
    node: str = ""
    binds: int = 0
    phase: str = ""
    terminating: bool = False
    gated: bool = False
    deleted: bool = False
    ended_s: float = FOREVER
    shown_unschedulable: bool = False
    told_drained: int = 0
    """Nodes that the condition says are drained from scheduling."""
    gang: str | None = None
    """Key of the gang with which it was bound."""


class Audit:
    """Feed every entry in order, then take ``report()``.

    ``scheduler_name`` limits "unschedulable", "lost" and "submitted" to its pods; None: every scheduler's but
    ``default-scheduler``'s. Bindings and over-commitment are counted whoever caused them. ``drained``: nodes that were
    drained from scheduling at the end.
    """

    def __init__(self, scheduler_name: str | None = None, drained: Collection[str] = ()) -> None:
        self._drained = frozenset(drained)
        self._scheduler_name = scheduler_name
        self._pods: dict[str, _PodRecord] = {}
        self._nodes: dict[str, NodeBook] = {}
        self._specs: dict[str, Json] = {}
        self._pending: dict[str, Json] = {}
        self._relations = RelationsAudit(self._nodes)
        self._storage = StorageAudit()
        self._devices = DevicesAudit()
        self._zones = ZonesAudit()
        self._zone_sums = ZoneSums()
        self._loans = LoansAudit()
        self._reservations = Reservations(self._note)
        self._refused: set[str] = set()
        self._overcommitted: set[str] = set()
        self._zones_over: set[str] = set()
        self._lent_over: set[str] = set()
        self._gpu: set[str] = set()
        self._misplaced: set[str] = set()
        self._report = AuditReport()
        self._units = UnitsAudit(self._nodes, self._note, scheduler_name)
        self._landing = Landing(self._relations, self._landed_wrong, BINDING_S)
        self._now_s = 0.0
        self._bound_at: dict[str, tuple[str, int]] = {}
        """Node and resource version of the Bindings of gangs' members, by uid."""

    def feed(self, entry: LogEntry) -> None:
        """Take one accepted change into account."""
        self._now_s = entry.time_s
        self._landing.passed(entry.time_s)
        if entry.kind == "Node":
            facts = None if entry.gone else node_facts(entry.object)
            self._book(entry.name).change(facts, entry.time_s)
            for what in self._loans.change(entry):
                self._report.lent_wrong += 1
                self._note(f"lent: {what} (rv {entry.rv})")
        elif entry.kind == "Pod":
            self._pod_changed(entry)
        elif entry.kind == "Namespace":
            self._relations.namespace(entry.name, None if entry.gone else entry.object["metadata"].get("labels") or {})
        elif entry.kind in STORAGE_KINDS:
            key = f"{entry.namespace}/{entry.name}" if entry.namespace else entry.name
            self._storage.change(entry.kind, key, None if entry.gone else entry.object, entry.time_s)
        elif entry.kind == CLAIM_KIND:
            self._devices.change(f"{entry.namespace}/{entry.name}", None if entry.gone else entry.object, entry.time_s)
        elif entry.kind == RESERVATION_KIND:
            self._reservations.change(entry)
        elif entry.kind in TOPOLOGY_KINDS:
            self._zones.change(entry.name, None if entry.gone else entry.object, entry.kind)
            self._zone_sums.change(entry.kind, entry.name, None if entry.gone else entry.object, entry.time_s)
        self._units.feed(entry)

    def _book(self, node: str) -> NodeBook:
        return self._nodes.setdefault(node, NodeBook())

    def _pod_changed(self, entry: LogEntry) -> None:
        pod, uid = entry.object, entry.uid
        spec, status, meta = pod.get("spec") or {}, pod.get("status") or {}, pod["metadata"]
        record = self._pods.get(uid)
        if record is None:
            record = self._admit(entry, spec)
        elif spec.get("nodeName") or not _same_spec(self._specs[uid], spec) or record.facts.bears_us != bears_us(pod):
            record.facts = pod_facts(pod)
            if record.node:
                self._book(record.node).resize(uid, record.facts, entry.time_s)
        self._specs[uid] = spec
        record.phase = status.get("phase") or ""
        self._zones.saw(uid, pod, ended=entry.gone or record.phase in FINISHED)
        if record.mine and refused(pod) and uid not in self._refused:
            self._refused.add(uid)
            self._note(f"refused by its kubelet: {record.key} on {record.node}: {status['reason']} (rv {entry.rv})")
        record.terminating = bool(meta.get("deletionTimestamp"))
        record.gated = bool(spec.get("schedulingGates"))
        refusals = [
            str(condition.get("message") or "")
            for condition in status.get("conditions") or ()
            if condition.get("type") == "PodScheduled"
            and condition.get("status") == "False"
            and condition.get("reason") != "SchedulingGated"
        ]
        record.shown_unschedulable = bool(refusals)
        record.told_drained = sum(int(count) for message in refusals for count in _DRAINED.findall(message))
        node = spec.get("nodeName") or ""
        record.deleted = entry.gone
        if (entry.gone or record.phase in FINISHED) and record.ended_s == FOREVER:
            record.ended_s = entry.time_s
        before = self._pending.pop(uid, None)
        if entry.gone:
            self._leave(entry, record)
        elif entry.verb == "bind" or (node and node != record.node):
            self._bound(entry, record, node)
            book = self._book(node)
            if record.mine and entry.verb == "bind" and book.facts is not None:
                self._report.reserved_wrong += self._reservations.bound(
                    pod, before, node, record.facts.requests, book.used, book.facts.allocatable, entry.rv
                )
        elif record.phase in FINISHED:
            self._leave(entry, record)
        elif node:
            self._relations.stand(stander(pod, node), entry.time_s)
        elif record.mine:
            self._pending[uid] = pod

    def _admit(self, entry: LogEntry, spec: Json) -> _PodRecord:
        scheduler = spec.get("schedulerName") or FOREIGN_SCHEDULER
        mine = scheduler == self._scheduler_name if self._scheduler_name else scheduler != FOREIGN_SCHEDULER
        record = _PodRecord(f"{entry.namespace}/{entry.name}", pod_facts(entry.object), mine)
        self._pods[entry.uid] = record
        if mine:
            self._report.pods_submitted += 1
            if self._report.first_submit_s is None:
                self._report.first_submit_s = entry.time_s
        return record

    def _bound(self, entry: LogEntry, record: _PodRecord, node: str) -> None:
        created_there, unmet = entry.verb == "create", ""
        if not created_there:
            record.binds += 1
            if record.binds > 1 or record.node:
                self._note(f"double bound: {record.key} to {node}, earlier to {record.node or 'none'} (rv {entry.rv})")
            self._report.last_bind_s = entry.time_s
            error, unmet = self._judge(entry, record, node)
            if error or (unmet and record.gang is None):
                self._misplaced.add(entry.uid)
                self._note(f"misplaced: {record.key} on {node}: {error or unmet} (rv {entry.rv})")
                unmet = ""
        if record.node != node:
            # A pod that was bound twice counts on both nodes' books as the API server let it: on the new one from now.
            self._leave(entry, record)
        record.node = node
        pod = stander(entry.object, node)
        self._relations.stand(pod, entry.time_s)
        if record.gang is not None and not created_there:
            self._bound_at[entry.uid] = node, entry.rv
            self._landing.bound(record.gang, pod, unmet, entry.time_s)
        self._storage.stand(pod)
        annotations = entry.object["metadata"].get("annotations") or {}
        for check, what in self._book(node).add(entry.uid, record.facts, annotations, entry.time_s):
            if check in ("overcommitted", "overlent"):
                self._overcommitted.add(node)
                if check == "overlent":
                    self._lent_over.add(node)
            else:
                (self._gpu if check == "gpu" else self._misplaced).add(entry.uid)
            self._note(f"{check}: {record.key} on {node}: {what} (rv {entry.rv})")
        mine = record.mine and not created_there
        if what := self._zone_sums.bound(entry.uid, entry.object, node, entry.time_s, mine=mine):
            self._zones_over.add(node)
            self._note(f"zones: {record.key} on {node}: {what} (rv {entry.rv})")

    def _judge(self, entry: LogEntry, record: _PodRecord, node: str) -> tuple[str, str]:
        """Why a pod that is bound now may not be here, and why other pods forbid it; each empty when it may."""
        pod, seen = stander(entry.object, node), self._book(node).seen(entry.time_s)
        group = self._units.groups.of(entry.object)
        record.gang = group.key if group is not None and group.least(entry.time_s) > 1 else None
        error = self._book(node).placement_error(record.facts, entry.time_s)
        error = error or (self._storage.refusal(pod, seen[0], entry.time_s) if seen else "")
        error = error or (self._devices.refusal(entry.object, seen[0]) if seen else "")
        if record.mine and (beyond := beyond_us(record.facts.spec)):
            error = f"it asks for {beyond}, which nobody looked at"
        return error, "" if error else self._relations.refusal(pod, entry.time_s)

    def _landed_wrong(self, uid: str, error: str) -> None:
        """A member of a gang that no order of its Bindings excuses."""
        node, rv = self._bound_at[uid]
        self._misplaced.add(uid)
        self._note(f"misplaced: {self._pods[uid].key} on {node}: {error} (rv {rv})")

    def _leave(self, entry: LogEntry, record: _PodRecord) -> None:
        if record.node:
            self._book(record.node).remove(entry.uid)
            self._zone_sums.left(entry.uid, record.node)
            self._relations.leave(entry.namespace, entry.uid, entry.time_s)
            if record.gang is not None:
                self._landing.left(record.gang, entry.uid)
            self._storage.leave(entry.uid)
            self._reservations.left(entry.uid)

    def _note(self, example: str) -> None:
        if len(self._report.examples) < MAX_EXAMPLES:
            self._report.examples.append(example)

    def report(self) -> AuditReport:
        """The figures of everything fed so far; whoever is unbound now counts as left unbound."""
        report = self._report
        self._landing.passed(FOREVER, ends=True)
        report.pods_bound = sum(1 for record in self._pods.values() if record.binds)
        report.double_bound = sum(1 for record in self._pods.values() if record.binds > 1)
        report.pods_deleted = sum(1 for record in self._pods.values() if record.deleted)
        report.pods_finished = sum(1 for r in self._pods.values() if r.phase in FINISHED and not r.deleted)
        report.overcommitted_nodes = len(self._overcommitted)
        report.zones_overcommitted, report.lent_overcommitted = len(self._zones_over), len(self._lent_over)
        report.zones_unjudged = self._zone_sums.unjudged
        report.gpu_violations, report.misplaced = len(self._gpu), len(self._misplaced)
        twice = list(self._devices.twice())
        leaked = list(
            self._devices.leaked(self._uses, self._awaits, self._now_s - ELIGIBILITY_GRACE_S, self._group_is_there())
        )
        report.devices_twice, report.claims_leaked = len(twice), len(leaked)
        for what, found in (("device twice", twice), ("claim leaked", leaked)):
            for one in found:
                self._note(f"{what}: {one}")
        report.pods_unschedulable = report.schedulable_but_unbound = report.lost = 0
        report.pods_held_by_drains = 0
        report.refused_by_kubelets = len(self._refused)
        left = {
            uid: record for uid, record in self._pods.items()
            if record.mine and not (
                record.node or record.deleted or record.terminating or record.gated or record.phase in FINISHED
            )
        }  # fmt: skip
        waiting = WaitingAudit(
            self._units, self._nodes, {uid: record.facts for uid, record in left.items()}, self._drained
        )
        for uid, record in left.items():
            self._left_unbound(record, waiting.nodes(uid, self._admits))
        report.units = self._units.report()
        return report

    def _group_is_there(self) -> Callable[[str], bool]:
        """Whether one of Kubernetes' own is, by ``namespace/name``, or a pod of it runs."""
        running = {
            f"{self._pods[uid].key.partition('/')[0]}/{spec['schedulingGroup'].get('podGroupName')}"
            for uid, spec in self._specs.items()
            if spec.get("schedulingGroup") and self._uses(uid)
        }
        return lambda title: title in running or self._units.groups.get(f"podgroup {title}").facts is not None

    def _awaits(self, uid: str) -> bool:
        """Whether the pod is there and has not ended, or did so only just."""
        record = self._pods.get(uid)
        return record is not None and record.ended_s >= self._now_s - ELIGIBILITY_GRACE_S

    def _uses(self, uid: str) -> bool:
        """Whether it is bound, too, or has ended only just."""
        record = self._pods.get(uid)
        return record is not None and self._awaits(uid) and (bool(record.node) or record.ended_s < FOREVER)

    def _admits(self, uid: str, node: str) -> bool:
        """Whether the node takes one more such pod as things are. Whether it has devices for one, or is within a strict
        limit of latency to a target, is not judged: what agents measured is in no object."""
        record, book = self._pods[uid], self._nodes[node]
        if self._pending[uid]["spec"].get("resourceClaims") or waits_for_latency(self._pending[uid]):
            return False
        if book.facts is None or not book.admits(record.facts) or beyond_us(record.facts.spec):
            return False
        if not self._reservations.leave_room(
            self._pending[uid], node, record.facts.requests, book.used, book.facts.allocatable
        ):
            return False
        pod = stander(self._pending[uid], node)
        if not self._zones.admits(self._pending[uid], node):
            return False
        return not self._relations.refusal(pod, FOREVER) and self._storage.admits(pod, book.facts)

    def _left_unbound(self, record: _PodRecord, fitting: list[str]) -> None:
        """``fitting``: all of them, since a pod may tell of one drained node while it fits another that is open."""
        open_ = [name for name in fitting if name not in self._drained]
        told = 0 if self._drained else record.told_drained
        if fitting and record.shown_unschedulable and len(open_) <= told:
            self._report.pods_held_by_drains += 1
        elif open_:
            self._report.schedulable_but_unbound += 1
            self._report.lost += 1
            self._note(f"lost: {record.key} is unbound but {open_[0]} fits it")
        elif record.shown_unschedulable:
            self._report.pods_unschedulable += 1
        else:
            self._report.lost += 1
            self._note(f"lost: {record.key} is unbound and not shown unschedulable (no node fits it)")


def audit(entries: Iterable[LogEntry], scheduler_name: str | None = None, drained: Collection[str] = ()) -> AuditReport:
    """The report of a whole file."""
    book = Audit(scheduler_name, drained)
    for entry in entries:
        book.feed(entry)
    return book.report()


def _same_spec(old: Json, new: Json) -> bool:
    """Whether nothing that decides feasibility changed; the node's name alone is not such a change."""
    return old is new or {**old, "nodeName": None} == {**new, "nodeName": None}
