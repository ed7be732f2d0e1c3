"""Made-up autoscaled services, in the shapes of the admin API. ``text`` is put where strangers can write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


def scaled(clock: Callable[[float], str], text: str) -> list[Json]:
    """One that acts, and one that somebody else scales."""
    return [scaler("graph", clock, text), scaler("search", clock, text, foreign={"front": f"keda{text}"}, go="void")]


def scaler(name: str, clock: Callable[[float], str], text: str, **more: Any) -> Json:
    return {
        "namespace": "shop", "name": name, "at": clock(12), "term": 4, "mode": "act-on-scale", "policy": f"karma{text}",
        "decided_by": "karma", "go": "counts", "go_by": f"ada{text}", "trouble": "", "foreign": {}, **more,
        "services": [service(f"front{text}", text, role="failure-manager"), service("cart", text, arrivals=None)],
    }  # fmt: skip


def service(name: str, text: str, **more: Any) -> Json:
    return {
        "name": name, "replicas": 4, "ready": 3, "starting": 1, "pending": 0, "hpa": 5, "wanted": 6, "allowed": 5,
        "written": True, "role": "", "why": f"karma decided; rate-up: at most 1 pods{text}", "arrivals": 182.5,
        "cores": 2.2, "latency_s": 0.12, "safeguards": ["rate-up"], "held": f"Canary: not in the 10 %{text}",
        "bad": [f"cpu: it is 90 s old{text}"], **more,
    }  # fmt: skip


def scaled_whole(name: str, clock: Callable[[float], str], text: str) -> Json:
    """One with its past."""
    moments = [
        {"at": clock(600 - 10 * n), "replicas": 8 + n % 3, "hpa": 10, "arrivals": 150.0 + n, "cores": 4.0}
        for n in range(60)
    ]
    told = {
        "at": clock(20), "service": f"front{text}", "before": 4, "after": 5, "by": "karma", "role": "failure-manager",
        "why": f"karma decided as failure-manager (stuck above 0){text}", "written": False,
    }  # fmt: skip
    cost = {"seconds": 600.0, "replica_hours": 1.4, "hpa_replica_hours": 1.7}
    return scaler(name, clock, text) | {"cost": cost, "history": moments, "decisions": [told]}
