"""Why a pod is where it is, from everything a leader knows: queue, rounds, placements, the nodes as they stand now.

Pure: it reads the core and changes nothing. The pod itself comes from the API server, so that the answer is about the
pod as it is now and not as a watch last showed it. It shows no label, image or environment of any pod, and refuses to
promise: what is feasible now may be taken a moment later.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.coordinator.core import Core
from services.coordinator.recent import PastDecision
from services.coordinator.state import State
from shared.model.pod import POLICY_ANNOTATION, Pod
from shared.scheduling.explanation import explain_nodes
from shared.scheduling.gates import gate_rejection
from shared.scheduling.queue import Entry, Place


def explain(core: Core, pod: Pod, annotations: dict[str, str], now: float) -> dict[str, Any]:
    """The answer of ``GET /v1/explain``. ``now``: seconds of the core's clock; all times in it are durations.

    ``state`` says which part there is: pending pods have ``queue`` and ``nodes``, bound ones ``decision``.
    """
    state, found = _where(core, pod)
    answer: dict[str, Any] = {
        "pod": pod.key,
        "uid": pod.uid,
        "state": state,
        "summary": found,
        "priority": pod.priority,
        "scheduler_name": pod.scheduler_name,
        "node": pod.node_name or None,
        "nominated_node": pod.nominated_node or None,
        "condition": _condition(pod),
        "policy": annotations.get(POLICY_ANNOTATION),
        "decision": None,
        "queue": None,
        "nodes": None,
    }
    decision = core.state.recent.of(pod.uid)
    if decision is not None:
        answer["decision"] = _decision(decision, now)
    entry = core.state.queue.entries.get(pod.uid)
    if entry is not None:
        answer["queue"] = _queue(core.state, entry, now)
    if state in ("pending", "placing"):
        answer["nodes"] = msgspec.to_builtins(explain_nodes(core.state.cluster, core.state.feasibility, pod))
        answer["nodes"]["unowned"] = len(core.roster.ownership.unowned)
        answer["nodes"]["agents"] = len(core.roster.views)
    return answer


def _where(core: Core, pod: Pod) -> tuple[str, str]:
    """(state, one sentence)."""
    if pod.node_name:
        if pod.scheduler_name != core.state.scheduler_name:
            return "bound", f"on {pod.node_name}, placed there by somebody else ({pod.scheduler_name})"
        return "bound", f"on {pod.node_name}"
    if pod.finished:
        return "finished", f"its phase is {pod.phase}"
    if pod.scheduler_name != core.state.scheduler_name:
        return "not_ours", f"it names scheduler {pod.scheduler_name}, we are {core.state.scheduler_name}"
    if pod.terminating:
        return "terminating", "it is being deleted"
    gated = gate_rejection(pod)
    if gated is not None:
        return "gated", gated.reasons[0]
    if pod.invalid:
        return "invalid", f"it cannot be scheduled as it is written: {pod.invalid}"
    placed = core.ledger.placed.get(pod.uid)
    if placed is not None:
        said = "the binder has answered, the API server not yet" if placed.answered else "the binder has its plan"
        return "placing", f"on its way to {placed.placement.node}: {said}"
    if core.takeover.holds(pod.uid):
        return "placing", "an earlier leader's intent for it is being finished or withdrawn"
    entry = core.state.queue.entries.get(pod.uid)
    if entry is None:
        return "pending", "the watch has not shown it to this leader yet"
    if entry.place is Place.IN_FLIGHT:
        return "pending", "it is being offered to the agents"
    return "pending", pod.condition[2] or "it waits for its turn"


def _condition(pod: Pod) -> dict[str, str] | None:
    status, reason, message = pod.condition
    return {"status": status, "reason": reason, "message": message} if status else None


def _queue(state: State, entry: Entry, now: float) -> dict[str, Any]:
    """Its place, and for active ones how many go first (higher priority, or the same and earlier)."""
    ahead = 0
    if entry.place is Place.ACTIVE:
        mine = (-entry.pod.priority, entry.arrival)
        others = (e for e in state.queue.entries.values() if e.place is Place.ACTIVE)
        ahead = sum((-other.pod.priority, other.arrival) < mine for other in others)
    answer: dict[str, Any] = {
        "place": entry.place.value,
        "ahead": ahead if entry.place is Place.ACTIVE else None,
        "attempts": entry.attempts,
        "waiting_s": round(max(0.0, now - entry.first_seen), 3),
        "in_place_s": round(max(0.0, now - entry.since), 3),
        "next_retry_s": None,
        "rejected_by": sorted(entry.plugins),
    }
    if entry.place is Place.BACKOFF:
        answer["next_retry_s"] = round(max(0.0, entry.ready_at - now), 3)
    elif entry.place is Place.UNSCHEDULABLE:
        # sooner when an event happens that can help; this is the net under lost ones
        answer["next_retry_s"] = round(max(0.0, entry.since + state.queue.settings.sweep_age_s - now), 3)
    return answer


def _decision(decision: PastDecision, now: float) -> dict[str, Any]:
    return {
        "ago_s": round(max(0.0, now - decision.at), 3),
        "unit": decision.unit,
        "node": decision.node,
        "policy": decision.policy,
        "policy_version": decision.policy_version,
        "candidates": msgspec.to_builtins(decision.considered),
    }
