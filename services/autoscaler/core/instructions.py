"""What an autoscaler's core asks for. Each read, commit, write and telling ends in one event."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from shared.autoscaling.hpa.model import HpaMetric
from shared.model.controllers.autoscaler import Autoscaler, TargetRef
from shared.turns import Log, Stop
from shared.wire.records import AutoscaleRecord


class ReadRound(Struct, frozen=True):
    """Read everything that a decision needs. ``hpas``: by service, the HPA whose bounds are set; ``metrics``: what the
    HPA's rule asks of each service."""

    scaler: Autoscaler
    number: int
    hpas: Mapping[str, str] = {}
    metrics: tuple[HpaMetric, ...] = ()


class CommitRecord(Struct, frozen=True, kw_only=True):
    """Write the record and one slot of the ring, if we lead and the record is as it was read."""

    key: str
    number: int
    record: AutoscaleRecord
    last_revision: int
    slot: int
    decision: Mapping[str, object]


class ScaleTo(Struct, frozen=True, kw_only=True):
    """Set the replicas of one workload, if it is still as it was read."""

    service: str
    namespace: str
    ref: TargetRef
    uid: str
    resource_version: str
    replicas: int


class SetBounds(Struct, frozen=True, kw_only=True):
    """Set the bounds of one HPA, if it is still as it was read."""

    service: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    minimum: int
    maximum: int


class Write(Struct, frozen=True):
    """All writes of one decision."""

    key: str
    number: int
    writes: tuple[ScaleTo | SetBounds, ...]


class Announce(Struct, frozen=True):
    """Write one Kubernetes event on the object. ``kind``: Normal or Warning; ``note``: for people."""

    scaler: Autoscaler
    kind: str
    reason: str
    action: str
    note: str


class TellStatus(Struct, frozen=True):
    """Write the object's status."""

    scaler: Autoscaler
    status: Mapping[str, object]


class Forget(Struct, frozen=True):
    """The object is gone: delete what etcd has of it."""

    key: str


class Sweep(Struct, frozen=True):
    """Delete what etcd has of objects that are not in ``keep``: they were deleted while nobody led."""

    keep: frozenset[str]


Instruction = ReadRound | CommitRecord | Write | TellStatus | Announce | Forget | Sweep | Stop | Log
