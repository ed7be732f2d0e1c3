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
PROGRAM_ANNOTATION = "conclave.io/program"
"""On a pod of a job: its container that trains. Others may be put before and behind it when it is admitted."""
MADE_OF_LABEL = "conclave.io/made-of"
"""On a pod of a job: a digest of what of the spec it was made of, bounds left out."""
BOUNDS_ANNOTATION = "conclave.io/bounds"
"""On a worker: the bounds that it tells its processes."""
REPORT_ANNOTATION = "conclave.io/report"
"""On a worker's pod: its report as JSON, where it cannot reach the service."""

WORKER, PARAMETER_SERVER = "worker", "ps"
MAX_WORKERS = 1024
MAX_NAME = 50
"""Of a job: names of pods and their host names are made of it."""


class JobPhase(Enum):
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


ENDED = frozenset({JobPhase.SUCCEEDED, JobPhase.FAILED})


class JobFigures(Struct, frozen=True, kw_only=True, gc=False):
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


class JobReport(JobFigures, frozen=True, kw_only=True, gc=False):
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

    phase: JobPhase = JobPhase.PENDING
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
    rendezvous: int = 0
    """Index of the worker that the others meet at: another one where the pod of the last cannot be made anew."""
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
    report: JobReport = JobReport()
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
    amounts: tuple[tuple[str, int], ...] = ()
    """What one worker asks for by resource, the pod itself too."""
    ps_amounts: tuple[tuple[str, int], ...] = ()
    """The same of one parameter server."""
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
    def bounds(self) -> str:
        """The bounds that its workers are told, as torchrun reads them."""
        return f"{self.least}:{self.maximum}"

    @property
    def least(self) -> int:
        """The minimum that is in force: one that was raised over what the job has waits until there is room for it."""
        return min(self.minimum, self.status.target) if self.status.target else self.minimum


class PodState(Enum):
    """Where one pod of a job is: the only reading of it (``shared/kube/training/worker_pods.py``). What follows from
    each: ``services/jobs/core/following.py``."""

    WAITING = "Waiting"
    """It has no node: nobody placed it, a quota holds it, or a scheduling gate does."""
    STARTING = "Starting"
    """It has a node, and its program has not begun: volumes, images, init containers."""
    STUCK = "Stuck"
    """It has a node, and a container of it cannot begin: the kubelet tries again and again."""
    RUNNING = "Running"
    """Its program runs, whatever its other containers do."""
    SUCCEEDED = "Succeeded"
    """Its program ended well; a sidecar may run on."""
    FAILED = "Failed"
    """Its program, or a step before it, ended badly."""
    DISRUPTED = "Disrupted"
    """It ended by no fault of its own: evicted, preempted, refused by a kubelet, its node shut down."""
    LEAVING = "Leaving"
    """It is being deleted."""
    LOST = "Lost"
    """It should have been gone by now, and nobody confirms it: its node is lost, or a finalizer stays."""


PROGRAM_OVER = frozenset({PodState.SUCCEEDED, PodState.FAILED, PodState.DISRUPTED})


class WorkerPod(Struct, frozen=True, gc=False):
    """Any pod, as far as this service cares. ``job``: uid of the TrainingJob that owns it, "" where none does.

    ``state`` and ``cause``: where it is, and why in one word, as Kubernetes writes it (ImagePullBackOff, QueueQuota,
    OutOfcpu); ``message``: the same in a sentence. ``holds``: whether it still holds what it was given, though its
    program may be over. ``marked``: a DisruptionTarget, which goes by no fault of its own. ``leave_by``: when a pod
    that is being deleted should have gone, 0.0: it is not deleted. ``made_of``, ``bounds``: what its job's spec was
    when it was made; "" for one that does not say. ``group``: the pod group of somebody else's job. ``gpu_milli``: what
    it holds of GPUs; ``amounts``: all of it, by resource; ``queue``: the Queue that it names. Times are seconds since
    1970.
    """

    uid: str
    namespace: str
    name: str
    state: PodState = PodState.WAITING
    node: str = ""
    job: str = ""
    role: str = ""
    index: int = -1
    attempt: int = 0
    cause: str = ""
    message: str = ""
    holds: bool = True
    marked: bool = False
    leave_by: float = 0.0
    made_of: str = ""
    bounds: str = ""
    gpu_milli: int = 0
    amounts: tuple[tuple[str, int], ...] = ()
    group: str = ""
    queue: str = ""
    created: float = 0.0
    report: str = ""

    @property
    def ended(self) -> bool:
        """Its program is over."""
        return self.state in PROGRAM_OVER

    @property
    def terminating(self) -> bool:
        """It is on its way out."""
        return self.state in (PodState.LEAVING, PodState.LOST)


class GpuNode(Struct, frozen=True, gc=False):
    """A node that may hold workers; ``open`` False: cordoned or not ready, nothing new goes there. ``ready`` False: its
    kubelet is not heard of, or says so."""

    name: str
    gpu_milli: int = 0
    gpu_type: str = ""
    open: bool = True
    ready: bool = True
    amounts: tuple[tuple[str, int], ...] = ()
    """All that it has to give, by resource."""


class MadeObject(Struct, frozen=True, gc=False):
    """A PodGroup or Service that may be one of ours. ``job``: uid of its owner; ``minimum``: of a PodGroup; ``queue``:
    the Queue that it names."""

    kind: str
    namespace: str
    name: str
    uid: str
    job: str = ""
    minimum: int = 0
    deleting: bool = False
    queue: str = ""
