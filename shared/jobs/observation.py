"""What a policy for training jobs sees, and what it answers. The live service and the twin build the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from shared.decide.policy import MemoryPolicy


class Speed(Protocol):
    """How fast a job runs: measured (the twin's tables), or learned from what jobs report."""

    def samples_per_s(self, placement: tuple[int, ...], batch: int, gpu_type: str) -> float:
        """Samples per second with so many workers on each of the nodes it stands on; 0.0: it cannot run so.

        Of a job with parameter servers: with as many of these as it has workers.
        """
        ...

    def efficiency(self, batch: int, progress: float) -> float:
        """What one sample is worth at this batch, compared with the job's own batch: (0, 1]; ``progress`` in [0, 1]."""
        ...


@runtime_checkable
class ServedSpeed(Speed, Protocol):
    """Of a job with parameter servers whose number a policy may choose."""

    def served(self, workers: int, servers: int, batch: int) -> float:
        """Samples per second with so many of each, wherever they stand; 0.0: it cannot run so."""
        ...


class JobObservation(msgspec.Struct, frozen=True, kw_only=True):
    """One job that has come and has not ended."""

    name: str
    queue: str = ""
    priority: int = 0
    submitted: float
    """Seconds, of the observation's clock."""
    model: str = ""
    """What it trains, where somebody said so."""
    minimum: int
    maximum: int
    requested: int
    """Workers that its user asked for."""
    gpus_per_worker: float = 1.0
    """Also a share below 1.0; 0.0: it needs none."""
    server_gpus: float = 0.0
    """GPUs that its parameter servers take beside its workers as soon as it has any, and have not yet on a node."""
    batch: int
    """The user's global batch, samples."""
    batch_range: tuple[int, int] | None = None
    """None: the batch is fixed."""
    restart_s: float = 30.0
    """What a change of its workers costs, seconds in which nothing is learned."""
    workers: int = 0
    """0: it waits."""
    placement: Mapping[str, int] = {}
    """Workers by node."""
    servers: int = 0
    """Parameter servers that it has."""
    most_servers: int = 0
    """0: it has none, or their number is its user's."""
    batch_now: int = 0
    progress: float | None = None
    """Share of the work that is done, 0 to 1; None: it reports nothing."""
    attained_s: float = 0.0
    """GPU-seconds that it has had."""
    ran_s: float = 0.0
    restarts: int = 0
    since_change_s: float = 0.0
    """Seconds since its workers were last changed, or since it came."""
    remaining_samples: float | None = None
    """Samples at its own batch until it is done; None: unknown."""
    epochs_left: float | None = None
    speed: Speed | None = None
    """None: nothing is known of its speed."""


class NodeObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A node that may hold workers."""

    name: str
    gpus: int
    gpu_type: str = ""
    places: int = 0
    """Workers and parameter servers that it holds together; 0: parameter servers take no room that counts."""
    open: bool = True
    """False: it holds what stands on it and takes nothing new (cordoned, not ready, gone)."""


class JobsObservation(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs and nodes at one moment."""

    now: float
    jobs: tuple[JobObservation, ...]
    """In the order in which they came."""
    nodes: tuple[NodeObservation, ...]


class JobAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """What one job is to have. ``workers`` 0: it waits, or is stopped at its checkpoint."""

    workers: int
    placement: Mapping[str, int] | None = None
    """Workers by node; None: whoever places pods chooses."""
    batch: int | None = None
    """Global batch; None: as it is."""
    servers: int | None = None
    """Parameter servers, of a job whose number may be chosen; None: as many as workers, and no more than it takes."""


Decision = Mapping[str, JobAllocation]
"""By job. A job that is not named keeps what it has."""

Policy: TypeAlias = MemoryPolicy[JobsObservation, Decision]
"""Divides the GPUs over the jobs."""
