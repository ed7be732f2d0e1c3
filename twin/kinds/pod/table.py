"""One line of ``kubectl get pods``.

Source: ``pkg/printers/internalversion/printers.go`` (printPod).
"""

from __future__ import annotations

from typing import Any

from twin.kinds.pod.resources import is_sidecar
from twin.kinds.rules.printing import NONE, age_of, columns, object_age, seconds_of

Json = dict[str, Any]

POD_COLUMNS = columns(
    "Name", "Ready", "Status", "Restarts", "Age", wide=("IP", "Node", "Nominated Node", "Readiness Gates")
)


_COMPLETED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


def completed_row(pod: Json) -> list[Json]:
    """The row condition of a pod that ended; kubectl prints such rows last or not at all."""
    phase = pod["status"].get("phase", "")
    if phase not in _COMPLETED:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _COMPLETED[phase]}]


def pod_cells(pod: Json, now_s: float) -> list[Any]:
    """Cells in the order of POD_COLUMNS."""
    spec, status = pod["spec"], pod["status"]
    row = _Row(spec, status)
    reason = row.reason
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    restarts = str(row.restarts)
    if row.last_restart:
        restarts = f"{row.restarts} ({age_of(row.last_restart, now_s)} ago)"
    ips = status.get("podIPs") or []
    return [
        pod["metadata"]["name"],
        f"{row.ready}/{row.total}",
        reason,
        restarts,
        object_age(pod, now_s),
        (ips[0].get("ip") if ips else status.get("podIP")) or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _readiness_gates(spec, status),
    ]


def _readiness_gates(spec: Json, status: Json) -> str:
    gates = spec.get("readinessGates") or []
    if not gates:
        return NONE
    true = {c["type"] for c in status.get("conditions") or () if c["status"] == "True"}
    return f"{sum(gate['conditionType'] in true for gate in gates)}/{len(gates)}"


class _Row:
    """Counts over the container statuses, and the most telling reason among them."""

    def __init__(self, spec: Json, status: Json) -> None:
        self.total = len(spec.get("containers") or ())
        self.ready = self.restarts = 0
        self.last_restart = ""
        self.reason: str = status.get("reason") or status.get("phase", "")
        for condition in status.get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
                self.reason = "SchedulingGated"
        sidecars = {one["name"] for one in spec.get("initContainers") or () if is_sidecar(one)}
        self.total += len(sidecars)
        self._sidecar_restarts, self._sidecar_last = 0, ""
        initializing = self._init(spec, status, sidecars)
        initialized = any(c["type"] == "Initialized" and c["status"] == "True" for c in status.get("conditions") or ())
        if not initializing or initialized:
            self.restarts, self.last_restart = self._sidecar_restarts, self._sidecar_last
            self._run(status)

    def _count(self, one: Json) -> str:
        self.restarts += one.get("restartCount", 0)
        ended = (one.get("lastState") or {}).get("terminated") or {}
        finished: str = ended.get("finishedAt") or ""
        self.last_restart = _later(self.last_restart, finished)
        return finished

    def _init(self, spec: Json, status: Json, sidecars: set[str]) -> bool:
        for index, one in enumerate(status.get("initContainerStatuses") or ()):
            finished = self._count(one)
            if one["name"] in sidecars:
                self._sidecar_restarts += one.get("restartCount", 0)
                self._sidecar_last = _later(self._sidecar_last, finished)
            state = one.get("state") or {}
            ended, waiting = state.get("terminated"), state.get("waiting") or {}
            if ended is not None and not ended.get("exitCode"):
                continue
            if one["name"] in sidecars and one.get("started"):
                self.ready += bool(one.get("ready"))
                continue
            if ended is not None:
                self.reason = "Init:" + (ended.get("reason") or _exit_text(ended))
            elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
                self.reason = "Init:" + waiting["reason"]
            else:
                self.reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
            return True
        return False

    def _run(self, status: Json) -> None:
        running = False
        for one in reversed(status.get("containerStatuses") or ()):
            self._count(one)
            state = one.get("state") or {}
            ended, waiting = state.get("terminated"), state.get("waiting") or {}
            if waiting.get("reason"):
                self.reason = waiting["reason"]
            elif ended is not None:
                self.reason = ended.get("reason") or _exit_text(ended)
            elif one.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        if self.reason == "Completed" and running:
            conditions = status.get("conditions") or ()
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
            self.reason = "Running" if ready else "NotReady"


def _later(one: str, other: str) -> str:
    if not one or not other:
        return one or other
    return one if seconds_of(one) >= seconds_of(other) else other


def _exit_text(ended: Json) -> str:
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"
