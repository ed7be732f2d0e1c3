"""Takes in what the API server shows: which pods are ours and pending, what every pod and node counts, what may help.

Every pod that is bound to any node is accounted, ours or not (reliability.md 3.6). A pod is queued if it names this
scheduler, is not bound, terminating, gated or finished, and can be read; one that cannot be read, or that asks for what
is not supported, is told so and left aside until it changes. What may help parked pods is noted (``requeueing.py``),
which looks into it once per turn.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from services.coordinator.agents.registry import Roster
from services.coordinator.binding.plans import Ledger
from services.coordinator.core.state import State, Unwell
from services.coordinator.core.takeover import Takeover
from services.coordinator.cycle.losses import Losses
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.preemption.search import Preemptor
from services.coordinator.status.reporter import Notices
from shared.model.node import Node
from shared.model.pod import Pod
from shared.scheduling.gates import why_untried
from shared.scheduling.queue import ClusterEvent
from shared.scheduling.state.object_changes import drop_object, put_object

BUDGETS = "poddisruptionbudgets"

EVENT_OF_KIND = {
    "persistentvolumeclaims": ClusterEvent.CLAIM_CHANGED,
    "persistentvolumes": ClusterEvent.VOLUME_CHANGED,
    "storageclasses": ClusterEvent.STORAGE_CLASS_CHANGED,
    "csinodes": ClusterEvent.CSI_NODE_CHANGED,
    "namespaces": ClusterEvent.NAMESPACE_LABELS,
}
"""What may help parked pods; services and controllers decide scores only, budgets only whom to evict."""


class Intake:
    """Pods and nodes into cache and queue."""

    def __init__(
        self,
        state: State,
        roster: Roster,
        ledger: Ledger,
        takeover: Takeover,
        notices: Notices,
        losses: Losses,
        requeuer: Requeuer,
        preemptor: Preemptor,
    ) -> None:
        self._state = state
        self._preemptor = preemptor
        self._requeuer = requeuer
        self._roster = roster
        self._ledger = ledger
        self._takeover = takeover
        self._notices = notices
        self._losses = losses
        self._new_nodes: list[str] = []

    # --- pods ---------------------------------------------------------------------------------------------------

    def upsert_pod(self, pod: Pod) -> None:
        """A pod was added or changed."""
        state = self._state
        if pod.finished or pod.node_name:
            self._settled(pod)
            return
        account = state.cache.accounts.get(pod.uid)
        if account is not None and account.assumed_at is None:
            return  # a uid never loses its node: this is an older event, delivered again
        if not self._is_ours(pod):
            if pod.gates and pod.scheduler_name == state.scheduler_name and not pod.terminating:
                state.gated.add(pod.uid)
            else:
                state.gated.discard(pod.uid)
            if not self._ledger.holds(pod.uid) and not self._takeover.holds(pod.uid):
                self._drop(pod.uid)
            return
        state.gated.discard(pod.uid)
        if pod.invalid or pod.unsupported:
            self._refuse(pod)
            return
        state.untried.pop(pod.uid, None)
        if self._takeover.keep(pod):
            return
        pod = self._preemptor.as_nominated(pod)
        if pod.uid not in state.queue.entries:
            state.stats.pods_seen += 1
        self._nominate(pod)
        state.queue.add(pod, state.now)

    def delete_pod(self, uid: str) -> None:
        """The pod is gone."""
        self._state.gated.discard(uid)
        self._drop(uid)
        self.release(uid)

    def release(self, uid: str) -> None:
        """What the pod held is given up; parked pods that fit there now are woken."""
        stood = self._state.cluster.index.get(uid)
        held = self._state.cluster.forget(uid)
        if held is not None:
            self._freed(held.node_name)
        if stood is not None:
            self._requeuer.pod_changed(stood, ClusterEvent.POD_DELETED)

    def _settled(self, pod: Pod) -> None:
        """Bound (by anybody) or finished: it is not pending any more, and counts where it runs."""
        state = self._state
        before = state.cache.accounts.get(pod.uid)
        if pod.finished:
            self._drop(pod.uid)
            self.release(pod.uid)
            return
        stood = state.cluster.index.get(pod.uid)
        state.cluster.observe(pod)
        self._preemptor.landed(pod)
        self._drop(pod.uid)
        if before is None or before.assumed_at is not None:
            self._requeuer.pod_changed(pod, ClusterEvent.POD_ADDED)
        elif stood is not None and (stood.labels, stood.terminating) != (pod.labels, pod.terminating):
            self._requeuer.pod_changed(stood, ClusterEvent.POD_LABELS)  # a terminating one counts for spread no longer
            self._requeuer.pod_changed(pod, ClusterEvent.POD_LABELS)
        if before is not None and (before.node_name != pod.node_name or before.pod_class != pod.pod_class):
            self._freed(before.node_name)
        elif stood is not None and stood.preemptible != pod.preemptible:
            self._preemptor.forget_tries()
            self._freed(pod.node_name)  # it may be evicted now

    def _is_ours(self, pod: Pod) -> bool:
        return pod.scheduler_name == self._state.scheduler_name and not pod.terminating and not pod.gates

    def _refuse(self, pod: Pod) -> None:
        """The pod cannot be read, or asks for what nobody looks at: say so, do not queue it."""
        state = self._state
        state.queue.remove(pod.uid)
        state.cluster.withdraw_nomination(pod.uid)
        self._preemptor.forget(pod.uid)
        self._requeuer.attempt_ended(pod.uid)
        self._takeover.settle(pod.uid)
        before, since = state.untried.get(pod.uid, (None, state.now))
        state.untried[pod.uid] = pod, since
        if before is None or (before.invalid, before.unsupported) != (pod.invalid, pod.unsupported):
            state.stats.invalid_pods += 1
            problem = pod.invalid or pod.unsupported
            state.log("pod_refused", level="warning", pod_uid=pod.uid, pod=pod.key, problem=problem)
        self._notices.tell(pod, *why_untried(pod))

    def _drop(self, uid: str) -> None:
        if self._state.queue.remove(uid) is not None:
            self._state.cluster.withdraw_nomination(uid)
        self._ledger.settle(uid)
        self._takeover.settle(uid)
        self._notices.forget(uid)
        self._losses.won(uid)
        self._preemptor.forget(uid)
        self._requeuer.attempt_ended(uid)
        self._state.untried.pop(uid, None)

    # --- nodes --------------------------------------------------------------------------------------------------

    def upsert_node(self, node: Node, images: Mapping[str, int] | None = None) -> None:
        """A node was added or changed. Heartbeats and other changes that decide nothing are dropped here."""
        if problem := oversize(node):
            self._state.log("node_refused", level="warning", node=node.name, problem=problem)
            self.delete_node(node.name)
            return
        if node.conditions:
            self._state.unwell[node.name] = Unwell(node.conditions)
        else:
            self._state.unwell.pop(node.name, None)
        if node.deleting:
            node = replace(node, unschedulable=True)  # to the agents it is: all rules must judge it alike
        if (drained := self._state.drained.get(node.name)) is not None:
            node = replace(node, drained=drained.text)
        if images is not None:
            self._state.cluster.images.set(node.name, images)
        table = self._state.cache.table
        row = table.row_of.get(node.name)
        known = table.nodes[row] if row is not None else None
        if known is None:
            self._state.cluster.upsert_node(node)
            self._new_nodes.append(node.name)
            self._requeuer.node_changed(node.name, ClusterEvent.NODE_ADDED)
            return
        events = changes_of(known, node)
        if not events and known.latency_us == node.latency_us:
            return
        if known.uid != node.uid:
            self._state.log("node_recreated", node=node.name)
        self._state.cluster.upsert_node(node)
        for event in events:
            self._requeuer.node_changed(node.name, event)

    def delete_node(self, name: str) -> None:
        """A node is gone; its pods' accounts wait for their deletion."""
        self._state.unwell.pop(name, None)
        if name in self._state.cache.table.row_of:
            self._state.cluster.remove_node(name)
            self._requeuer.node_changed(name, ClusterEvent.NODE_DELETED)
            if name in self._new_nodes:
                self._new_nodes.remove(name)
            self._roster.remove_node(name)

    # --- other kinds --------------------------------------------------------------------------------------------

    def change_object(self, kind: str, key: str, item: object | None) -> None:
        """An object of another kind came, changed or went; what it may help is woken."""
        state = self._state
        if item is None:
            drop_object(state.cluster, kind, key)
        elif put_object(state.cluster, kind, key, item) == item:
            return
        state.objects_version += 1
        event = EVENT_OF_KIND.get(kind)
        if event is not None:
            self._requeuer.object_changed(event, key)
        elif kind == BUDGETS:
            state.budgets_version += 1
            self._requeuer.budgets_changed()

    def _nominate(self, pod: Pod) -> None:
        """Take over to which node the API server shows the pod nominated, if that changed."""
        state = self._state
        entry = state.queue.entries.get(pod.uid)
        known = entry.pod.nominated_node if entry is not None else ""
        if (pod.nominated_node or known) and pod.uid not in state.cache.accounts:
            state.cluster.nominate(pod)
            state.objects_version += 1

    # --- what may help parked pods ------------------------------------------------------------------------------

    def settle(self) -> None:
        """After a batch of events: deal the new nodes, offer what nominated pods gave up."""
        if self._new_nodes:
            names, self._new_nodes = self._new_nodes, []
            self._roster.add_nodes(names)
        state = self._state
        for node_name in state.cluster.nominations_given_up():
            state.objects_version += 1
            self._freed(node_name)  # pods that yielded to the nominated one may have its room

    def _freed(self, node_name: str) -> None:
        self._requeuer.node_changed(node_name, ClusterEvent.POD_DELETED)


