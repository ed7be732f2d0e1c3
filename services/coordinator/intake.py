"""Takes in what the API server shows: which pods are ours and pending, what every pod and node counts, what may help.

Every pod that is bound to any node is accounted, ours or not (reliability.md 3.6). A pod is queued if it names this
scheduler, is not bound, terminating, gated or finished, and can be read; one that cannot be read is told so and left
aside until it changes. What frees room or changes nodes wakes the parked pods it helps, once per batch of events.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from msgspec.structs import replace

from services.coordinator.guiding import Guiding, template_of
from services.coordinator.losses import Losses
from services.coordinator.notices import SCHEDULER_ERROR, Notices
from services.coordinator.plans import Ledger
from services.coordinator.preempting import Preemptor
from services.coordinator.roster import Roster
from services.coordinator.state import State, Unwell
from services.coordinator.takeover import Takeover
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.scheduling.conflicts import check_placement
from shared.scheduling.object_changes import drop_object, put_object
from shared.scheduling.queue import ClusterEvent

EVENT_OF_KIND = {
    "persistentvolumeclaims": ClusterEvent.CLAIM_CHANGED,
    "persistentvolumes": ClusterEvent.VOLUME_CHANGED,
    "storageclasses": ClusterEvent.STORAGE_CLASS_CHANGED,
    "csinodes": ClusterEvent.CSI_NODE_CHANGED,
    "namespaces": ClusterEvent.NAMESPACE_LABELS,
}
"""What may help parked pods; services and controllers decide scores only, budgets only whom to evict."""

NOBODY: frozenset[str] = frozenset()
"""No plugin rejects the pod any more."""

TEMPLATES_JUDGED = 32
"""Templates for which one batch of events is looked into before pods are woken unjudged."""

DRY_RUNS_JUDGED = 64
"""Pods on nodes for which one batch of events is looked into whether preemption would help now; then likewise."""


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
        guiding: Guiding,
        preemptor: Preemptor,
    ) -> None:
        self._state = state
        self._preemptor = preemptor
        self._guiding = guiding
        self._roster = roster
        self._ledger = ledger
        self._takeover = takeover
        self._notices = notices
        self._losses = losses
        self._invalid: dict[str, str] = {}
        self._new_nodes: list[str] = []
        self._changed: dict[ClusterEvent, set[str]] = {}

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
        if pod.invalid:
            self._refuse(pod)
            return
        self._invalid.pop(pod.uid, None)
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
        held = self._state.cluster.forget(uid)
        if held is not None:
            self._freed(held.node_name)

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
        self._drop(pod.uid)
        if before is None or before.assumed_at is not None:
            self._mark(ClusterEvent.POD_ADDED, pod.node_name)
        elif stood is not None and stood.labels != pod.labels:
            self._mark(ClusterEvent.POD_LABELS, pod.node_name)
        elif stood is not None and stood.terminating != pod.terminating:
            self._mark(ClusterEvent.POD_LABELS, pod.node_name)  # a terminating pod counts for spread no longer
        if before is not None and (before.node_name != pod.node_name or before.pod_class != pod.pod_class):
            self._freed(before.node_name)

    def _is_ours(self, pod: Pod) -> bool:
        return pod.scheduler_name == self._state.scheduler_name and not pod.terminating and not pod.gates

    def _refuse(self, pod: Pod) -> None:
        """The pod cannot be read: say so once per problem, do not queue it."""
        state = self._state
        state.queue.remove(pod.uid)
        state.cluster.withdraw_nomination(pod.uid)
        self._preemptor.forget(pod.uid)
        self._takeover.settle(pod.uid)
        if self._invalid.get(pod.uid) != pod.invalid:
            self._invalid[pod.uid] = pod.invalid
            state.stats.invalid_pods += 1
            state.log("pod_refused", level="warning", pod_uid=pod.uid, pod=pod.key, problem=pod.invalid)
            self._notices.tell(pod, SCHEDULER_ERROR, f"pod cannot be scheduled as it is written: {pod.invalid}")

    def _drop(self, uid: str) -> None:
        if self._state.queue.remove(uid) is not None:
            self._state.cluster.withdraw_nomination(uid)
        self._ledger.settle(uid)
        self._takeover.settle(uid)
        self._notices.forget(uid)
        self._losses.won(uid)
        self._preemptor.forget(uid)
        self._invalid.pop(uid, None)

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
            self._mark(ClusterEvent.NODE_ADDED, node.name)
            return
        events = changes_of(known, node)
        if not events and known.latency_us == node.latency_us:
            return
        if known.uid != node.uid:
            self._state.log("node_recreated", node=node.name)
        self._state.cluster.upsert_node(node)
        for event in events:
            self._mark(event, node.name)

    def delete_node(self, name: str) -> None:
        """A node is gone; its pods' accounts wait for their deletion."""
        self._state.unwell.pop(name, None)
        if name in self._state.cache.table.row_of:
            self._state.cluster.remove_node(name)
            self._mark(ClusterEvent.NODE_DELETED, name)
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
            self._mark(event, "")

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
        """After a batch of events: deal the new nodes, wake what was helped."""
        if self._new_nodes:
            names, self._new_nodes = self._new_nodes, []
            self._roster.add_nodes(names)
        state = self._state
        for node_name in state.cluster.nominations_given_up():
            state.objects_version += 1
            self._freed(node_name)  # pods that yielded to the nominated one may have its room
        if self._changed:
            changed, self._changed = self._changed, {}
            for event, names_of_event in changed.items():
                state.stats.woken += state.queue.wake(event, state.now, self._judge(sorted(names_of_event)))

    def _judge(self, names: list[str]) -> Callable[[Pod], frozenset[str]]:
        """Which plugins reject a pod on all of the nodes as they are now (none: it is helped); once per class.

        A pod that other pods or volumes decide about may be helped anywhere: it is judged on all nodes, once per
        template, and after so many templates it is woken unjudged (its backoff bounds what that costs). A pod that
        may evict others is helped too by what a node frees beside them: it would evict there now.
        """
        preemptor, dry_runs, opened = self._preemptor, DRY_RUNS_JUDGED, dict[Hashable, bool]()
        verdicts: dict[PodClass, frozenset[str]] = {}
        feasibility, guiding, judged = self._state.feasibility, self._guiding, dict[Hashable, frozenset[str]]()

        def opens(pod: Pod) -> bool:
            nonlocal dry_runs
            if names == [""]:
                return False
            if pod.nominated_node and preemptor.waited_in_vain(pod, names):
                return True
            if not preemptor.may_preempt(pod):
                return False
            key = template_of(pod)
            if key not in opened:
                dry_runs -= len(names)
                opened[key] = dry_runs < 0 or any(preemptor.opens(pod, name) for name in names)
            return opened[key]

        def judge(pod: Pod) -> frozenset[str]:
            still = filtered(pod)
            return NOBODY if still and opens(pod) else still

        def filtered(pod: Pod) -> frozenset[str]:
            template = guiding.template(pod)
            if template is not None:
                if template not in judged and len(judged) < TEMPLATES_JUDGED:
                    judged[template] = guiding.rejecting(pod)
                return judged.get(template, NOBODY)
            if names == [""]:
                return NOBODY
            verdict = verdicts.get(pod.pod_class)
            if verdict is None:
                found = [check_placement(feasibility, pod.pod_class, name) for name in names]
                verdict = NOBODY if None in found else frozenset(no.plugin for no in found if no is not None)
                verdicts[pod.pod_class] = verdict
            return verdict

        return judge

    def _freed(self, node_name: str) -> None:
        self._mark(ClusterEvent.POD_DELETED, node_name)

    def _mark(self, event: ClusterEvent, node_name: str) -> None:
        self._changed.setdefault(event, set()).add(node_name)


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
    if known.uid != node.uid and not events:
        events.append(ClusterEvent.NODE_ADDED)
    return events
