"""What the jobs core remembers: jobs and pods as the watches show them, writes under way, wishes not yet written."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from services.jobs.core.instructions import DeleteObject, Write
from services.jobs.core.timeline import JobsTimeline
from services.jobs.core.usage import WorkerUsage
from shared.backoff import backoff_s
from shared.jobs.observation import JobAllocation
from shared.jobs.online.learned import Reports
from shared.kube.pod_groups import PODGROUPS
from shared.kube.resources import Resource
from shared.kube.training.training_pods import TrainingPodRules
from shared.kube.training.worker_pods import as_of
from shared.model.controllers.training_job import GpuNode, JobReport, MadeObject, PodState, TrainingJob, WorkerPod
from shared.model.units.queue import Queue
from shared.scheduling.queues.nodes import Blocked

STORY = 50
"""Lines kept of a job's life."""
SETTLE_S = 10.0
"""So long the watch has to show what a write did; then it is looked at anew."""
FIRST_S, MOST_S = 1.0, 60.0
"""The first and the longest wait before a write that failed is made again."""

POD = "Pod"
Target = tuple[str, str, str]
"""Kind, namespace, name of what is written."""


def job_of_target(target: Target) -> str:
    """``namespace/name`` of the job that an object was written for: by its own name, or by that of its pod."""
    kind, namespace, name = target
    if kind == POD:
        name = name.rpartition("-")[0].rpartition("-")[0]
    return f"{namespace}/{name}"


class JobsCoreSettings(Struct, frozen=True, kw_only=True):
    """What the core is told; see ``services/jobs/settings.py``."""

    decide_every_s: float = 30.0
    decide_least_s: float = 2.0
    """Between two decisions, however much happens."""
    status_every_s: float = 15.0
    """How often figures alone are written on an object."""
    silent_after_s: float = 300.0
    start_timeout_s: float = 600.0
    """GPUs for pods that no node takes are given back after so long (``unplaced.py``)."""
    retry_first_s: float = 10.0
    retry_most_s: float = 300.0
    finish_s: float = 330.0
    """Once a worker has succeeded, the others have so long (torchrun's exit barrier takes 300 s)."""
    validate: bool = False


@dataclass(slots=True)
class Pending:
    """A write that was sent. ``until``: it was answered, and the watch has so long to show it."""

    number: int
    write: Write
    until: float | None = None
    seen: bool = False
    """The watch told of the object before the answer came: often of this very write."""


@dataclass(slots=True)
class Wait:
    """What failed, how often, and when it is tried again."""

    failures: int
    until: float
    message: str


@dataclass(slots=True)
class PendingWrites:
    """One write per object at a time (J2); what fails waits, longer each time."""

    number: int = 0
    pending: dict[Target, Pending] = field(default_factory=dict)
    waits: dict[Target, Wait] = field(default_factory=dict)
    _targets: dict[int, Target] = field(default_factory=dict)

    def free(self, target: Target, now: float) -> bool:
        """Whether the object may be written now."""
        wait = self.waits.get(target)
        return target not in self.pending and (wait is None or wait.until <= now)

    def send(self, target: Target, make: Callable[[int], Write]) -> Write:
        """The write of ``make``, numbered and under way."""
        self.number += 1
        write = make(self.number)
        self.pending[target] = Pending(self.number, write)
        self._targets[self.number] = target
        return write

    def answered(self, number: int) -> tuple[Target, Pending] | None:
        """The write that this is the answer of; None for one that was settled by the watch before."""
        target = self._targets.pop(number, None)
        pending = self.pending.get(target) if target is not None else None
        if target is None or pending is None or pending.number != number:
            return None
        return target, pending

    def settle(self, target: Target, now: float) -> None:
        """Done: now the watch is to show it, unless it was faster than the answer."""
        self.waits.pop(target, None)
        if self.pending[target].seen:
            del self.pending[target]
        else:
            self.pending[target].until = now + SETTLE_S

    def over(self, target: Target) -> None:
        """Done, and there is nothing that a watch could show."""
        self.waits.pop(target, None)
        self.pending.pop(target, None)

    def shown(self, target: Target) -> None:
        """The watch told of the object. Where that was something older, the write is made again, which changes nothing:
        names are taken, uids and resourceVersions are compared."""
        pending = self.pending.get(target)
        if pending is not None and pending.until is not None:
            del self.pending[target]
        elif pending is not None:
            pending.seen = True

    def failed(self, target: Target, now: float, message: str) -> None:
        """Try again later, doubling."""
        self.pending.pop(target, None)
        failures = self.waits[target].failures + 1 if target in self.waits else 1
        wait_s = min(MOST_S, backoff_s(failures, first_s=FIRST_S, most_s=MOST_S, drawn=1.0))
        self.waits[target] = Wait(failures, now + wait_s, message)

    def forget(self, key: str, *, over: float | None = None) -> None:
        """What failed of a job: all of it, or what is due by ``over`` and is not wanted any more."""
        for target, wait in list(self.waits.items()):
            idle = over is None or (wait.until <= over and target not in self.pending)
            if idle and job_of_target(target) == key:
                del self.waits[target]

    def expire(self, now: float) -> list[Target]:
        """What the watch did not show in time, and waits that are over: those objects are looked at anew."""
        late = [target for target, one in self.pending.items() if one.until is not None and one.until <= now]
        for target in late:
            del self.pending[target]
        return [*late, *(target for target, wait in self.waits.items() if wait.until <= now)]

    def wake_at(self, now: float) -> float | None:
        """When ``expire`` has something to say next; waits that are over belong to nobody's plan any more."""
        times = [one.until for one in self.pending.values() if one.until is not None]
        times += [wait.until for wait in self.waits.values() if wait.until > now]
        return min(times, default=None)


