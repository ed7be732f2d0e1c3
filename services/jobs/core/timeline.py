"""Which pods of jobs stood on which nodes from when to when, and how jobs changed: for people, in memory, bounded."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from shared.jobs.board import JobChange, JobSpan
from shared.model.controllers.training_job import ENDED, JobPhase, JobStatus, WorkerPod
from shared.model.resources import MILLI_PER_DEVICE

KEPT_S = 6 * 3600.0
MOST_SPANS, MOST_CHANGES = 4096, 1024


@dataclass(slots=True)
class JobsTimeline:
    """``since``: when the term began (wall)."""

    since: float = 0.0
    _open: dict[str, JobSpan] = field(default_factory=dict)
    """By the pod's uid."""
    _closed: deque[JobSpan] = field(default_factory=lambda: deque(maxlen=MOST_SPANS))
    _changes: deque[JobChange] = field(default_factory=lambda: deque(maxlen=MOST_CHANGES))

    def see(self, pod: WorkerPod, job: str, wall: float) -> None:
        """A pod of the job ``namespace/name`` as it is now. One that stood before we looked began when it was made."""
        if pod.ended or not pod.node:
            self.gone(pod.uid, wall)
        elif pod.uid not in self._open:
            self.since = self.since or wall
            began = pod.created if 0.0 < pod.created < self.since else wall
            gpus = pod.gpu_milli / MILLI_PER_DEVICE
            self._open[pod.uid] = JobSpan(job=job, pod=pod.name, node=pod.node, gpus=gpus, began=began)

    def gone(self, uid: str, wall: float) -> None:
        """The pod holds its node no more."""
        span = self._open.pop(uid, None)
        if span is not None:
            self._closed.append(replace(span, ended=wall))

    def note(self, job: str, before: JobStatus, after: JobStatus, wall: float) -> None:
        """A status was written."""
        event = _event(before, after)
        if event:
            self._changes.append(JobChange(at=wall, job=job, event=event, before=before.target, after=after.target))

    def spans(self, wall: float) -> tuple[JobSpan, ...]:
        """Those of the last six hours, in the order in which they began."""
        kept = [span for span in self._closed if span.ended >= wall - KEPT_S]
        return tuple(sorted([*kept, *self._open.values()], key=lambda span: (span.began, span.pod)))

    def changes(self, wall: float) -> tuple[JobChange, ...]:
        """Those of the last six hours, oldest first."""
        return tuple(change for change in self._changes if change.at >= wall - KEPT_S)


def _event(before: JobStatus, after: JobStatus) -> str:
    if after.phase in ENDED and before.phase not in ENDED:
        return "failed" if after.phase is JobPhase.FAILED else "ended"
    if after.failures > before.failures:
        return "failed"
    if before.target != after.target:
        if not after.target:
            return "stopped"
        if not before.target:
            return "started"
        return "grew" if after.target > before.target else "shrank"
    return "restarted" if after.restarts > before.restarts else ""
