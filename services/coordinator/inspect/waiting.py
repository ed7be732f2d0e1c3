"""Since when a pod waits, as people read it: from its creation on, also where this leader took over only later.

Latencies and harm count from when the leader first saw the pod (``Entry.first_seen``): what was before is not its own.
"""

from __future__ import annotations

from datetime import datetime

from services.coordinator.core.state import CoordinatorState
from shared.model.pod import Pod


def waits_since(state: CoordinatorState, pod: Pod, seen: float) -> float:
    """Seconds of the core's clock; ``seen`` at the latest, when this leader saw the pod first."""
    if state.epoch is None or not pod.created:
        return seen
    try:
        return min(seen, datetime.fromisoformat(pod.created).timestamp() - state.epoch)
    except ValueError:
        return seen
