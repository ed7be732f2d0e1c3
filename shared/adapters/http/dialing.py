"""From a URL to an open connection: addresses, sockets, a proxy where there is one, TLS.

    no proxy:             socket --TLS of https--> server
    proxy, http server:   socket to the proxy, which takes requests for other hosts (``ServerTarget.prefix`` names ours)
    proxy, https server:  socket to the proxy --CONNECT--> tunnel --TLS--> server

The proxy is spoken to in TLS where its URL says https, with the same context as the server, as Go's client does.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import aiohappyeyeballs

from shared.adapters.http.answers import AnswerBroken
from shared.adapters.http.connection import Connection
from shared.hostport import join_host_port, server_of, url_of

DIAL_S = 5.0
"""From the name to the end of the handshake."""

NEXT_ADDRESS_S = 0.25
"""An address that does not answer for so long gets the next one beside it (RFC 8305)."""

KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))
"""A peer that is gone without a word is noticed by the kernel within 30 s, long before a watch's silence is."""

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """A host and a port. ``tls`` None: plain; ``name``: whom the certificate must name."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    name: str


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """One server as requests see it. ``prefix`` goes before each path, ``headers`` into each request."""

    server: HttpAddress
    proxy: HttpAddress | None
    prefix: str
    headers: str
    authorization: str
    """What the proxy is shown, as a header's line; "" for nothing."""


def target_of(
    base_url: str, *, proxy: str | None = None, server_hostname: str | None = None, tls: ssl.SSLContext | None = None
) -> ServerTarget:
    """The target at ``base_url``. ``tls`` is for https; ``server_hostname``: whom the certificate names."""
    url = urlsplit(base_url)
    server = _place(base_url, tls, server_hostname)
    usual = server.port == _PORTS[url.scheme]
    # a zone says which of our own links to take, and nothing to who is on it
    authority = url_of(url.scheme, server.host.partition("%")[0], None if usual else server.port).partition("://")[2]
    prefix = quote(url.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
    by, authorization, headers = None, "", f"Host: {authority}\r\n"
    if proxy:
        through = urlsplit(proxy)
        by = _place(proxy, tls, None)
        if through.username is not None:
            user = f"{unquote(through.username)}:{unquote(through.password or '')}"
            authorization = f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}\r\n"
        if server.tls is None:
            prefix, headers = f"http://{authority}{prefix}", headers + authorization
    return ServerTarget(server, by, prefix, headers, authorization)


def _place(url: str, tls: ssl.SSLContext | None, name: str | None) -> HttpAddress:
    server = server_of(url)
    host = server.host.rstrip(".")
    if not host.isascii():
        host = host.encode("idna").decode()
    context = (tls or ssl.create_default_context()) if server.scheme == "https" else None
    return HttpAddress(host, server.port or _PORTS[server.scheme], context, name or host.partition("%")[0])


async def dial(target: ServerTarget, *, connect_s: float = DIAL_S, most_bytes: int = sys.maxsize) -> Connection:
    """An open connection that nothing was asked on. ``OSError``, ``ssl.SSLError`` among them: none came about.

    ``connect_s``: how long the socket may take; ``most_bytes`` as of ``Connection``."""
    loop = asyncio.get_running_loop()
    first = target.proxy or target.server
    async with asyncio.timeout(DIAL_S):
        async with asyncio.timeout(connect_s):
            opened = await _socket_to(first)
        try:
            _, connection = await loop.create_connection(
                partial(Connection, most_bytes=most_bytes),
                sock=opened,
                ssl=first.tls,
                server_hostname=first.name if first.tls is not None else None,
            )
        except BaseException:
            opened.close()
            raise
        if target.proxy is not None and target.server.tls is not None:
            try:
                connection = await _tunnel(connection, target)
            except BaseException:
                connection.abort()
                raise
        return connection


async def _socket_to(place: HttpAddress) -> socket.socket:
    loop = asyncio.get_running_loop()
    found: list[Any] = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    try:
        return await aiohappyeyeballs.start_connection(
            found, happy_eyeballs_delay=NEXT_ADDRESS_S, interleave=1, socket_factory=watched_socket
        )
    except RuntimeError as error:  # how uvloop tells of some failed connects
        raise OSError(str(error)) from error


async def _tunnel(outer: Connection, target: ServerTarget) -> Connection:
    """``outer`` leads to the proxy; the connection to the server inside of it."""
    server, loop = target.server, asyncio.get_running_loop()
    named = join_host_port(server.host, server.port)
    text = f"CONNECT {named} HTTP/1.1\r\nHost: {named}\r\n{target.authorization}\r\n"
    head, _ = await outer.ask(text.encode(), DIAL_S, connecting=True)
    if not 200 <= head.status < 300:
        raise AnswerBroken(f"the proxy refuses a tunnel to {named} ({head.status})")
    assert outer.transport is not None
    assert server.tls is not None
    inner = Connection()
    transport = await loop.start_tls(outer.transport, inner, server.tls, server_hostname=server.name)
    if transport is None:
        raise AnswerBroken("the proxy ended the tunnel")
    inner.connection_made(transport)
    return inner


def watched_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket whose peer's death is noticed (``KEEPALIVE``); options that the platform lacks are left out."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
