"""The mesh in one process, for small clusters and small machines: composition of two services, and nothing else.

    one loop, one etcd channel, one lease thread, one peer listener
      candidate coordinator (its own key, term, lease) --> lead --plans: a call where our binder leads, else HTTP--+
      candidate binder      (its own key, term, lease) --> lead <-------------------------------------------------+
      one watch per kind for both, which begins when both lead, or another process leads one of the keys, or one role
      has waited for the other for a lease's time (the API server may keep a coordinator from its Lease); a standby's
      is a mirror for both (ADR 0058)

Each is what it is in a process of its own; the two keys may be led by different processes. Losing either ends the
process with code 3, since what is left of it is a standby's. Whoever leads as coordinator has a lease's time, 5 s at
most, to take the binder's key before the others campaign for it, so that two processes do not share what one could do
alone. Asked to stop, the coordinator resigns at once and the binder once its units are settled.
"""

from __future__ import annotations

import asyncio

from services.binder import app as binder
from services.coordinator import app as coordinator
from services.single.settings import SingleSettings
from shared.adapters.kube.config import KubeConfig
from shared.election.elector import MOST_YIELD_S
from shared.runtime.kube.watches import Watches
from shared.runtime.leading import Faces, on_cluster
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.process.runtime import Runtime
from shared.runtime.process.service import Service


class MeshFace(Faces):
    """``/v1/status`` is the coordinator's, with the binder's as ``binder``."""

    def __init__(self, runtime: Runtime[SingleSettings], access: KubeConfig) -> None:
        self.deciding, self.binding = coordinator.admin_of(runtime, access), binder.admin_of(runtime, access)
        super().__init__(self.deciding, binder=self.binding)


async def main(service: Service, settings: SingleSettings) -> None:
    """Run until asked to stop or until either leadership is lost. ``ConfigError``: a setting, etcd, the API server."""
    async with on_cluster(service, settings, "single", MeshFace) as (runtime, api, both):
        deciding, binding = both.deciding, both.binding
        watches = Watches(api, coordinator.FOLLOWED, binder.FOLLOWED, images=True, patience_s=settings.lease_ttl_s)
        watches.register(runtime.metrics)
        turn = asyncio.Event()

        def coordinates(ours: bool) -> None:
            if ours:
                turn.set()
            else:
                watches.begin()
                asyncio.get_running_loop().call_later(min(settings.lease_ttl_s, MOST_YIELD_S), turn.set)

        async def bind() -> None:
            if await comes(turn, unless=service.stopping):
                await binder.serve(
                    runtime, binding, api, watches, ready=lambda: None, thread=thread,
                    on_leader=lambda ours: None if ours else watches.begin(),
                )  # fmt: skip

        async with (
            LeaseThread(runtime.open_store, hung_after_s=settings.hung_after_s) as thread,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(bind())
            group.create_task(
                coordinator.serve(
                    runtime, deciding, api, watches, ready=runtime.ready, thread=thread, on_leader=coordinates,
                    binder=binding.submit,
                )
            )  # fmt: skip


async def comes(event: asyncio.Event, *, unless: asyncio.Event) -> bool:
    """True once ``event`` is set; False once ``unless`` is, also where both are: who stops takes up nothing new."""
    waiting = [asyncio.ensure_future(one.wait()) for one in (event, unless)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    return not unless.is_set()
