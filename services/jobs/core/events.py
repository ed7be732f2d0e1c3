"""What the jobs core is told. Frozen data; all of it may come twice."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from shared.decide.rollout import Rollout
from shared.jobs.reports import Said
from shared.model.controllers.training_job import GpuNode, MadeObject, TrainingJob, WorkerPod
from shared.model.units.queue import Queue
from shared.turns import Tick


class JobSeen(Struct, frozen=True):
    job: TrainingJob


class JobGone(Struct, frozen=True):
    key: str


class JobsPodSeen(Struct, frozen=True):
    pod: WorkerPod


class JobsPodGone(Struct, frozen=True):
    uid: str


class JobsNodeSeen(Struct, frozen=True):
    node: GpuNode


class JobsNodeGone(Struct, frozen=True):
    name: str


class QueueSeen(Struct, frozen=True):
    queue: Queue


class QueueGone(Struct, frozen=True):
    name: str


class MadeSeen(Struct, frozen=True):
    """A PodGroup or Service came or changed, anybody's."""

    made: MadeObject


class MadeGone(Struct, frozen=True):
    kind: str
    key: str


class JobsListed(Struct, frozen=True):
    """The first complete list of a kind, by its plural, was delivered, or there is none to be had."""

    kind: str


class WriteOutcome(Enum):
    """What became of a write."""

    DONE = "done"
    EXISTS = "exists"
    """A create found the name taken."""
    STALE = "stale"
    """409, 404: the object is not any more what we thought; the watch will show it."""
    REFUSED = "refused"
    UNKNOWN = "unknown"


class WriteAnswered(Struct, frozen=True):
    """The answer of one write, by its number."""

    write: int
    outcome: WriteOutcome
    message: str = ""


class Reported(Struct, frozen=True):
    """A job's report that came over HTTP, by its token's job. ``problem``: it could not even be read."""

    key: str
    uid: str
    said: Said
    problem: str = ""
    reason: str = ""


class RolloutSeen(Struct, frozen=True):
    """The record of the candidate policy, at its revision in etcd; 0: there is none."""

    rollout: Rollout
    revision: int


Event = (
    JobSeen
    | JobGone
    | JobsPodSeen
    | JobsPodGone
    | JobsNodeSeen
    | JobsNodeGone
    | QueueSeen
    | QueueGone
    | MadeSeen
    | MadeGone
    | JobsListed
    | WriteAnswered
    | Reported
    | RolloutSeen
    | Tick
)
