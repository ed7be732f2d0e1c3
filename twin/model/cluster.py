"""The cluster model: what kubelets and the node life cycle would do, as a pure state machine in virtual time.

In: events (``twin.model.events``) and ``now_s``. Out: instructions. It never reads a clock, draws no randomness and
does no I/O; ``twin/controllers/kubelet.py`` carries the instructions out, the training environment reads them
directly. It does not schedule: a pod without a node waits for ever. Only nodes that are ``managed`` are played.

A pod on a managed node::

    seen bound --start_delay_s--> RunPod --duration_s--> FinishPod
                     |                |
                     +--- deleted ----+--- min(grace_s, stop_delay_s) ---> RemovePod

A managed node: seen --ready_delay_s--> Ready=True, not-ready taint away. Failed: its pods stand still (M2); after
``failure_grace_s`` Ready=Unknown and the unreachable taints; each pod is evicted when its toleration ends. It comes
back: Ready=True, taints away, pods go on. Deleted: its pods are removed.

Invariants, checked by tests: M1 a pod is started at most once and finished at most once; M2 nothing is started,
finished or removed on a failed node; M3 the running use of a node is the sum over its running pods; M4 events heard
twice change nothing.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from twin.model.events import (
    Event,
    EvictPod,
    FinishPod,
    Instruction,
    NodeGone,
    NodeSeen,
    PodGone,
    PodRef,
    PodSeen,
    RemovePod,
    RunPod,
    SetNodeReady,
    SetNodeTaints,
)
from twin.model.usage import NO_USAGE, UsageNow, Utilisation

NOT_READY_TAINTS = frozenset(
    {("node.kubernetes.io/not-ready", "NoSchedule"), ("node.kubernetes.io/not-ready", "NoExecute")}
)
UNREACHABLE_TAINTS = frozenset(
    {("node.kubernetes.io/unreachable", "NoSchedule"), ("node.kubernetes.io/unreachable", "NoExecute")}
)
LIFE_CYCLE_TAINTS = NOT_READY_TAINTS | UNREACHABLE_TAINTS
FINISHED_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Delays in virtual seconds. Defaults: what a small real cluster shows with images already pulled."""

    start_delay_s: float = 1.0
    """From seeing a bound pod to all its containers being ready."""
    stop_delay_s: float = 0.5
    """From a graceful delete to the containers' end; never more than the pod's grace period."""
    ready_delay_s: float = 0.0
    """From seeing a new node to Ready=True."""
    failure_grace_s: float = 40.0
    """From a node's failure to Ready=Unknown (kube-controller-manager ``--node-monitor-grace-period``: 50 s since 1.32,
    40 s before)."""


@dataclass(slots=True)
class _Node:
    name: str
    address: str
    failed: bool = False
    ready: str = ""
    taints: frozenset[tuple[str, str]] = frozenset()
    limits_of: NodeSeen | None = None
    unreachable_since_s: float | None = None
    used: UsageNow = NO_USAGE
    token: int = 0
    ready_planned: bool = False


@dataclass(slots=True)
class _Pod:
    """``started_s`` None until RunPod; ``token`` makes timers of an earlier plan void."""

    seen: PodSeen
    ref: PodRef
    token: int = 0
    started_s: float | None = None
    used: UsageNow = NO_USAGE
    finished: bool = False
    evicting: bool = False


_START, _FINISH, _STEP, _REMOVE, _EVICT, _READY, _SILENT = range(7)


