"""The record of the candidate policy in etcd: followed, and written as the core says."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from services.jobs.core.events import Event, JobsListed, RolloutSeen
from services.jobs.core.instructions import WriteRollout
from shared.jobs.domain import JOBS
from shared.ports import Store
from shared.runtime.records.prefix_watch import until_known
from shared.runtime.records.rollouts import follow_rollout, write_rollout
from shared.wire.keys import Keys

log = structlog.get_logger()

ROLLOUT = "rollout"
"""Beside the kinds of the API server: a leader that decides before it read the record decides by the wrong policy."""


class Rollouts:
    """Of one term."""

    def __init__(self, store: Store, keys: Keys, term: int) -> None:
        self._store = store
        self._keys = keys
        self._term = term

    async def follow(self, post: Callable[[Event], None]) -> None:
        """Eternal."""
        async for rollout, revision in follow_rollout(self._store, self._keys, JOBS):
            post(RolloutSeen(rollout, revision))
            post(JobsListed(ROLLOUT))

    async def write(self, wanted: WriteRollout) -> None:
        """Until etcd has answered. Where somebody changed the record meanwhile, the core goes on by theirs."""
        written = await until_known(
            lambda: write_rollout(
                self._store, self._keys, JOBS, wanted.rollout, revision=wanted.revision, term=self._term
            ),
            "rollout_unwritten",
        )
        if not written:
            log.info("rollout_changed_meanwhile", revision=wanted.revision)
