"""Settings of the jobs service. The machinery is in ``shared.runtime.process.settings``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from services.jobs.core.state import JobsCoreSettings
from shared.hostport import server_of, split_host_port
from shared.jobs.domain import JOBS
from shared.kube.training.training_pods import TrainingPodRules
from shared.runtime.lease.settings import LeaderSettings
from shared.runtime.process.process import SchedulerName


@dataclass(frozen=True, kw_only=True)
class JobsSettings(LeaderSettings):
    """What the jobs service is told beside what every service is."""

    scheduler_name: SchedulerName = "conclave"
    """Who places the pods of jobs whose template names no scheduler."""
    policy: str = "elastic"
    """Who divides the GPUs over jobs; one of ``shared/jobs/registry.py``."""
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Of the policy's draws, where it makes any."""
    decide_every_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 30.0
    """How often the policy is asked, beside when jobs or nodes come and go."""
    decide_least_s: Annotated[float, msgspec.Meta(ge=0.01, le=600)] = 2.0
    """Between two decisions, however much happens."""
    decide_deadline_s: Annotated[float, msgspec.Meta(ge=0.01, le=10)] = JOBS.limits.deadline_s
    """CPU time beyond which a policy's answer is late; three late ones, and ``elastic`` decides for a while."""
    status_every_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 15.0
    """How often mere figures (progress, GPU time) are written on a job; a new phase is written at once."""
    silent_after_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 300.0
    """A job that has reported and then reports nothing for so long is told so."""
    start_timeout_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 600.0
    """GPUs for a job's pods that no node takes are given back after so long; it is tried again later."""
    retry_first_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 10.0
    """Before the second attempt of a job that failed; doubled by each further one."""
    retry_most_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 300.0
    """The longest wait between two attempts."""
    report_listen: str = ""
    """HOST:PORT where jobs report; empty: nowhere, and they report by annotation (docs/jobs.md)."""
    report_url: str = ""
    """URL under which workers reach it, as http://conclave-jobs-reports.conclave-system:8711. Empty: the listener's
    port, at the host of ``advertise``."""
    validate: bool = False
    """Check the core's invariants after each turn; for tests and when a bug is looked for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.report_listen:
            split_host_port(self.report_listen, "report_listen")
        elif self.report_url:
            raise ValueError("report_url: is given without report_listen; give HOST:PORT to listen on, or leave it out")
        if self.report_url:
            try:
                server_of(self.report_url)
            except ValueError as error:
                raise ValueError(f"report_url: {error}") from None
        if self.retry_most_s < self.retry_first_s:
            raise ValueError("retry_most_s: is below retry_first_s; raise the one or lower the other")
        if self.decide_every_s < self.decide_least_s:
            raise ValueError("decide_every_s: is below decide_least_s; raise the one or lower the other")

    def core(self) -> JobsCoreSettings:
        """The core's share of them."""
        return JobsCoreSettings(
            decide_every_s=self.decide_every_s,
            decide_least_s=self.decide_least_s,
            status_every_s=self.status_every_s,
            silent_after_s=self.silent_after_s,
            start_timeout_s=self.start_timeout_s,
            retry_first_s=self.retry_first_s,
            retry_most_s=self.retry_most_s,
            validate=self.validate,
        )

    def rules(self, report_url: str) -> TrainingPodRules:
        """What holds for the pods of every job."""
        return TrainingPodRules(scheduler_name=self.scheduler_name, report_url=report_url)