@dataclass(slots=True)
class JobState:
    """One job: the object as it stands, and what this term knows beside it."""

    job: TrainingJob
    wish: JobAllocation | None = None
    """What was decided and is not yet in the status."""
    members: str = ""
    """A digest of the workers that ran together last, where this term has seen them; "": the status says."""
    change_began: float = 0.0
    """When they stopped running as they were (wall); 0.0: they run."""
    awaits_report: float = 0.0
    """Since when the first report after a change is waited for (wall)."""
    counted_at: float = 0.0
    """Up to when GPU time is counted (wall)."""
    gpu_s: float = 0.0
    ran_s: float = 0.0
    """Counted and not yet in the status."""
    report: JobReport | None = None
    """The newest, where it is not yet in the status."""
    speeds: Reports = field(default_factory=Reports)
    """How fast it ran, by its reports in this term."""
    believed: bool = False
    """Whether this term has accepted one."""
    lost_steps: int = 0
    restarts: int = 0
    restart_s: float = 0.0
    report_problem: tuple[str, str] = ("", "")
    """(reason, message) of the last report that was refused."""
    read_annotations: dict[str, str] = field(default_factory=dict)
    saved: int = -1
    """The step of the last checkpoint that was told."""
    saved_at: float = 0.0
    """When that was news (wall), or when it began to run."""
    finishing_since: float = 0.0
    unplaced_since: float = 0.0
    """Since when some of its pods have no node (wall); 0.0: all have."""
    placed: int = 0
    """The most workers that had one since then."""
    slow_since: float = 0.0
    begun: int = 0
    """The same of those whose program has begun."""
    given_back: tuple[str, str] = ("", "")
    """(reason, message) of why its GPUs were given back last."""
    freed: bool = False
    """A name that somebody else's object had is free, since GPUs were given back."""
    refusals: Counter[str] = field(default_factory=Counter)
    """How often kubelets refused each pod of it, by name, since all of it ran."""
    refusal: str = ""
    """What the last one said."""
    not_before: float = 0.0
    """No pod of it is made before (wall): kubelets refuse them."""
    trial: set[str] = field(default_factory=set)
    """Roles of pods that the API server is still to be asked about (``trial.py``)."""
    passed: bool = False
    """It would make the pods of this spec, as it said."""
    met: tuple[int, str] = (-1, "")
    """(attempt, uid) of the worker that all meet at, where it ran."""
    excuses: dict[str, int] = field(default_factory=dict)
    """Uids of workers that were taken away, and the attempt that each excuses; -1: none any more."""
    written_at: float = 0.0
    waits_for: str = ""
    """Why the last decision gave it nothing."""
    quota: Blocked | None = None
    """Which limit of a Queue holds it back, or its growth."""
    refused: str = ""
    """Why what a policy wanted of it was not done."""
    story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY))


@dataclass(slots=True)
class JobsState:
    """Everything. ``offset``: seconds since 1970 minus the clock's; ``group``: the PodGroup that is served."""

    term: int
    settings: JobsCoreSettings
    rules: TrainingPodRules
    offset: float
    group: Resource[Any] = PODGROUPS
    report_key: bytes = b""
    jobs: dict[str, JobState] = field(default_factory=dict)
    """By ``namespace/name``."""
    key_of: dict[str, str] = field(default_factory=dict)
    """By the job's uid."""
    pods: dict[str, WorkerPod] = field(default_factory=dict)
    names: dict[Target, str] = field(default_factory=dict)
    """Uids of pods by name."""
    now: float = 0.0
    """Of the turn."""
    of_job: dict[str, dict[str, WorkerPod]] = field(default_factory=dict)
    """By the job's uid, then the pod's."""
    nodes: dict[str, GpuNode] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    """Queue objects by name, as they are written: their status is left out."""
    bindings: dict[str, str] = field(default_factory=dict)
    """The queue of each namespace that one names."""
    usage: WorkerUsage = field(default_factory=WorkerUsage)
    made: dict[Target, MadeObject] = field(default_factory=dict)
    writes: PendingWrites = field(default_factory=PendingWrites)
    timeline: JobsTimeline = field(default_factory=JobsTimeline)

    def wall(self, now: float) -> float:
        """Seconds since 1970."""
        return now + self.offset

    def job_of(self, pod: WorkerPod) -> JobState | None:
        """The job that owns the pod, where it is known. Nobody owns across namespaces: a pod that is made elsewhere
        with a job's uid in it neither ends nor fails that job, nor reports for it."""
        seen = self.jobs.get(self.key_of.get(pod.job, ""))
        return seen if seen is not None and seen.job.namespace == pod.namespace else None

    def pods_of(self, job: TrainingJob) -> list[WorkerPod]:
        """The job's pods, in the order of their names. One whose deletion is under way counts as on its way out."""
        ours = (pod for pod in self.of_job.get(job.uid, {}).values() if pod.namespace == job.namespace)
        wall, pods = self.wall(self.now), sorted(ours, key=lambda pod: (pod.role, pod.index, pod.uid))
        return [as_of(replace(pod, state=PodState.LEAVING) if self._leaves(pod) else pod, wall) for pod in pods]

    def named(self, target: Target) -> WorkerPod | None:
        """The pod of this name, whoever's it is."""
        return self.pods.get(self.names.get(target, ""))

    def _leaves(self, pod: WorkerPod) -> bool:
        pending = self.writes.pending.get((POD, pod.namespace, pod.name))
        return (
            pending is not None
            and isinstance(pending.write, DeleteObject)
            and pending.write.uid == pod.uid
            and not pod.terminating
        )
