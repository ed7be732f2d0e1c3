"""Made-up training jobs, and moves of pods, in the shapes of the admin API. ``text``: put where strangers can write."""

from __future__ import annotations

import time
from typing import Any

Json = dict[str, Any]


def board(text: str) -> Json:
    """Two jobs over two nodes, one of which grew, and one that waits."""
    now = time.time()
    spans = [
        span("team/resnet", "resnet-worker-0", "gpu-1", now - 3000, 0.0, text),
        span("team/resnet", "resnet-worker-1", "gpu-1", now - 1200, 0.0, text),
        span("team/bert", "bert-worker-0", "gpu-2", now - 4000, now - 900, text),
    ]
    changes = [
        {"at": now - 3000, "job": f"team/resnet{text}", "event": "started", "before": 0, "after": 1},
        {"at": now - 1200, "job": f"team/resnet{text}", "event": "grew", "before": 1, "after": 2},
        {"at": now - 900, "job": f"team/bert{text}", "event": "failed", "before": 1, "after": 1},
    ]
    jobs = [
        job(f"resnet{text}", "Running", 2, now, ends=now + 1800, progress=0.6, text=text),
        job(f"bert{text}", "Failed", 0, now, reason="BackoffLimitExceeded", text=text),
        job(f"big{text}", "Pending", 0, now, reason="Waiting", text=text),
    ]
    return {
        "leading": True, "policy": f"elastic{text}", "problem": text, "now": now, "since": now - 5000, "jobs": jobs,
        "nodes": {f"gpu-1{text}": 4, f"gpu-2{text}": 4, f"gpu-10{text}": 8}, "spans": spans, "changes": changes,
    }  # fmt: skip


def span(job: str, pod: str, node: str, began: float, ended: float, text: str) -> Json:
    return {
        "job": f"{job}{text}", "pod": f"{pod}{text}", "node": f"{node}{text}", "gpus": 1.0, "began": began,
        "ended": ended,
    }  # fmt: skip


def job(
    name: str, phase: str, workers: int, now: float, *, ends: float = 0.0, progress: float | None = None,
    reason: str = "Running", text: str = "",
) -> Json:  # fmt: skip
    return {
        "name": name, "namespace": "team", "phase": phase, "workers": workers, "target": workers, "minimum": 1,
        "maximum": 4, "gpus": float(workers), "priority": 0, "queue": f"vision{text}", "progress": progress,
        "restarts": 1, "failures": 0, "lost_steps": 40, "created": now - 4000, "started": now - 3000, "ended": 0.0,
        "ends": ends, "ends_early": ends and ends - 300, "ends_late": ends and ends + 300,
        "by": "speed" if ends else "", "reason": reason, "message": f"2 workers run{text}",
        "candidate": phase == "Running",
    }  # fmt: skip


def policy(text: str) -> Json:
    """One that is in the canary."""
    return {
        "policy": f"elastic{text}", "stage": "canary", "candidate": f"marginal{text}", "percent": 10, "good": 1,
        "ratio": 1.04, "sd": 0.02, "by": f"ann{text}", "reason": f"as in shadow{text}",
        "since": "2026-11-23T10:00:00.000Z",
    }  # fmt: skip


def rebalance(text: str) -> Json:
    """A plan of two moves, one of which failed, and the round before."""
    moves = [
        {
            "uid": f"u{number}", "namespace": "shop", "name": f"web-{number}{text}", "source": f"n{number}{text}",
            "target": f"n9{text}", "gain": 0.5, "batch": number, "after": [], "group": "",
            "workload": f"shop/ReplicaSet:web{text}",
            "disturbs": [f"budget web{text}"], "why": f"its place is free from the start{text}",
        }
        for number in (1, 2)
    ]  # fmt: skip
    plan = {
        "goal": "empty-nodes", "unit": f"nodes in use{text}", "before": 5.0, "after": 4.0, "moves": moves,
        "left_out": [], "stopped": f"no further node can be emptied{text}", "protected": {f"DaemonSetPods{text}": 3},
        "notes": [f"13 W less{text}"], "freed": [f"n1{text}"], "unblocked": {},
    }  # fmt: skip
    told = {
        "at": time.time() - 600, "goal": f"empty-nodes{text}", "stage": "canary", "since": "", "unit": f"nodes{text}",
        "before": 6.0, "hoped": 5.0, "planned": 3, "made": 2, "failed": 1, "why": f"its window has closed{text}",
    }  # fmt: skip
    return {
        "leading": True, "goal": f"empty-nodes{text}", "stage": "canary", "moving": True, "why": text,
        "namespaces": [f"shop{text}"], "plan": plan, "rounds": [told],
        "moves": {"u1/1": {"state": "done", "why": ""}, "u2/2": {"state": "failed", "why": f"no room{text}"}},
    }  # fmt: skip