def oversize(node: Node) -> str:
    """Why the node cannot be told to an agent ("" if it can): the wire bounds every list (I10)."""
    for what, size, limit in (
        ("labels", len(node.labels), 1024),
        ("taints", len(node.taints), 256),
        ("allocatable resources", len(node.allocatable), 256),
    ):
        if size > limit:
            return f"{size} {what}, at most {limit} are supported"
    return ""


def changes_of(known: Node, node: Node) -> list[ClusterEvent]:
    """What of a node's change matters to scheduling; nothing for heartbeats, conditions and annotations
    (a latency guides policies and makes no pod feasible: it is taken over without waking anybody)."""
    events = []
    if known.allocatable != node.allocatable:
        events.append(ClusterEvent.NODE_ALLOCATABLE)
    if known.labels != node.labels:
        events.append(ClusterEvent.NODE_LABELS)
    closed, known_closed = (node.unschedulable, node.drained), (known.unschedulable, known.drained)
    if (known.taints, known_closed, known.deleting) != (node.taints, closed, node.deleting):
        events.append(ClusterEvent.NODE_TAINTS)
    if known.features != node.features:
        events.append(ClusterEvent.NODE_FEATURES)
    if known.uid != node.uid and not events:
        events.append(ClusterEvent.NODE_ADDED)
    return events
