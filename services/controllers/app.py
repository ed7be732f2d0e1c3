"""Both controllers beside the mesh in one process: composition of two services, and nothing else.

    one loop, one etcd channel, one lease thread, one peer listener, one client of the API server
      candidate jobs       (its own key, term, lease) --> lead
      candidate autoscaler (its own key, term, lease) --> lead

Each is what it is in a process of its own, and watches what it needs; the two keys may be led by different processes.
Losing either ends the process with code 3, since what is left of it is a standby's.
"""

from __future__ import annotations

import asyncio

from services.autoscaler import app as autoscaler
from services.autoscaler.admin import ScalerAdmin
from services.controllers.settings import ControllersSettings
from services.jobs import app as jobs
from services.jobs.admin import JobsAdmin
from shared.adapters.kube.config import KubeConfig
from shared.runtime.leading import Faces, on_cluster
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.process.runtime import Runtime
from shared.runtime.process.service import Service


class ControllersFace(Faces):
    """``/v1/status`` is the jobs service's, with the autoscaler's as ``autoscaler``."""

    def __init__(self, runtime: Runtime[ControllersSettings], _: KubeConfig) -> None:
        self.jobs, self.autoscaler = JobsAdmin(runtime.id), ScalerAdmin(runtime.id)
        super().__init__(self.jobs, autoscaler=self.autoscaler)


async def main(service: Service, settings: ControllersSettings) -> None:
    """Run until asked to stop or until either leadership is lost. ``ConfigError``: a setting, etcd, the API server."""
    policy = jobs.policy_of(settings)
    async with on_cluster(service, settings, "controllers", ControllersFace) as (runtime, api, both):
        waiting = {"jobs", "autoscaler"}

        def stands(role: str) -> None:
            waiting.discard(role)
            if not waiting:
                runtime.ready()

        async with (
            LeaseThread(runtime.open_store, hung_after_s=settings.hung_after_s) as thread,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(jobs.serve(runtime, both.jobs, api, policy, ready=lambda: stands("jobs"), thread=thread))
            group.create_task(
                autoscaler.serve(runtime, both.autoscaler, api, ready=lambda: stands("autoscaler"), thread=thread)
            )
