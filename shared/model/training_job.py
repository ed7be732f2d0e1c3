"""A TrainingJob as the jobs service sees it: what its user asked for, what was decided, what its workers report.

The object's status is where decisions live: a target is written there, under its resourceVersion, before the first pod
is made or taken away for it, so that whoever leads next goes on where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

JOB_LABEL = "conclave.io/training-job"
"""On what we make for a job: the job's name."""
ROLE_LABEL = "conclave.io/training-role"
INDEX_LABEL = "conclave.io/worker-index"
ATTEMPT_LABEL = "conclave.io/attempt"
"""Which attempt a pod was made in: a failure counts once, by the pods of the attempt that is under way."""
REPORT_ANNOTATION = "conclave.io/report"
"""On a worker's pod: its report as JSON, where it cannot reach the service."""

WORKER, PARAMETER_SERVER = "worker", "ps"
MAX_WORKERS = 1024
MAX_NAME = 50
"""Of a job: names of pods and their host names are made of it."""


class Phase(Enum):
    """Where a job is; see ``services/jobs/core/phases.py`` for the moves."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESHAPING = "Reshaping"
    RESTARTING = "Restarting"
    STOPPING = "Stopping"
    PAUSED = "Paused"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


ENDED = frozenset({Phase.SUCCEEDED, Phase.FAILED})


class Figures(Struct, frozen=True, kw_only=True, gc=False):
    """What a job may say of itself. None: it did not say."""

    steps: int | None = None
    samples_per_s: float | None = None
    loss: float | None = None
    progress: float | None = None
    """0 to 1."""
    epochs_left: float | None = None
    remaining_samples: float | None = None
    checkpoint_steps: int | None = None
    """The step of its last checkpoint."""
    resumed_steps: int | None = None
    """The step that its processes began at, from a checkpoint or 0: another one is another start of them."""


class Report(Figures, frozen=True, kw_only=True, gc=False):
    """The figures as they were accepted last."""

    at: float = 0.0
    """When it came, seconds since 1970."""


class JobCondition(Struct, frozen=True, gc=False):
    """One condition of the status."""

    type: str
    status: str
    reason: str
    message: str = ""


class JobStatus(Struct, frozen=True, kw_only=True):
    """The status as it was last written. Times are seconds since 1970; 0.0: not yet."""

    phase: Phase = Phase.PENDING
    observed_generation: int = 0
    term: int = 0
    """Of the leader that wrote it."""
    target: int = 0
    """Workers that it is to have: 0, or from its minimum to its maximum."""
    running: int = 0
    batch: int = 0
    """Global batch that was decided; 0: the job's own."""
    attempt: int = 0
    unplaced: int = 0
    """How often in a row its GPUs were given back because its pods found no node."""
    failures: int = 0
    """Attempts that failed, counted against ``backoff_limit``."""
    members: str = ""
    """A digest of which workers ran together last; "": none have."""
    restarts: int = 0
    """Changes of its workers while it ran: each made all of them start again from the checkpoint."""
    lost_steps: int = 0
    restart_s: float = 0.0
    """What such a change has cost, measured from reports, an exponential mean in seconds; 0.0: not measured."""
    gpu_s: float = 0.0
    ran_s: float = 0.0
    started: float = 0.0
    changed: float = 0.0
    """When its workers were last changed."""
    retry_at: float = 0.0
    """No worker is made before."""
    ended: float = 0.0
    report: Report = Report()
    conditions: tuple[JobCondition, ...] = ()


class TrainingJob(Struct, frozen=True, kw_only=True):
    """One object at one resourceVersion. ``problem``: what is wrong with it and what to do; it is left as it is then.

    ``template`` and ``ps_template`` are pod templates as JSON, which only the API server judges.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int = 0
    created: float = 0.0
    deleting: bool = False
    minimum: int = 1
    maximum: int = 1
    requested: int = 1
    template: Mapping[str, Any] = {}
    ps: int = 0
    ps_template: Mapping[str, Any] = {}
    gpu_milli: int = 0
    """Thousandths of a GPU per worker, of its template or of ``spec.gpuShare``."""
    ps_gpu_milli: int = 0
    """The same per parameter server."""
    gpu_share: bool = False
    """Whether ``gpu_milli`` is asked for by ``spec.gpuShare``: the worker's pod gets the request from us."""
    processes: int = 1
    """Processes of torchrun per worker."""
    port: int = 29_400
    batch: int = 0
    batch_range: tuple[int, int] | None = None
    checkpoint: str = ""
    """Where it keeps its checkpoints, in the words of the user; "": it has none."""
    checkpoint_every_s: float = 0.0
    """How often it means to write one; 0.0: it does not say."""
    restart_s: float = 30.0
    priority: int = 0
    priority_class: str = ""
    queue: str = ""
    model: str = ""
    backoff_limit: int = 3
    paused: bool = False
    problem: str = ""
    status: JobStatus = JobStatus()
    times: Mapping[str, str] = {}
    """lastTransitionTime by condition type, as it stands."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        """Succeeded or failed."""
        return self.status.phase in ENDED

    @property
    def least(self) -> int:
        """The minimum that is in force: one that was raised over what the job has waits until there is room for it."""
        return min(self.minimum, self.status.target) if self.status.target else self.minimum


class WorkerPod(Struct, frozen=True, gc=False):
    """Any pod, as far as this service cares. ``job``: uid of the TrainingJob that owns it, "" where none does.

    ``disrupted``: it failed because somebody evicted it or its node was lost, which is no fault of the job.
    ``group``: the pod group of somebody else's job. ``gpu_milli``: what it holds of GPUs.
    """

    uid: str
    namespace: str
    name: str
    phase: str = "Pending"
    node: str = ""
    terminating: bool = False
    job: str = ""
    role: str = ""
    index: int = -1
    attempt: int = 0
    disrupted: bool = False
    message: str = ""
    gpu_milli: int = 0
    group: str = ""
    created: float = 0.0
    report: str = ""

    @property
    def ended(self) -> bool:
        """Succeeded or Failed: it holds nothing."""
        return self.phase in ("Succeeded", "Failed")


class GpuNode(Struct, frozen=True, gc=False):
    """A node that may hold workers; ``open`` False: cordoned or not ready, nothing new goes there."""

    name: str
    gpu_milli: int = 0
    gpu_type: str = ""
    open: bool = True


class MadeObject(Struct, frozen=True, gc=False):
    """A PodGroup or Service that may be one of ours. ``job``: uid of its owner; ``minimum``: of a PodGroup."""

    kind: str
    namespace: str
    name: str
    uid: str
    job: str = ""
    minimum: int = 0
    deleting: bool = False
