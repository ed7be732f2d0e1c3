"""Made-up answers of a loaded mesh, in the admin API's shapes: health, why pods are pending, an hour of history."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

SERIES = (
    "bound_per_s", "decisions_per_s", "evicted_per_s", "seen_per_s", "pending_active", "pending_backoff",
    "pending_unschedulable", "pending_in_flight", "pending_gated", "pending_unsupported",
    "latency_p50_ms", "latency_p99_ms", "round_p50_ms",
    "round_p99_ms", "turn_longest_ms", "turn_busy_share", "events_waiting", "writes_queued", "nodes", "nodes_not_ready",
    "agents", "agents_suspect", "health",
)  # fmt: skip
MEANS = {"NodeResourcesFit": "too little is free of what the pod requests", "InTurn": "waits to be tried"}
RULES = ("NodeResourcesFit", "NodeResourcesFit+TaintToleration", "NodeAffinity", "InTurn", "Backoff")


def finding(code: str, severity: str, *, since: str, text: str = "") -> Json:
    """One of the leader's, as it tells it."""
    return {
        "code": code, "severity": severity, "since": since, "value": 1.42, "threshold": 0.25, "unit": "s",
        "message": f"the longest turn of the leader's loop in the last minute took 1.42 s{text}",
        "remedy": f"give the leader a core of its own{text}",
        "runbook": f"docs/operations/runbooks.md#conclaveleaderlate{text}", "alert": f"ConclaveLeaderLate{text}",
    }  # fmt: skip


def health(findings: list[Json], since: str) -> Json:
    """The verdict that follows from the findings."""
    severities = {one["severity"] for one in findings}
    verdict = "bad" if "bad" in severities else "degraded" if severities else "ok"
    return {"verdict": verdict, "since": since, "findings": findings}


def measured() -> Json:
    return {
        "turn_longest_s": 0.031, "turn_last_s": 0.002, "events_waiting": 12, "events_oldest_s": 0.1,
        "writes_queued": 40, "writes_oldest_s": 1.2, "plans_open": 1, "plans_oldest_s": 0.2, "etcd_renewal_s": 0.004,
        "agents": 4, "agents_suspect": 1,
    }  # fmt: skip


def groups(count: int, nodes: int, text: str = "") -> list[Json]:
    """Pending pods by reason, namespace, priority and class."""
    return [_group(number, nodes, text) for number in range(count)]


def _group(number: int, nodes: int, text: str) -> Json:
    reason = RULES[number % len(RULES)]
    judged = reason not in ("InTurn", "Backoff")
    pods = 40 + 7 * (number % 9)
    help_ = {"kind": "add_node", "target": "node-0001", "of": pods, "lets_in": pods // 3}
    return {
        "reason": reason, "plugins": reason.split("+") if judged else [],
        "namespace": f"team-{number % 6}{text}", "priority": 100 * (number % 3), "class": f"{number:08x}",
        "namespaces": [f"team-{number % 6}{text}"], "priorities": [100 * (number % 3)],
        "pods": pods, "places": {"unschedulable": pods - 3, "backoff": 3}, "oldest_s": 606.2 - number,
        "oldest_pod": f"team-{number % 6}/train-{number}{text}",
        "requests": {"cpu_millis": 500 + number, "memory_bytes": 1 << 30, "nvidia.com/gpu": 1},
        "message": f"0/{nodes} nodes are available: {nodes} Insufficient cpu.{text}" if judged else "",
        "reasons": {f"Insufficient cpu{text}": nodes} if judged else {},
        "means": f"{MEANS.get(reason, '')}{text}", "remedy": "",
        "page": f"/ui/reasons.html#{reason.partition('+')[0].lower()}",
        "helps": [
            {**help_, "text": f"add a node like node-0001 (8 cpu, 32Gi memory){text}"},
            {"kind": "other", "target": "", "text": f"ask its owner{text}", "lets_in": None, "of": pods},
        ] if judged else [],
    }  # fmt: skip


def pending(all_groups: list[Json], query: Mapping[str, str], made: str) -> Json:
    """A page of groups, filtered and sorted as asked for; the sums are of all groups."""
    names = ("reason", "namespace", "priority", "class")
    found = [one for one in all_groups if all(str(one[name]) == query.get(name, str(one[name])) for name in names)]
    order = {"oldest": "oldest_s", "priority": "priority"}.get(query.get("sort", ""), "pods")
    found.sort(key=lambda one: one[order], reverse=True)
    limit, after = int(query.get("limit", 100)), int(query.get("continue", 0) or 0)
    return {
        "made": made, "age_s": 0.4, "pods": sum(one["pods"] for one in all_groups), "gated": 5,
        "classes": len(all_groups), "groups": len(all_groups), "unjudged": 0,
        **{f"by_{name}": _by(all_groups, name) for name in names[:3]},
        "helps": next((one["helps"] for one in all_groups if one["helps"]), []),
        "items": found[after : after + limit],
        "continue": str(after + limit) if after + limit < len(found) else "",
    }  # fmt: skip


def _by(found: list[Json], name: str) -> list[Json]:
    total: dict[Any, Json] = {}
    for one in found:
        row = total.setdefault(one[name], {name: one[name], "pods": 0, "oldest_s": 0.0})
        row["pods"] += one["pods"]
        row["oldest_s"] = max(row["oldest_s"], one["oldest_s"])
    return sorted(total.values(), key=lambda row: -row["pods"])[:50]


def history(term: int, began: str, since: int, steps: int = 360) -> Json:
    """An hour in steps of ten seconds, with waves that are told apart; ``since``: only what came later."""
    now = int(time.time()) // 10 * 10
    times = [at for at in range(now - 10 * (steps - 1), now + 1, 10) if at > since]
    waves = [(0.5 + math.sin(at / 300) / 2) for at in times]
    scale = {
        "bound_per_s": 34, "evicted_per_s": 0.3, "pending_active": 80, "pending_backoff": 20,
        "pending_unschedulable": 1400, "pending_in_flight": 64, "latency_p50_ms": 40, "latency_p99_ms": 200,
        "turn_longest_ms": 45, "turn_busy_share": 0.4, "events_waiting": 30, "writes_queued": 50,
    }  # fmt: skip
    return {
        "step_s": 10, "term": term, "began": began, "times": times,
        "series": {name: [round(scale.get(name, 1) * wave, 3) for wave in waves] for name in SERIES},
        "allocation": {
            "cpu_millis": [0.6 + 0.35 * wave for wave in waves], "memory_bytes": [0.4 + 0.3 * wave for wave in waves],
            "nvidia.com/gpu": [0.9 for _ in waves],
        },
    }  # fmt: skip
