"""The answer to "why is this pod where it is", as far as objects alone tell: for a leader and for who reads a cluster.

A leader adds its queue and what it decided. Pure; it shows no label, image or environment of any pod, and refuses to
promise: what is feasible now may be taken a moment later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from shared.model.pod import POLICY_ANNOTATION, Pod
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.explain.devices_why import devices_why
from shared.scheduling.explain.explanation import explain_nodes
from shared.scheduling.explain.preemption import NODES_TRIED, PLAIN, VictimRules, explain_preemption
from shared.scheduling.explain.zones_why import zones_why
from shared.scheduling.gates import gate_rejection, unsupported_text
from shared.scheduling.state.cluster_state import ClusterState

Answer = dict[str, Any]


def pod_answer(pod: Pod, annotations: Mapping[str, str], state: str, summary: str) -> Answer:
    """The frame of an answer; ``decision``, ``queue``, ``nodes`` and ``preemption`` are None until somebody knows."""
    status, reason, message = pod.condition
    return {
        "pod": pod.key,
        "uid": pod.uid,
        "state": state,
        "summary": summary,
        "priority": pod.priority,
        "qos": pod.qos.value,
        "qos_doubt": pod.qos_doubt or None,
        "scheduler_name": pod.scheduler_name,
        "node": pod.node_name or None,
        "nominated_node": pod.nominated_node or None,
        "condition": {"status": status, "reason": reason, "message": message} if status else None,
        "policy": annotations.get(POLICY_ANNOTATION),
        "decision": None,
        "queue": None,
        "nodes": None,
        "preemption": None,
    }


def settled_state(pod: Pod, schedulers: Collection[str] | None) -> tuple[str, str] | None:
    """(state, one sentence) of a pod that nobody is to place now; None of one that is pending.

    ``schedulers``: whose pods are ours; None: everybody's.
    """
    ours = schedulers is None or pod.scheduler_name in schedulers
    if pod.node_name:
        if not ours:
            return "bound", f"on {pod.node_name}, placed there by somebody else ({pod.scheduler_name})"
        return "bound", f"on {pod.node_name}"
    if pod.finished:
        return "finished", f"its phase is {pod.phase}"
    if not ours:
        return "not_ours", f"it names scheduler {pod.scheduler_name}, we are {', '.join(sorted(schedulers or ()))}"
    if pod.terminating:
        return "terminating", "it is being deleted"
    gated = gate_rejection(pod)
    if gated is not None:
        return "gated", gated.reasons[0]
    if pod.invalid:
        return "invalid", f"it cannot be scheduled as it is written: {pod.invalid}"
    if pod.unsupported:
        return "unsupported", unsupported_text(pod)
    return None


def add_verdicts(
    answer: Answer,
    state: ClusterState,
    feasibility: FeasibilityCache,
    pod: Pod,
    *,
    rules: VictimRules = PLAIN,
    nodes_tried: int = NODES_TRIED,
) -> None:
    """Every node's verdict into ``answer``, and where no node takes the pod, what preemption would do."""
    if pod.extended and state.devices is not None:
        pod = state.devices.described(pod)
    nodes = explain_nodes(state, feasibility, pod)
    answer["nodes"] = msgspec.to_builtins(nodes)
    if pod.asks is not None:
        answer["devices"] = devices_why(state, pod)
    if pod.pod_class.needs is not None and (zones := zones_why(state, pod)):
        answer["zones"] = zones
    if not nodes.feasible and nodes.nodes:
        found = explain_preemption(state, feasibility, pod, rules=rules, nodes_tried=nodes_tried)
        answer["preemption"] = msgspec.to_builtins(found)
