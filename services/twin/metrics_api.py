"""``metrics.k8s.io`` as the twin serves it: what nodes use now, for schedulers that balance by use.

A real cluster has a metrics server that averages over a window; the twin knows the truth and says it at once, cut at
each node's own limit as a kubelet's counters would be. Cpu and memory alone, as the real API. Only simulated nodes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from shared.twin.usage import Usage

Json = dict[str, Any]

WINDOW = "15s"
"""What a metrics server averages over by default (``--metric-resolution``)."""


def node_metrics(used: Callable[[], dict[str, Usage]], now: Callable[[], dt.datetime]) -> Json:
    """A NodeMetricsList."""
    timestamp = now().astimezone(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": timestamp},
            "timestamp": timestamp,
            "window": WINDOW,
            "usage": {"cpu": f"{usage.cpu_millis}m", "memory": str(usage.memory_bytes)},
        }
        for name, usage in sorted(used().items())
    ]
    return {"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}
