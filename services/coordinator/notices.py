"""What people are told about a pod that is not placed: one condition patch and one event per change of message.

A pod that fits is written once, by its Binding; a pending one costs the API server one patch per change of reason.
"""

from __future__ import annotations

from services.coordinator.instructions import EmitEvent, PatchCondition
from services.coordinator.state import State
from shared.model.pod import Pod

UNSCHEDULABLE, SCHEDULER_ERROR = "Unschedulable", "SchedulerError"
"""Reasons of the condition PodScheduled, as kube-scheduler sets them."""

MAX_NOTE_CHARS = 1024
"""The API server's bound on an event's note; a condition's message is cut alike."""


class Notices:
    """Remembers what each pod was told last."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._told: dict[str, tuple[str, str]] = {}

    def tell(self, pod: Pod, reason: str, message: str) -> None:
        """Say why the pod is pending, unless it says so already."""
        message = message if len(message) <= MAX_NOTE_CHARS else message[: MAX_NOTE_CHARS - 3] + "..."
        if self._told.get(pod.uid, pod.condition[1:] if pod.condition[0] == "False" else None) == (reason, message):
            return
        self._state.stats.conditions += 1
        self._state.stats.events += 1
        transition = pod.condition[0] != "False" and pod.uid not in self._told
        self._told[pod.uid] = (reason, message)
        self._state.emit(
            PatchCondition(pod.uid, pod.namespace, pod.name, pod.resource_version, reason, message, transition)
        )
        self._state.emit(
            EmitEvent(
                pod.uid,
                pod.namespace,
                pod.name,
                pod.resource_version,
                "Warning",
                "FailedScheduling",
                "Scheduling",
                message,
            )
        )

    def failed(self, uid: str) -> None:
        """The patch did not get through: say it again next time."""
        self._told.pop(uid, None)

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._told.pop(uid, None)