class ClusterModel:
    """Feed ``handle`` with every event, call ``advance`` when ``next_due_s`` is reached. ``now_s`` must not go back."""

    def __init__(self, settings: ModelSettings | None = None) -> None:
        self.settings = settings or ModelSettings()
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, _Pod] = {}
        self._by_node: dict[str, set[str]] = {}
        self._deleted_nodes: set[str] = set()
        self._timers: list[tuple[float, int, int, str, int]] = []
        self._sequence = 0
        self._addresses = 0
        self._pod_addresses = 0

    # --- what is known --------------------------------------------------------------------------------------------

    @property
    def next_due_s(self) -> float | None:
        """When ``advance`` has something to do next; None while nothing is planned."""
        return self._timers[0][0] if self._timers else None

    def utilisation(self) -> dict[str, Utilisation]:
        """What runs now on each managed node, as shares of its limits."""
        return {
            name: node.limits_of.limits.utilisation(node.used)
            for name, node in self._nodes.items()
            if node.limits_of is not None
        }

    def used(self, node: str) -> UsageNow:
        """What runs now on one managed node."""
        return self._nodes[node].used

    # --- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now_s: float) -> list[Instruction]:
        """Take one event; returns what is to be done at once."""
        out: list[Instruction] = []
        if isinstance(event, PodSeen):
            self._pod_seen(event, now_s, out)
        elif isinstance(event, PodGone):
            self._forget_pod(event.uid)
        elif isinstance(event, NodeSeen):
            self._node_seen(event, now_s, out)
        else:
            self._node_gone(event, out)
        return out

    def advance(self, now_s: float) -> list[Instruction]:
        """Everything due up to ``now_s``, in the order of the due times."""
        out: list[Instruction] = []
        while self._timers and self._timers[0][0] <= now_s:
            due_s, _, what, key, token = heapq.heappop(self._timers)
            if what in (_READY, _SILENT):
                node = self._nodes.get(key)
                if node is not None and node.token == token:
                    self._node_due(node, what, due_s, out)
            else:
                pod = self._pods.get(key)
                if pod is not None and pod.token == token:
                    self._pod_due(pod, what, due_s, out)
        return out

    def _plan(self, due_s: float, what: int, key: str, token: int) -> None:
        self._sequence += 1
        heapq.heappush(self._timers, (due_s, self._sequence, what, key, token))

    # --- pods -----------------------------------------------------------------------------------------------------

    def _pod_seen(self, seen: PodSeen, now_s: float, out: list[Instruction]) -> None:
        if not seen.node:
            return
        pod = self._pods.get(seen.uid)
        if pod is None:
            ref = PodRef(seen.uid, seen.namespace, seen.name, seen.node)
            pod = self._pods[seen.uid] = _Pod(seen, ref)
            self._by_node.setdefault(seen.node, set()).add(seen.uid)
            pod.finished = seen.phase in FINISHED_PHASES
            if seen.phase == "Running":
                # The model was started beside a cluster that already ran: the run begins anew here.
                self._started(pod, now_s)
            self._plan_pod(pod, now_s, out)
            return
        changed = pod.seen.grace_s != seen.grace_s
        pod.seen = seen
        if seen.phase in FINISHED_PHASES and not pod.finished:
            pod.finished = True
            self._use(pod, NO_USAGE)
            changed = True
        if changed:
            self._plan_pod(pod, now_s, out)

    def _plan_pod(self, pod: _Pod, now_s: float, out: list[Instruction]) -> None:
        """Forget what was planned for the pod and plan its next step."""
        pod.token += 1
        node = self._nodes.get(pod.seen.node)
        if pod.seen.node in self._deleted_nodes:
            out.append(RemovePod(pod.ref))
            return
        if node is None or node.failed:
            if node is not None:
                self._plan_eviction(pod, node, now_s)
            return
        if pod.seen.grace_s is not None:
            wait_s = 0.0 if pod.finished else min(pod.seen.grace_s, self.settings.stop_delay_s)
            if wait_s <= 0:
                out.append(RemovePod(pod.ref))
            else:
                self._plan(now_s + wait_s, _REMOVE, pod.seen.uid, pod.token)
        elif pod.finished:
            return
        elif pod.started_s is None:
            self._plan(now_s + self.settings.start_delay_s, _START, pod.seen.uid, pod.token)
        else:
            self._plan_run(pod)

    def _plan_run(self, pod: _Pod) -> None:
        assert pod.started_s is not None
        profile = pod.seen.profile
        for since_s, _ in profile.steps:
            if since_s > 0 and (profile.duration_s is None or since_s < profile.duration_s):
                self._plan(pod.started_s + since_s, _STEP, pod.seen.uid, pod.token)
        if profile.duration_s is not None:
            self._plan(pod.started_s + profile.duration_s, _FINISH, pod.seen.uid, pod.token)

    def _pod_due(self, pod: _Pod, what: int, due_s: float, out: list[Instruction]) -> None:
        if what == _START:
            self._started(pod, due_s)
            out.append(RunPod(pod.ref, self._next_pod_address(), self._nodes[pod.seen.node].address))
            self._plan_run(pod)
        elif what == _STEP:
            assert pod.started_s is not None
            self._use(pod, pod.seen.profile.at(due_s - pod.started_s))
        elif what == _FINISH:
            pod.finished = True
            self._use(pod, NO_USAGE)
            out.append(FinishPod(pod.ref, pod.seen.profile.exit_code))
        elif what == _REMOVE:
            out.append(RemovePod(pod.ref))
        elif not pod.evicting:
            pod.evicting = True
            out.append(EvictPod(pod.ref))

    def _started(self, pod: _Pod, now_s: float) -> None:
        pod.started_s = now_s
        self._use(pod, pod.seen.profile.at(0.0))

    def _use(self, pod: _Pod, usage: UsageNow) -> None:
        node = self._nodes.get(pod.seen.node)
        if node is not None:
            node.used = node.used.minus(pod.used).plus(usage)
        pod.used = usage

    def _forget_pod(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self._use(pod, NO_USAGE)
        on_node = self._by_node[pod.seen.node]
        on_node.discard(uid)
        if not on_node:
            del self._by_node[pod.seen.node]

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _node_seen(self, seen: NodeSeen, now_s: float, out: list[Instruction]) -> None:
        node = self._nodes.get(seen.name)
        if not seen.managed:
            self._deleted_nodes.discard(seen.name)
            if node is not None:
                self._release(node)
            return
        if node is None:
            self._addresses += 1
            number = self._addresses
            node = _Node(seen.name, f"10.{200 + (number >> 16) % 50}.{(number >> 8) & 255}.{number & 255}")
            self._nodes[seen.name] = node
            self._deleted_nodes.discard(seen.name)
            node.limits_of = seen
            self._wake(node, now_s, out)
        node.limits_of, node.ready, node.taints = seen, seen.ready, seen.taints
        if seen.failed != node.failed:
            node.failed = seen.failed
            node.token += 1
            node.ready_planned = False
            if seen.failed:
                self._plan(now_s + self.settings.failure_grace_s, _SILENT, node.name, node.token)
                for uid in self._uids_on(node):
                    self._pods[uid].token += 1
                return
            node.unreachable_since_s = None
            self._wake(node, now_s, out)
        stale = node.ready != "True" or node.taints & LIFE_CYCLE_TAINTS
        if stale and not node.failed and not node.ready_planned:
            node.ready_planned = True
            self._plan(now_s + self.settings.ready_delay_s, _READY, node.name, node.token)

    def _wake(self, node: _Node, now_s: float, out: list[Instruction]) -> None:
        """The node has just come (back): plan every pod that is bound to it. M3: recount what runs."""
        node.used = NO_USAGE
        for uid in self._uids_on(node):
            pod = self._pods[uid]
            pod.evicting = False
            node.used = node.used.plus(pod.used)
            self._plan_pod(pod, now_s, out)

    def _node_due(self, node: _Node, what: int, due_s: float, out: list[Instruction]) -> None:
        if what == _READY:
            node.ready_planned = False
            if node.ready != "True":
                out.append(SetNodeReady(node.name, "True", node.address))
            stale = node.taints & LIFE_CYCLE_TAINTS
            if stale:
                out.append(SetNodeTaints(node.name, stale, frozenset()))
            return
        node.unreachable_since_s = due_s
        out.append(SetNodeReady(node.name, "Unknown", node.address))
        out.append(SetNodeTaints(node.name, node.taints & NOT_READY_TAINTS, UNREACHABLE_TAINTS))
        for uid in self._uids_on(node):
            pod = self._pods[uid]
            pod.token += 1
            self._plan_eviction(pod, node, due_s)

    def _plan_eviction(self, pod: _Pod, node: _Node, now_s: float) -> None:
        if node.unreachable_since_s is None or pod.seen.unreachable_s is None or pod.seen.grace_s is not None:
            return
        due_s = max(now_s, node.unreachable_since_s + pod.seen.unreachable_s)
        self._plan(due_s, _EVICT, pod.seen.uid, pod.token)

    def _node_gone(self, event: NodeGone, out: list[Instruction]) -> None:
        node = self._nodes.pop(event.name, None)
        if node is None:
            return
        self._deleted_nodes.add(event.name)
        for uid in self._uids_on(node):
            self._pods[uid].token += 1
            out.append(RemovePod(self._pods[uid].ref))

    def _release(self, node: _Node) -> None:
        """The node is no longer managed: leave its pods as they are."""
        for uid in self._uids_on(node):
            self._pods[uid].token += 1
        del self._nodes[node.name]

    def _uids_on(self, node: _Node) -> list[str]:
        return sorted(self._by_node.get(node.name, ()))

    def _next_pod_address(self) -> str:
        self._pod_addresses += 1
        number = self._pod_addresses
        return f"10.{100 + (number >> 16) % 100}.{(number >> 8) & 255}.{number & 255}"
