"""What the demo knows of the pods it submitted, from its own watch: the live counts and the moments of binding.

Pure: changes in, counts and bindings out; ``now_s`` is passed in. It serves progress and recovery times only: the
figures of the report come from the audit file, not from here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from shared.kube import objects as api

PENDING, BOUND, RUNNING, FINISHED, UNSCHEDULABLE = "pending", "bound", "running", "finished", "unschedulable"
RATE_WINDOW_S = 3.0


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod got its node: when it was submitted, when that was seen, and where."""

    submitted_s: float
    seen_s: float
    node: str


class PodBoard:
    """State per pod, by name: the demo's pods are in one namespace and names are its own."""

    def __init__(self) -> None:
        self._submitted_s: dict[str, float] = {}
        self._state: dict[str, str] = {}
        self._counts: dict[str, int] = dict.fromkeys((PENDING, BOUND, RUNNING, FINISHED, UNSCHEDULABLE), 0)
        self._recent: deque[float] = deque()
        self.changed_s = 0.0
        """When anything changed last."""

    def submitted(self, name: str, now_s: float) -> None:
        """The API server has taken the pod."""
        if name not in self._submitted_s:
            self._submitted_s[name] = now_s
            self._move(name, PENDING, now_s)

    def seen(self, pod: api.Pod, now_s: float) -> Bound | None:
        """The pod as the watch shows it; the binding, the first time it has a node."""
        name = pod.metadata.name
        # The watch may be faster than the answer to our own POST.
        self.submitted(name, now_s)
        before = self._state[name]
        state = state_of(pod)
        if state == before:
            return None
        self._move(name, state, now_s)
        if before in (PENDING, UNSCHEDULABLE) and pod.spec.node_name:
            self._recent.append(now_s)
            return Bound(self._submitted_s[name], now_s, pod.spec.node_name)
        return None

    def gone(self, name: str, now_s: float) -> None:
        """The pod was deleted: it counts as finished."""
        if name in self._submitted_s:
            self._move(name, FINISHED, now_s)

    def _move(self, name: str, state: str, now_s: float) -> None:
        before = self._state.get(name)
        if before is not None:
            self._counts[before] -= 1
        self._state[name] = state
        self._counts[state] += 1
        self.changed_s = now_s

    def count(self, *states: str) -> int:
        """How many pods are in these states now."""
        return sum(self._counts[state] for state in states)

    @property
    def total(self) -> int:
        """Pods submitted so far."""
        return len(self._submitted_s)

    @property
    def placed(self) -> int:
        """Pods that have had a node."""
        return self.count(BOUND, RUNNING, FINISHED)

    def rate(self, now_s: float) -> float:
        """Pods bound per second over the last ``RATE_WINDOW_S``."""
        while self._recent and self._recent[0] < now_s - RATE_WINDOW_S:
            self._recent.popleft()
        return len(self._recent) / RATE_WINDOW_S


def state_of(pod: api.Pod) -> str:
    """One of the five states."""
    if pod.status.phase in ("Succeeded", "Failed"):
        return FINISHED
    if pod.spec.node_name:
        return RUNNING if pod.status.phase == "Running" else BOUND
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return UNSCHEDULABLE
    return PENDING
