"""Takes in what the API server shows: which pods are ours and pending, what every pod and node counts, what may help.

Every pod that is bound to any node is accounted, ours or not (reliability.md 3.6). A pod is queued if it names this
scheduler, is not bound, terminating, gated or finished, and can be read; one that cannot be read is told so and left
aside until it changes. What frees room or changes nodes wakes the parked pods it helps, once per batch of events.
"""

from __future__ import annotations

from collections.abc import Callable

from services.coordinator.losses import Losses
from services.coordinator.notices import SCHEDULER_ERROR, Notices
from services.coordinator.plans import Ledger
from services.coordinator.roster import Roster
from services.coordinator.state import State
from services.coordinator.takeover import Takeover
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.scheduling.conflicts import check_placement


class Intake:
    """Pods and nodes into cache and queue."""

    def __init__(
        self, state: State, roster: Roster, ledger: Ledger, takeover: Takeover, notices: Notices, losses: Losses
    ) -> None:
        self._state = state
        self._roster = roster
        self._ledger = ledger
        self._takeover = takeover
        self._notices = notices
        self._losses = losses
        self._invalid: dict[str, str] = {}
        self._new_nodes: list[str] = []
        self._changed: set[str] = set()

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
            if not self._ledger.holds(pod.uid) and not self._takeover.holds(pod.uid):
                self._drop(pod.uid)
            return
        if pod.invalid:
            self._refuse(pod)
            return
        self._invalid.pop(pod.uid, None)
        if self._takeover.keep(pod):
            return
        if pod.uid not in state.queue.entries:
            state.stats.pods_seen += 1
        state.queue.add(pod, state.now)

    def delete_pod(self, uid: str) -> None:
        """The pod is gone."""
        self._drop(uid)
        self.release(uid)

    def release(self, uid: str) -> None:
        """What the pod held is given up; parked pods that fit there now are woken."""
        held = self._state.cache.forget(uid)
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
        state.cache.confirm(pod)
        self._drop(pod.uid)
        if before is not None and before.node_name != pod.node_name:
            self._freed(before.node_name)

    def _is_ours(self, pod: Pod) -> bool:
        return pod.scheduler_name == self._state.scheduler_name and not pod.terminating and not pod.gates

    def _refuse(self, pod: Pod) -> None:
        """The pod cannot be read: say so once per problem, do not queue it."""
        state = self._state
        state.queue.remove(pod.uid)
        self._takeover.settle(pod.uid)
        if self._invalid.get(pod.uid) != pod.invalid:
            self._invalid[pod.uid] = pod.invalid
            state.stats.invalid_pods += 1
            state.log("pod_refused", level="warning", pod_uid=pod.uid, pod=pod.key, problem=pod.invalid)
            self._notices.tell(pod, SCHEDULER_ERROR, f"pod cannot be scheduled as it is written: {pod.invalid}")

    def _drop(self, uid: str) -> None:
        self._state.queue.remove(uid)
        self._ledger.settle(uid)
        self._takeover.settle(uid)
        self._notices.forget(uid)
        self._losses.won(uid)
        self._invalid.pop(uid, None)

    # --- nodes --------------------------------------------------------------------------------------------------

    def upsert_node(self, node: Node) -> None:
        """A node was added or changed. Heartbeats and other changes that decide nothing are dropped here."""
        if problem := oversize(node):
            self._state.log("node_refused", level="warning", node=node.name, problem=problem)
            self.delete_node(node.name)
            return
        table = self._state.cache.table
        row = table.row_of.get(node.name)
        known = table.nodes[row] if row is not None else None
        if known is None:
            self._state.cache.upsert_node(node)
            self._new_nodes.append(node.name)
            self._changed.add(node.name)
            return
        if not decides(known, node):
            return
        if known.uid != node.uid:
            self._state.log("node_recreated", node=node.name)
        self._state.cache.upsert_node(node)
        self._changed.add(node.name)

    def delete_node(self, name: str) -> None:
        """A node is gone; its pods' accounts wait for their deletion."""
        if name in self._state.cache.table.row_of:
            self._state.cache.remove_node(name)
            if name in self._new_nodes:
                self._new_nodes.remove(name)
            self._roster.remove_node(name)

    # --- what may help parked pods ------------------------------------------------------------------------------

    def settle(self) -> None:
        """After a batch of events: deal the new nodes, wake what was helped."""
        if self._new_nodes:
            names, self._new_nodes = self._new_nodes, []
            self._roster.add_nodes(names)
        if self._changed:
            changed, self._changed = self._changed, set()
            state = self._state
            state.stats.woken += state.queue.wake(state.now, self._helps(sorted(changed)))

    def _helps(self, names: list[str]) -> Callable[[Pod], bool]:
        """Whether a pod fits any of the nodes as they are now; judged once per class."""
        verdicts: dict[PodClass, bool] = {}
        feasibility = self._state.feasibility

        def helps(pod: Pod) -> bool:
            verdict = verdicts.get(pod.pod_class)
            if verdict is None:
                verdict = any(check_placement(feasibility, pod.pod_class, name) is None for name in names)
                verdicts[pod.pod_class] = verdict
            return verdict

        return helps

    def _freed(self, node_name: str) -> None:
        self._changed.add(node_name)


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


def decides(known: Node, node: Node) -> bool:
    """Whether a node's change matters to scheduling; heartbeats, conditions and other annotations than the latency's
    do not."""
    return _deciding(known) != _deciding(node)


def _deciding(node: Node) -> tuple[object, ...]:
    return (
        node.allocatable, node.labels, node.taints, node.unschedulable, node.deleting, node.uid, node.latency_us,
    )  # fmt: skip
