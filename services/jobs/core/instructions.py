"""What the jobs core wants done. Each write has a number, and is answered by ``WriteAnswered`` once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from shared.decide.rollout import Rollout
from shared.kube.resources import Resource
from shared.model.controllers.training_job import JobStatus, TrainingJob
from shared.turns import Log


class CreateObject(Struct, frozen=True):
    """POST an object. Its name is stable: made twice, the second finds it there. ``dry_run``: the API server is asked
    whether it would make it, and makes nothing."""

    write: int
    resource: Resource[Any]
    namespace: str
    name: str
    body: Mapping[str, Any]
    dry_run: bool = False


class DeleteObject(Struct, frozen=True):
    """DELETE this very object."""

    write: int
    resource: Resource[Any]
    namespace: str
    name: str
    uid: str


class PatchMinimum(Struct, frozen=True):
    """The minimum of this very PodGroup."""

    write: int
    resource: Resource[Any]
    namespace: str
    name: str
    uid: str
    minimum: int


class WriteStatus(Struct, frozen=True):
    """The status of the job as it was seen: at another resourceVersion it is refused."""

    write: int
    job: TrainingJob
    status: JobStatus


class TellEvent(Struct, frozen=True):
    """A Kubernetes event on the job."""

    job: TrainingJob
    type: str
    reason: str
    note: str


class WriteRollout(Struct, frozen=True):
    """What became of the candidate policy, into etcd, where its record is still at ``revision``."""

    rollout: Rollout
    revision: int


Write = CreateObject | DeleteObject | PatchMinimum | WriteStatus
Instruction = Write | WriteRollout | TellEvent | Log
