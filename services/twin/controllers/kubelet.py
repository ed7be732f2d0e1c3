"""The kubelets of the twin: feeds the registry's changes into the cluster model and carries out its instructions.

A thin shell: ``shared.twin.cluster`` decides, this file has the clock, the timer and the registry. One timer for the
whole cluster, set to what is due next; instructions are carried out in batches between which the server answers
requests. It refuses to act on nodes that are not annotated ``conclave.io/twin-node: "true"``, and on a pod whose uid is
no longer the one that was meant.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from services.twin.controllers.kubelet_objects import (
    finished_status,
    node_ready_status,
    node_seen,
    pod_seen,
    running_status,
    with_taints,
)
from services.twin.registry.status import ApiError
from services.twin.registry.stored import DELETED
from shared.twin.clock import ScaledClock
from shared.twin.cluster import ClusterModel, ModelSettings
from shared.twin.events import (
    Event,
    EvictPod,
    FinishPod,
    Instruction,
    NodeGone,
    PodGone,
    PodRef,
    RemovePod,
    RunPod,
    SetNodeReady,
    SetNodeTaints,
)
from shared.twin.usage import Usage

if TYPE_CHECKING:
    from services.twin.registry.changes import Accepted
    from services.twin.registry.registry import TwinRegistry

Json = dict[str, Any]

BATCH = 32
"""Writes carried out before the event loop turns: about 5 ms, so that no request waits longer for us."""


class Kubelets:
    """Attach to a registry with ``start``; ``stop`` leaves everything as it is."""

    def __init__(self, registry: TwinRegistry, *, speed: float = 1.0, settings: ModelSettings | None = None) -> None:
        self._registry = registry
        self._speed = speed
        self._model = ClusterModel(settings)
        self._todo: deque[Instruction] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0
        self._running: asyncio.Handle | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clock = ScaledClock(0.0, speed)
        self.refused = 0
        """Writes the registry refused: the object had changed or gone meanwhile."""

    def start(self) -> None:
        """Take over the managed nodes there are and those to come. Call inside the server's event loop."""
        self._loop = asyncio.get_running_loop()
        self._clock = ScaledClock(self._loop.time(), self._speed)
        for node in list(self._registry.list("nodes")):
            self._feed("nodes", node, gone=False)
        for pod in list(self._registry.list("pods")):
            self._feed("pods", pod, gone=False)
        self._unsubscribe = self._registry.subscribe(self._on_change)
        self._arrange()

    def stop(self) -> None:
        """Do nothing from now on."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        for handle in (self._timer, self._running):
            if handle is not None:
                handle.cancel()
        self._timer = self._running = None
        self._todo.clear()

    def used(self) -> dict[str, Usage]:
        """What runs now on each node that is played."""
        return {name: self._model.used(name) for name in self._model.utilisation()}

    def _now_s(self) -> float:
        assert self._loop is not None
        return self._clock.virtual(self._loop.time())

    # --- in -------------------------------------------------------------------------------------------------------

    def _on_change(self, accepted: Accepted) -> None:
        resource = accepted.kind.storage
        if resource in ("pods", "nodes"):
            change = accepted.change
            self._feed(resource, change.new.obj, gone=change.type == DELETED)
            self._arrange()

    def _feed(self, resource: str, obj: Json, *, gone: bool) -> None:
        event: Event
        if resource == "nodes":
            event = NodeGone(obj["metadata"]["name"]) if gone else node_seen(obj)
        elif not obj["spec"].get("nodeName"):
            return
        else:
            event = PodGone(obj["metadata"]["uid"]) if gone else pod_seen(obj)
        self._todo.extend(self._model.handle(event, self._now_s()))

    # --- out ------------------------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        """See to it that ``_run`` is called: soon when there is something to do, else when something is due."""
        assert self._loop is not None
        if self._todo:
            if self._running is None:
                self._running = self._loop.call_soon(self._run)
            return
        due_s = self._model.next_due_s
        if due_s is None or (self._timer is not None and self._timer_due_s <= due_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._loop.call_at(self._clock.real(due_s), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        # A loop's timer may fire up to its clock's resolution early: what is due then counts as due.
        self._todo.extend(self._model.advance(max(self._now_s(), self._timer_due_s)))
        self._arrange()

    def _run(self) -> None:
        self._running = None
        for _ in range(min(BATCH, len(self._todo))):
            self._carry_out(self._todo.popleft())
        self._arrange()

    def _carry_out(self, item: Instruction) -> None:
        try:
            if isinstance(item, RunPod):
                self._patch_pod(item.pod, ("Pending",), lambda pod, now: running_status(pod, item, now))
            elif isinstance(item, FinishPod):
                code = item.exit_code
                self._patch_pod(item.pod, ("Pending", "Running"), lambda pod, now: finished_status(pod, code, now))
            elif isinstance(item, RemovePod):
                self._delete_pod(item.pod, {"gracePeriodSeconds": 0})
            elif isinstance(item, EvictPod):
                self._delete_pod(item.pod, {})
            elif isinstance(item, SetNodeReady):
                status, address = item.status, item.address
                self._patch_node(item.node, lambda node, now: node_ready_status(node, status, now, address))
            else:
                self._set_taints(item)
        except ApiError:
            self.refused += 1

    def _patch_pod(self, ref: PodRef, phases: tuple[str, ...], change: Callable[[Json, str], Json]) -> None:
        ctx = self._registry.context("patch", "pods", ref.namespace, ref.name, user=f"system:node:{ref.node}")

        def changed(pod: Json) -> Json:
            if pod["metadata"]["uid"] != ref.uid or (pod.get("status") or {}).get("phase") not in phases:
                return pod
            return change(pod, ctx.now)

        self._registry.guaranteed_update(ctx, "pods", ref.namespace, ref.name, changed, audit_verb="patch")

    def _delete_pod(self, ref: PodRef, options: Json) -> None:
        user = f"system:node:{ref.node}" if options else "system:serviceaccount:kube-system:node-controller"
        ctx = self._registry.context("delete", "pods", ref.namespace, ref.name, user=user)
        self._registry.delete(ctx, "pods", ref.namespace, ref.name, {**options, "preconditions": {"uid": ref.uid}})

    def _set_taints(self, item: SetNodeTaints) -> None:
        self._patch_node(item.node, lambda node, now: with_taints(node, item.remove, item.add, now))

    def _patch_node(self, name: str, change: Callable[[Json, str], Json]) -> None:
        ctx = self._registry.context("patch", "nodes", "", name, user=f"system:node:{name}")
        self._registry.guaranteed_update(ctx, "nodes", "", name, lambda node: change(node, ctx.now), audit_verb="patch")
