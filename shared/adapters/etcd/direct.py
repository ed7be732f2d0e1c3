"""When a transaction goes to a member without grpc: over a connection of ours, kept while transactions come often.

    transactions seldom: grpc        within ``OFTEN_S`` of each other: dialed beside it --usable--> ``UnaryConnection``
    it is over, it cannot be dialed: grpc, and dialed again after ``AGAIN_S``

It neither retries nor decides which member is asked (``channel.py``).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import structlog

from shared.adapters.etcd.tls import ALPN
from shared.adapters.etcd.unary import UnaryConnection

log = structlog.get_logger()

OFTEN_S = 1.0
DIAL_S = 2.0
AGAIN_S = 5.0
"""A member that was paused or restarted is left to grpc for so long."""


class DirectCalls:
    """To one member. ``tls`` makes a context anew for each connection, since its files change; None: plain text."""

    def __init__(
        self, target: str, *, tls: Callable[[], ssl.SSLContext] | None, server_name: str = "",
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:  # fmt: skip
        self._target = target
        host, _, port = target.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._tls = tls
        self._server_name = server_name or self._host
        self._metadata = metadata
        self._connection: UnaryConnection | None = None
        self._dialing: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._asked_at = float("-inf")
        self.taken = 0
        """How many calls found a connection here."""

    def open_for(self, size: int) -> UnaryConnection | None:
        """The connection that takes a message of ``size`` bytes now; None: grpc has to."""
        loop = asyncio.get_running_loop()
        now, connection = loop.time(), self._connection
        often, self._asked_at = now - self._asked_at < OFTEN_S, now
        if connection is not None and not connection.over:
            if not connection.takes(size):
                return None
            self.taken += 1
            return connection
        if connection is not None:
            self._connection, self._not_before = None, now + AGAIN_S
        if often and self._dialing is None and now >= self._not_before:
            self._not_before = now + AGAIN_S
            self._dialing = asyncio.create_task(self._dial())
        return None

    async def dialed(self) -> None:
        """Until the dialing that is under way has ended, if one is."""
        if self._dialing is not None:
            await asyncio.wait((self._dialing,))

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        connection: UnaryConnection | None = None
        try:
            async with asyncio.timeout(DIAL_S):
                tls = self._tls() if self._tls is not None else None
                transport, connection = await loop.create_connection(
                    lambda: UnaryConnection(self._target, tls=tls is not None, metadata=self._metadata),
                    self._host, self._port, ssl=tls, server_hostname=self._server_name if tls is not None else None,
                )  # fmt: skip
                chosen = transport.get_extra_info("ssl_object")
                if chosen is not None and chosen.selected_alpn_protocol() != ALPN:
                    raise OSError("the server does not speak HTTP/2")
                await connection.ready
            self._connection, connection = connection, None
        except (
            OSError,
            TimeoutError,
            ValueError,
            RuntimeError,
        ) as error:  # the last is uvloop's for some failed connects
            log.info("etcd_direct_unavailable", endpoint=self._target, error=error)
        finally:
            self._dialing = None
            if connection is not None:
                connection.close()

    async def close(self) -> None:
        """End the connection, and the dialing of one."""
        if self._dialing is not None:
            self._dialing.cancel()
            await self.dialed()
        if self._connection is not None:
            self._connection.close()
