"""Settings of both controllers in one process: those of jobs and autoscaler; what both have counts for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import msgspec

from services.autoscaler.core.state import ScalerCoreSettings
from services.autoscaler.settings import AutoscalerSettings
from services.jobs.settings import JobsSettings


@dataclass(frozen=True, kw_only=True)
class ControllersSettings(JobsSettings, AutoscalerSettings):
    """What the process is told. ``decide_every_s`` is that of training jobs here."""

    COMPOSES: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "jobs": {},
        "autoscaler": {"DECIDE_EVERY_S": "AUTOSCALE_EVERY_S"},
    }
    """Whose settings these are, and what is called otherwise here (``load``)."""

    autoscale_every_s: Annotated[float, msgspec.Meta(ge=0.2, le=3600)] = AutoscalerSettings.decide_every_s
    """How often the replicas of each object's services are decided; an autoscaler's ``decide_every_s``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_certificates("jobs and autoscaler")

    def scaler_core(self) -> ScalerCoreSettings:
        """What the autoscaler's core is told."""
        return replace(super().scaler_core(), decide_every_s=self.autoscale_every_s)
