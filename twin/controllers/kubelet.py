"""The kubelets of the twin: feeds the registry's changes into the cluster model and carries out its instructions.

A thin shell: ``twin.model.cluster`` decides, this file has the clock and the registry. One timer for the whole
cluster, set to what is due next. It does not act on nodes that are not annotated ``conclave.io/twin-node: "true"``,
and on a pod whose uid is no longer the one that was meant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from twin.controllers.kubelet_objects import (
    finished_status,
    node_ready_status,
    node_seen,
    pod_seen,
    running_status,
    with_taints,
)
from twin.controllers.runtime import Controller
from twin.model.clock import ScaledClock
from twin.model.cluster import ClusterModel, ModelSettings
from twin.model.events import (
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
from twin.model.usage import UsageNow
from twin.registry.registry import TwinRegistry

Json = dict[str, Any]

Step = tuple[int, Instruction | None]
"""What is to be done, numbered: two equal ones stay two. ``DUE``: something is due by the model's clock."""
DUE: Step = (0, None)


class Kubelets(Controller[Step]):
    """Keys are the model's instructions, carried out in its order."""

    retries = False  # the change that was in the way leads to the next instruction

    def __init__(self, registry: TwinRegistry, *, speed: float = 1.0, settings: ModelSettings | None = None) -> None:
        super().__init__(registry)
        self._model = ClusterModel(settings)
        self._speed = speed
        self._clock = ScaledClock(0.0, speed)
        self._steps = 0

    def start(self) -> None:
        self._clock = ScaledClock(asyncio.get_running_loop().time(), self._speed)
        super().start()

    def follows(self) -> list[str]:
        return ["nodes", "pods"]

    def used(self) -> dict[str, UsageNow]:
        """What runs now on each node that is played."""
        return {name: self._model.used(name) for name in self._model.utilisation()}

    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        event: Event
        if resource == "nodes":
            event = NodeGone(obj["metadata"]["name"]) if gone else node_seen(obj)
        elif resource == "pods" and obj["spec"].get("nodeName"):
            event = PodGone(obj["metadata"]["uid"]) if gone else pod_seen(obj)
        else:
            return
        self._carry_on(self._model.handle(event, self._clock.virtual(self.loop_s())))

    def _carry_on(self, instructions: list[Instruction]) -> None:
        for one in instructions:
            self._steps += 1
            self.note((self._steps, one))
        if self._model.next_due_s is not None:
            self.at(DUE, self._clock.real(self._model.next_due_s))

    def reconcile(self, key: Step) -> None:
        match key[1]:
            case None:
                self._carry_on(self._model.advance(self._clock.virtual(self.loop_s())))
            case RunPod(ref) as run:
                self._change_pod(ref, ("Pending",), lambda pod, now: running_status(pod, run, now))
            case FinishPod(ref, code):
                self._change_pod(ref, ("Pending", "Running"), lambda pod, now: finished_status(pod, code, now))
            case RemovePod(ref):
                self._delete_pod(ref, {"gracePeriodSeconds": 0}, f"system:node:{ref.node}")
            case EvictPod(ref):
                self._delete_pod(ref, {}, "system:serviceaccount:kube-system:node-controller")
            case SetNodeReady(name, status, address):
                self._change_node(name, lambda node, now: node_ready_status(node, status, now, address))
            case SetNodeTaints(name, remove, add):
                self._change_node(name, lambda node, now: with_taints(node, remove, add, now))

    def _change_pod(self, ref: PodRef, phases: tuple[str, ...], change: Callable[[Json, str], Json]) -> None:
        now = self.registry.now_text(self.registry.clock())

        def changed(pod: Json) -> Json:
            if pod["metadata"]["uid"] != ref.uid or (pod.get("status") or {}).get("phase") not in phases:
                return pod
            return change(pod, now)

        self.change(("pods", ref.namespace, ref.name), changed, user=f"system:node:{ref.node}")

    def _delete_pod(self, ref: PodRef, options: Json, user: str) -> None:
        ctx = self.registry.context("delete", "pods", ref.namespace, ref.name, user=user)
        self.registry.delete(ctx, "pods", ref.namespace, ref.name, {**options, "preconditions": {"uid": ref.uid}})
        self.writes += 1

    def _change_node(self, name: str, change: Callable[[Json, str], Json]) -> None:
        now = self.registry.now_text(self.registry.clock())
        self.change(("nodes", "", name), lambda node: change(node, now), user=f"system:node:{name}")
