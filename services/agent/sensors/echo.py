"""The UDP socket of the probing: sends what is due, hands over what arrives (``shared/agent/probing.py`` says what)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import structlog

from shared.adapters.http.sockets import bound_socket
from shared.agent.echo import Address
from shared.agent.probing import Probing
from shared.errors import ConfigError
from shared.hostport import join_host_port

log = structlog.get_logger()

TICK_S = 0.1
MAPPED = "::ffff:"


class Echo(asyncio.DatagramProtocol):
    """``run`` is an eternal task; answers are sent from the socket's callback, so that they are not late."""

    def __init__(self, probing: Probing) -> None:
        self._probing = probing
        self._transport: asyncio.DatagramTransport | None = None
        self._family = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # uvloop's is not one by name
        self._family = transport.get_extra_info("socket").family

    def datagram_received(self, data: bytes, addr: Any) -> None:
        now_s = time.monotonic()
        # a link's own addresses name the link; to a socket of both families those of IPv4 are mapped
        source: Address = (str(addr[0]).partition("%")[0].removeprefix(MAPPED), int(addr[1]))
        if (back := self._probing.received(data, source, now_s)) is not None:
            self._send(back[0], back[1])

    def error_received(self, exc: Exception) -> None:
        """ICMP says that nobody listens there: the probe stays open and counts as unanswered."""
        log.debug("probe_unreachable", error=exc)

    async def run(self) -> None:
        """Send probes as they are due."""
        while True:
            for peer, datagram in self._probing.due(time.monotonic()):
                self._send(peer, datagram)
            await asyncio.sleep(TICK_S)

    def _send(self, peer: Address, datagram: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        try:
            self._transport.sendto(datagram, self._told(peer))
        except (OSError, ValueError) as error:  # no route, an address of another family
            log.debug("probe_unsent", error=error)

    def _told(self, peer: Address) -> Address:
        """The peer as the socket's family has it."""
        if self._family == socket.AF_INET6 and ":" not in peer[0]:
            return f"{MAPPED}{peer[0]}", peer[1]
        return peer


@asynccontextmanager
async def opened_echo(probing: Probing, host: str, port: int) -> AsyncIterator[tuple[Echo, Address]]:
    """The socket and its address, closed at the end. ``ConfigError``: it cannot be bound."""
    echo = Echo(probing)
    try:
        made = bound_socket(host, port, kind=socket.SOCK_DGRAM)
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: echo, sock=made)
    except OSError as error:
        address = join_host_port(host, port)
        raise ConfigError(f"probe_listen: {address} cannot be bound ({error}); give another HOST:PORT") from error
    try:
        bound = transport.get_extra_info("sockname")
        yield echo, (str(bound[0]), int(bound[1]))
    finally:
        transport.close()
