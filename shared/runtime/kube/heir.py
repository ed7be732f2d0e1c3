"""The core of a standby that is told of pods and nodes as they come, so that a takeover makes no pass over them.

    stands by --made for the nodes as they are divided--> learns --elected--> leads, and is told what is new alone
                                        |                    |--divided anew--> dropped: an empty core is told all
                                        |--an error of what it learns--------->

What it learns decides nothing, and a term begins with nothing else: intents, agents and the other kinds are read by the
leader (ADR 0066). The mirror goes on without it: whatever is wrong with it, another may lead. Not its job: to know when
all is there (``shared_watches.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog

from shared.errors import ConfigError, StoreError
from shared.model.cluster_events import ClusterEvent
from shared.scheduling.shards import Shards

C = TypeVar("C")

log = structlog.get_logger()

PATIENCE_S = 10.0
"""So long the mirror waits for the heir to be made."""


class Heir(Generic[C]):
    """One role's. ``read``: how the nodes are divided, as etcd has it; ``make``: the core for that; ``learn``: what the
    core does with events; ``attend``: lets them be told, False where they cannot be."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Shards]],
        make: Callable[[Shards], C],
        learn: Callable[[C, list[ClusterEvent]], None],
        attend: Callable[[Callable[[list[ClusterEvent]], None]], Awaitable[bool]],
    ) -> None:
        self._read = read
        self._make = make
        self._learn = learn
        self._attend = attend
        self._core: C | None = None
        self._leads: C | None = None
        self._revision = 0

    async def stand_by(self) -> None:
        """Before the mirror begins, which this never ends."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                shards = await self._read()
                core = self._make(shards)
                if await self._attend(self._hear):
                    self._core, self._revision = core, shards.revision
        except (StoreError, ConfigError, TimeoutError) as error:
            slow = f"etcd, or the API server, does not answer for {PATIENCE_S:g} s"
            log.warning("heir_unmade", error=str(error) or slow)

    def take(self, shards: Shards, *, fits: bool = True) -> C | None:
        """The core, for who leads now; None: there is none, or it was made for other shards, or does not fit."""
        core, self._core = self._core, None
        self._leads = core if fits and shards.revision == self._revision else None
        return self._leads

    def _hear(self, events: list[ClusterEvent]) -> None:
        """An error is the term's of who leads, and nobody's before."""
        if self._leads is not None:
            self._learn(self._leads, events)
        elif self._core is not None:
            try:
                self._learn(self._core, events)
            except Exception as error:  # noqa: BLE001  whatever the leader may end by at this moment, too
                self._core = None
                log.error("heir_dropped", error=repr(error), effect="a takeover by this process takes longer")
