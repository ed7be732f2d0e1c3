"""Settings of the autoscaler. The machinery is in ``shared.runtime.process.settings``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from services.autoscaler.core.state import ScalerCoreSettings
from shared.ports import MAX_TXN_OPS
from shared.runtime.lease.settings import LeaderSettings
from shared.runtime.process.process import check_prometheus


@dataclass(frozen=True, kw_only=True)
class AutoscalerSettings(LeaderSettings):
    """What an autoscaler is told beside what every service is."""

    decide_every_s: Annotated[float, msgspec.Meta(ge=0.2, le=3600)] = 10.0
    """How often the replicas of each object's services are decided."""
    max_rounds: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16
    """Objects that are decided at once."""
    read_timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=60_000)] = 3_000
    """Deadline of each read of a decision: workloads, metrics, etcd. What is not read by then counts as unknown."""
    write_timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=60_000)] = 2_000
    """Deadline of each write; what is not answered by then is read back by the next decision."""
    record_every_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 300.0
    """A decision that is like the one before is recorded so often all the same."""
    history: Annotated[int, msgspec.Meta(ge=1, le=MAX_TXN_OPS - 1)] = 64
    """Decisions that etcd keeps per object, with all their inputs."""
    tell_every_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 5.0
    """An object's status is written at most so often."""
    prometheus: str = ""
    """URL of the Prometheus that objects' queries are asked of; objects cannot name another. Empty: none."""
    prometheus_token_file: Path | None = None
    """File with a bearer token for it, read before each query."""
    prometheus_ca: Path | None = None
    """CA that signs its certificate (PEM), where that is none of the system's; read again when it changes."""
    weights_dir: Path | None = None
    """Folder with weights that objects may name in spec.policy.settings.weights: a file SHA256.npz each. Empty: only
    those that are shipped."""
    validate: bool = False
    """Check every invariant of the core after each turn, and end the term where one is broken; for tests and for
    hunting a bug."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_prometheus(self.prometheus, self.prometheus_token_file, self.prometheus_ca)

    def scaler_core(self) -> ScalerCoreSettings:
        """What the core is told."""
        return ScalerCoreSettings(
            decide_every_s=self.decide_every_s,
            most_rounds=self.max_rounds,
            record_every_s=self.record_every_s,
            history=self.history,
            tell_every_s=self.tell_every_s,
        )
