"""What people are told about a pod that is not placed: one condition patch and one event per change of message.

A pod that fits is written once, by its Binding; a pending one costs the API server one patch per change of reason.
"""

from __future__ import annotations

from services.coordinator.instructions import EmitEvent, PatchCondition
from services.coordinator.state import State
from shared.model.pod import Pod
from shared.wire.messages import Placement

UNSCHEDULABLE, SCHEDULER_ERROR = "Unschedulable", "SchedulerError"
"""Reasons of the condition PodScheduled, as kube-scheduler sets them."""

NOT_SUPPORTED = "NotSupported"
"""Ours, of a pod that asks for what Conclave does not look at: no new node would help, so autoscalers must not see
``Unschedulable``."""

MAX_NOTE_CHARS = 1024
"""The API server's bound on an event's note; a condition's message is cut alike."""

SCHEDULED_PER_S, SCHEDULED_BURST = 10, 50
"""Events ``Scheduled`` sent per second, after a burst; the rest are left out and counted. Each costs the API server as
much as a Binding does."""


class Notices:
    """Remembers what each pod was told last."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._told: dict[str, tuple[str, str]] = {}
        self._tokens = float(SCHEDULED_BURST)
        self._refilled_at = 0.0

    def tell(self, pod: Pod, reason: str, message: str, *, nominated: str | None = None) -> None:
        """Say why the pod is pending, unless it says so already. ``nominated``: its nominated node changes to this."""
        message = message if len(message) <= MAX_NOTE_CHARS else message[: MAX_NOTE_CHARS - 3] + "..."
        before = self._told.get(pod.uid, pod.condition[1:] if pod.condition[0] == "False" else None)
        news = before != (reason, message)
        if not news and nominated is None:
            return
        self._state.stats.conditions += 1
        transition = pod.condition[0] != "False" and pod.uid not in self._told
        self._told[pod.uid] = (reason, message)
        self._state.emit(
            PatchCondition(
                pod.uid, pod.namespace, pod.name, pod.resource_version, reason, message, transition, nominated
            )
        )
        if not news:
            return
        self._state.stats.events += 1
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

    def clear_nomination(self, pod: Pod) -> None:
        """The pod is nominated nowhere any more; what it was told last stays."""
        reason, message = self._told.get(pod.uid, pod.condition[1:])
        self.tell(pod, reason or UNSCHEDULABLE, message, nominated="")

    def scheduled(self, placement: Placement, node: str) -> None:
        """The pod is bound: an event, unless there were so many lately that they would cost more than placing."""
        state, now = self._state, self._state.now
        self._tokens = min(SCHEDULED_BURST, self._tokens + (now - self._refilled_at) * SCHEDULED_PER_S)
        self._refilled_at = now
        if self._tokens < 1:
            state.stats.events_left_out += 1
            return
        self._tokens -= 1
        state.stats.events += 1
        uid, namespace, name = placement.uid, placement.namespace, placement.name
        note = f"Successfully assigned {namespace}/{name} to {node}"
        cause_id = f"{state.term:x}-{placement.unit:x}"
        state.emit(EmitEvent(uid, namespace, name, "", "Normal", "Scheduled", "Binding", note, cause_id))

    def failed(self, uid: str) -> None:
        """The patch did not get through: say it again next time."""
        self._told.pop(uid, None)

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._told.pop(uid, None)
