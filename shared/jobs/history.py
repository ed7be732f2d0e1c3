"""What a live cluster decided about its TrainingJobs, a line of JSON each time, so that it can be imitated. Pure.

``conclave jobs record`` writes it from the objects as they change, whoever decides; ``conclave train jobs-dl2
--warm-up FILE`` learns from it. Times are seconds.
"""

from __future__ import annotations

import msgspec

from shared.errors import ConfigError
from shared.jobs.observation import Decision, JobAllocation, JobObservation, JobsObservation, NodeObservation
from shared.model.controllers.training_job import GpuNode, JobPhase, TrainingJob
from shared.model.resources import MILLI_PER_DEVICE

REMEDY = "give a file of conclave jobs record"
BEGIN = len('{"at":')
"""So many characters are alike at the beginning of all lines."""


class DecidedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job: what was known of it, and how many ``workers`` were decided."""

    name: str
    model: str = ""
    minimum: int
    maximum: int
    requested: int
    gpus_per_worker: float = 1.0
    submitted: float = 0.0
    ran_s: float = 0.0
    epochs_left: float | None = None
    progress: float | None = None
    before: int = 0
    """Workers that it had until then."""
    workers: int


class DecidedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs that are there, in the order in which they came. ``gpus``: whole ones of open nodes."""

    at: float
    gpus: int
    jobs: tuple[DecidedJob, ...]

    def observation(self) -> JobsObservation:
        """What whoever decided saw, as far as it was recorded; all GPUs as one node's."""
        jobs = (
            JobObservation(
                name=job.name, submitted=job.submitted, model=job.model, minimum=job.minimum, maximum=job.maximum,
                requested=job.requested, gpus_per_worker=job.gpus_per_worker, batch=1, workers=job.before,
                ran_s=job.ran_s, epochs_left=job.epochs_left, progress=job.progress,
            )
            for job in self.jobs
        )  # fmt: skip
        return JobsObservation(now=self.at, jobs=tuple(jobs), nodes=(NodeObservation(name="cluster", gpus=self.gpus),))

    def decision(self) -> Decision:
        """What was decided."""
        return {job.name: JobAllocation(workers=job.workers) for job in self.jobs}


class HistoryRecorder:
    """Follows TrainingJobs and nodes, and says what was decided each time that it changed."""

    def __init__(self) -> None:
        self.jobs: dict[str, TrainingJob] = {}
        self.nodes: dict[str, GpuNode] = {}
        self._had: dict[str, int] = {}

    def news(self, at: float) -> DecidedJobs | None:
        """The decision that holds now; None: it is the one that was told last, nobody is there, or only half of it can
        be seen yet (more GPUs than there are). Jobs that hold no GPUs, are paused, have ended or cannot be used are
        left out: nobody divides anything for them."""
        here = sorted(filter(_counts, self.jobs.values()), key=lambda job: (job.created, job.key))
        given = {job.key: job.status.target for job in here}
        if not here or given == self._had:
            return None
        gpus = sum(node.gpu_milli for node in self.nodes.values() if node.open) // MILLI_PER_DEVICE
        found = DecidedJobs(at=at, gpus=gpus, jobs=tuple(_decided(job, self._had.get(job.key, 0)) for job in here))
        if _problem(found):
            return None
        self._had = given
        return found


def _counts(job: TrainingJob) -> bool:
    """Whether a policy divides GPUs for it."""
    idle = job.ended or job.deleting or job.paused or job.problem
    return bool(job.gpu_milli and not idle and job.status.phase is not JobPhase.STOPPING)


def _decided(job: TrainingJob, before: int) -> DecidedJob:
    status = job.status
    return DecidedJob(
        name=job.key, model=job.model, minimum=job.minimum, maximum=job.maximum, requested=job.requested,
        gpus_per_worker=job.gpu_milli / MILLI_PER_DEVICE, submitted=job.created, ran_s=status.ran_s,
        epochs_left=status.report.epochs_left, progress=status.report.progress, before=before, workers=status.target,
    )  # fmt: skip


def line_of(decided: DecidedJobs) -> str:
    """One line of the file, without its end."""
    return msgspec.json.encode(decided).decode()


def whole_lines(text: str, file: str) -> int:
    """How many characters of a record are lines that end; what follows is one that its writer did not finish.
    ``ConfigError``: it is no record, and nobody may append to it."""
    end = text.rfind("\n") + 1
    if text[:end].strip():
        parse_history(text[:end], file)
    if text[end:] and not line_of(DecidedJobs(at=0.0, gpus=0, jobs=())).startswith(text[end:][:BEGIN]):
        raise ConfigError(f"{file}: its last line is no decision; {REMEDY}, or the name of a new file")
    return end


def parse_history(text: str, file: str) -> list[DecidedJobs]:
    """The decisions, in the file's order. ``ConfigError`` names the line and what is wrong with it."""
    found: list[DecidedJobs] = []
    for line, row in enumerate(text.splitlines(), 1):
        if not row.strip():
            continue
        try:
            one = msgspec.json.decode(row, type=DecidedJobs)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ConfigError(f"{file}, line {line}: {error}; {REMEDY}") from None
        problem = _problem(one)
        if problem:
            raise ConfigError(f"{file}, line {line}: {problem}; {REMEDY}")
        found.append(one)
    if not found:
        raise ConfigError(f"{file}: no decision is in it; {REMEDY}")
    return found


def _problem(one: DecidedJobs) -> str:
    """What cannot be true of it; ""."""
    for job in one.jobs:
        if not 1 <= job.minimum <= job.maximum:
            return f"job {job.name!r}: minimum {job.minimum} and maximum {job.maximum} are no bounds"
        if job.workers and not job.minimum <= job.workers <= job.maximum:
            return f"job {job.name!r}: {job.workers} workers, it takes {job.minimum} to {job.maximum}"
        if job.gpus_per_worker <= 0.0:
            return f"job {job.name!r}: gpus_per_worker {job.gpus_per_worker:g} must be above 0"
        least = min(job.ran_s, job.epochs_left or 0.0)
        if least < 0.0:
            return f"job {job.name!r}: ran_s and epochs_left must be 0 or more, not {least:g}"
    used = sum(job.workers * job.gpus_per_worker for job in one.jobs)
    return f"{used:g} GPUs are given, there are {one.gpus}" if used > one.gpus else ""
