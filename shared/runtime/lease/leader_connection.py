"""Notices at once that the process which leads has ended, where its machine says so.

    dial --answered--> held --ended by the other side--> dial again --refused, and once more half a second later--> it
     ^                                                    |                                                  has ended
     +---- a pause <---- no answer, no way, no trust -----+----- answered: it lives (its listener let go of us)

Why: a lease says the same, 2 to 3.5 s later. When a process ends, however it does, the kernel closes its connections;
and since nobody listens there any more, it refuses the next ones. Both together are believed; one refusal may be of a
network that is just being changed (a policy that rejects while its rules are written). Silence, a time-out, a
machine or a way that is gone say nothing: there the lease decides, as it does of a process that hangs.

Not its job: safety. A firewall that refuses in the place of a leader which lives gets it deposed, no more: the leader's
writes are refused by their term from then on (ADR 0061).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

import structlog

from shared.adapters.peers.client import PeerClient
from shared.backoff import backoff_s

log = structlog.get_logger()

FIRST_PAUSE_S = 0.05
MOST_PAUSE_S = 10.0
DOUBT_S = 0.5
"""A refusal counts if that much later the next one is refused too."""
LASTING_S = 5.0
"""A connection that was held so long says that dialing works: the next one is dialed without a pause."""


async def await_end(client: PeerClient, url: str, *, service: str = "") -> None:
    """Return once the process that listens at ``url`` has ended; eternal where nobody says so."""
    clock = asyncio.get_running_loop().time
    known, failures, refused = False, 0, False
    while True:
        try:
            connection = await client.hold(url, service=service)
        except ConnectionRefusedError:
            if refused:
                return
            failures, refused = failures + 1, known  # one that was never seen there perhaps cannot be
        except (OSError, ValueError):
            failures, refused = failures + 1, False
        else:
            known, refused, held_at = True, False, clock()
            try:
                await asyncio.shield(connection.ended)
            finally:
                connection.abort()
            failures = 0 if clock() - held_at >= LASTING_S else failures + 1
        if refused:
            await asyncio.sleep(DOUBT_S)
        elif failures:
            await asyncio.sleep(backoff_s(failures, first_s=FIRST_PAUSE_S, most_s=MOST_PAUSE_S))


class LeaderConnection:
    """A connection to whoever leads, within ``async with``; ``ended`` is told the term of one that has ended."""

    def __init__(self, client: PeerClient, ended: Callable[[int], None], *, service: str = "") -> None:
        self._client = client
        self._ended = ended
        self._service = service
        self._waiting: asyncio.Task[None] | None = None

    def follow(self, url: str, term: int) -> None:
        """Whom to stay connected to from now on; without a ``url`` nobody."""
        self._leave()
        if url:
            self._waiting = asyncio.create_task(self._tell(url, term))

    async def _tell(self, url: str, term: int) -> None:
        await await_end(self._client, url, service=self._service)
        log.info("leader_ended", url=url, term=term)
        self._ended(term)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.follow("", 0)

    def _leave(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
