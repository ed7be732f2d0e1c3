"""A coordinator's core, and what one learns while another process leads (ADR 0066)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import structlog

from services.coordinator.core.core import Core
from services.coordinator.settings import CoordinatorSettings
from shared.adapters.kube.api import KubeClient
from shared.kube.scheduling_kinds import GROUP_KINDS, JOBS, QUEUE_KIND, RESERVATION_KIND, SCHEDULING_KINDS
from shared.policy.registry import ref_of
from shared.ports import Store
from shared.runtime.kube.heir import Heir
from shared.runtime.kube.watches import Post, Watches
from shared.runtime.process.service import boottime
from shared.runtime.records.shards import read_shards
from shared.scheduling.shards import Shards
from shared.wire.keys import Keys

log = structlog.get_logger()


async def reads_jobs(api: KubeClient) -> bool:
    """Whether pods of Jobs may be in groups."""
    readable = await api.may_list(JOBS.resource)
    if not readable:
        log.warning("jobs_not_readable", effect="Indexed Jobs are placed pod by pod", remedy="update the ClusterRole")
    return readable


def core_of(term: int, settings: CoordinatorSettings, shards: Shards, elsewhere: frozenset[str] = frozenset()) -> Core:
    """One that knows nothing yet. ``elsewhere``: names of ours whose pods another mesh has."""
    return Core(
        term=term,
        scheduler_name=settings.scheduler_name,
        policy=ref_of(settings.policy).name,
        rng=Random(settings.seed),
        settings=replace(settings.core(), elsewhere=elsewhere),
        shards=shards,
        kinds=[kind.name for kind in (*SCHEDULING_KINDS, *GROUP_KINDS, QUEUE_KIND, RESERVATION_KIND)],
    )


class StandbyCore(Heir[Core]):
    """What is learned while another leads, with the groups of Jobs if those may be read."""

    def __init__(
        self, api: KubeClient, watches: Watches, settings: CoordinatorSettings, store: Store, keys: Keys
    ) -> None:
        super().__init__(
            lambda: read_shards(store, keys), lambda shards: core_of(0, settings, shards),
            lambda core, events: core.learn(events, boottime()), self._attend_to,
        )  # fmt: skip
        self._reads_jobs = True
        self._api = api
        self._watches = watches

    def inherited(self, shards: Shards, *, reads_jobs: bool, serves_all: bool = True) -> Core | None:
        """As ``take``; None also where Jobs may be read now and could not be, or the other way round, and where another
        mesh has a name of ours."""
        return self.take(shards, fits=serves_all and reads_jobs is self._reads_jobs)

    async def _attend_to(self, hear: Post) -> bool:
        self._reads_jobs = readable = await reads_jobs(self._api)
        return self._watches.attend(hear, job_groups=readable, images=True)
