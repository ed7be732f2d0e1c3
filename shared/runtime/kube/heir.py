"""The core of a standby that is told of pods and nodes as they come, so that a takeover makes no pass over them.

    stands by --made for the nodes as they are divided--> learns --elected--> leads, and is told what is new alone
                                                             |--divided anew--> dropped: an empty core is told all

What it learns decides nothing, and a term begins with nothing else: intents, agents and the other kinds are read by the
leader (ADR 0066). Not its job: to know when all is there (``shared_watches.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog

from shared.errors import StoreError
from shared.scheduling.shards import Shards

C = TypeVar("C")

log = structlog.get_logger()


class Heir(Generic[C]):
    """One role's. ``read``: how the nodes are divided, as etcd has it; ``make``: the core for that; ``attend``: lets it
    learn, False where it cannot."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Shards]],
        make: Callable[[Shards], C],
        attend: Callable[[C], Awaitable[bool]],
    ) -> None:
        self._read = read
        self._make = make
        self._attend = attend
        self._core: C | None = None
        self._revision = 0

    async def stand_by(self) -> None:
        """Before the mirror begins."""
        try:
            shards = await self._read()
        except StoreError as error:
            log.info("heir_unmade", error=error)
            return
        core = self._make(shards)
        if await self._attend(core):
            self._core, self._revision = core, shards.revision

    def take(self, shards: Shards) -> C | None:
        """The core, for who leads now; None: there is none, or it was made for other shards."""
        core, self._core = self._core, None
        return core if shards.revision == self._revision else None
