"""The socket of a listener, and its connections that keep a place and ask nothing: how long each may take to ask.

A caller that connects and is silent, or sends its request's head a byte at a time, or never ends the TLS handshake,
holds a socket and its buffers (slow loris), and so does one that reads no answer. The head of a request, from its first
byte (the first request: from the connection) to its last, has ``HEAD_TIMEOUT_S``; the handshake before it
``HANDSHAKE_TIMEOUT_S``; an answer that waits to be read ``UNREAD_TIMEOUT_S``. A connection that is idle between two
requests is aiohttp's ``keepalive_timeout``, a body is the route's, a stream ``streaming.py``'s.

It costs a request whose head comes in one piece two comparisons: a timer exists only while a head is unfinished.
Whoever is late is cut without an answer.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import web
from prometheus_client import Counter

from shared.adapters.http.sockets import EVERY, bound_socket
from shared.errors import ConfigError
from shared.hostport import join_host_port, url_of
from shared.runtime.http.callers import Authenticator
from shared.runtime.http.calls import Call, CallRoute, CallRoutes
from shared.runtime.http.guard import BODY_TIMEOUT_S

HEAD_TIMEOUT_S = 10.0
"""A peer's head is one packet, a browser's two; what takes longer than this is no caller of ours."""

HANDSHAKE_TIMEOUT_S = 10.0
"""asyncio's own is 60 s. A busy machine ends a handshake within a second."""

KEEPALIVE_TIMEOUT_S = 75.0
"""How long a connection may be idle between two requests."""

UNREAD_TIMEOUT_S = 120.0
"""How long what was written may wait to be read. Closing such a connection waits for its reader too: it is aborted."""

BACKLOG = 1024

LATE_HEADS: web.AppKey[Counter] = web.AppKey("late_heads", Counter)
"""Counts the connections of the app's listener that were cut, since a request's head took too long."""

CALLS: web.AppKey[CallRoutes] = web.AppKey("calls", CallRoutes)
"""The app's routes between services."""

MOST_GATHERING = 8
"""Bodies of calls that come in pieces and are held until they are whole; aiohttp reads one more, in its place."""

AUTHENTICATOR: web.AppKey[Authenticator] = web.AppKey("authenticator", Authenticator)
"""How the app knows its callers; without one it is served on loopback alone."""


class TimedHandler(web.RequestHandler):
    """aiohttp's protocol of one connection, which is cut when a request's head takes too long.

    ``_waiter`` (aiohttp's) is there and not done while no request is at work: bytes that came then and made no request
    are an unfinished head. ``_request_count`` grows with each head that is whole, or refused as malformed.

    While nothing but calls between services has come (``calls.py``), aiohttp's parser has not seen a byte, and they are
    answered here, one at a time; with the first other byte the connection is aiohttp's for good.
    """

    __slots__ = (
        "_body", "_call", "_calls", "_head_timer", "_heads_before", "_held", "_late", "_missing", "_text", "_timeout_s",
        "_unread",
    )  # fmt: skip

    def __init__(
        self,
        *arguments: Any,
        timeout_s: float,
        late: Callable[[], object],
        calls: CallRoutes | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._timeout_s = timeout_s
        self._late = late
        self._head_timer: asyncio.TimerHandle | None = None
        self._heads_before = 0
        self._calls = calls
        """None: the connection is aiohttp's."""
        self._call: asyncio.Task[None] | None = None
        self._held: list[bytes] = []
        """What came while a call was at work."""
        self._text: list[bytes] = []
        """A call whose body has not come to its end, as it came; ``_missing`` bytes of it."""
        self._missing = 0
        self._body: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The first head is due from now on."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """A call, or as aiohttp does; then the head is whole, or due."""
        if self._calls is not None:
            self._take(self._calls, data)
            return
        super().data_received(data)
        if self._head_timer is not None:
            if self._request_count != self._heads_before:
                self._head_timer.cancel()
                self._head_timer = None
        elif self._waiter is not None and not self._waiter.done():
            self._await_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Nothing is due any more."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self._ungather()
        self._read_again()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More waits to be read than may; whoever never reads it is cut."""
        super().pause_writing()
        if self.transport is not None:
            self._unread = self._loop.call_later(UNREAD_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It was read."""
        self._read_again()
        super().resume_writing()

    def _read_again(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        """As aiohttp does: a call at work has so long, then it is given up."""
        await super().shutdown(timeout)
        if self._call is not None:
            self._call.cancel()

    # --- calls ------------------------------------------------------------------------------------------------------

    def _take(self, calls: CallRoutes, data: bytes) -> None:
        """Bytes of calls; if they are not, aiohttp gets all that has come and was not answered."""
        if self._call is not None:
            self._held.append(data)
            if self.transport is not None:
                self.transport.pause_reading()  # nobody of ours sends before the answer is there
            return
        if self._close or self._force_close or self.transport is None:
            return
        if self._missing:
            self._text.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(self._text)
            self._ungather()
        begun = calls.begun(data, self.transport)
        if begun is None or (begun[2] and calls.gathering >= MOST_GATHERING):
            self._calls = None
            self.data_received(data)
            return
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        route, call, self._missing = begun
        if self._missing:
            calls.gathering += 1
            self._text.append(data)
            self._body = self._loop.call_later(BODY_TIMEOUT_S, self._leave_to_aiohttp)
            return
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        self._request_in_progress = True
        self._call = self._loop.create_task(self._answer(route, call))

    async def _answer(self, route: CallRoute, call: Call) -> None:
        text = b""
        try:
            text = (await route.handle(call)).text()
            if self.transport is not None:
                self.transport.write(text)
            if self._paused:  # who does not read gets no further answer: they would pile up here
                await self._drain_helper()
        except ConnectionError:  # as at aiohttp: there is nobody to answer
            pass
        finally:
            if not text:
                self.force_close()
            self._answered()

    def _answered(self) -> None:
        """The call is over: what aiohttp does at the end of a request, then what came meanwhile."""
        self._call = None
        self._request_in_progress = False
        if self._handler_waiter is not None:
            self._handler_waiter.set_result(None)
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self.transport is None:
            return
        if self._close or self._force_close:
            self.transport.close()
        elif self._held:
            data, self._held = b"".join(self._held), []
            self.transport.resume_reading()
            self.data_received(data)

    def _leave_to_aiohttp(self) -> None:
        """The body comes too slowly: aiohttp says so in its own time."""
        data = b"".join(self._text)
        self._ungather()
        self._calls = None
        self.data_received(data)

    def _ungather(self) -> None:
        """No body is waited for any more."""
        if self._body is not None:
            self._body.cancel()
            self._body = None
            if self._calls is not None:
                self._calls.gathering -= 1
        self._text, self._missing = [], 0

    # --- heads ------------------------------------------------------------------------------------------------------

    def _await_head(self) -> None:
        self._heads_before = self._request_count
        self._head_timer = self._loop.call_later(self._timeout_s, self._cut)

    def _cut(self) -> None:
        self._head_timer = None
        if self.transport is not None:
            self._late()
            self.transport.abort()  # closing it would wait for whatever it was sent, and for TLS's farewell


class TimedSite(web.BaseSite):
    """A TCP address; ``connection`` makes the protocol of each connection, whose TLS handshake is bounded."""

    def __init__(
        self,
        runner: web.AppRunner,
        host: str,
        port: int,
        *,
        connection: Callable[[], TimedHandler],
        tls: ssl.SSLContext | None,
        handshake_timeout_s: float,
    ) -> None:
        super().__init__(runner, ssl_context=tls, backlog=BACKLOG)
        self._host = host
        self._port = port
        self._connection = connection
        self._handshake_timeout_s = handshake_timeout_s

    @property
    def name(self) -> str:
        """For people."""
        return url_of("http" if self._ssl_context is None else "https", self._host, self._port)

    async def start(self) -> None:
        """Listen. ``OSError``: the address cannot be had."""
        await super().start()
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {
            "ssl": self._ssl_context,
            "ssl_handshake_timeout": self._handshake_timeout_s if self._ssl_context is not None else None,
            "backlog": self._backlog,
        }
        if self._host in EVERY:
            every = bound_socket(self._host, self._port)
            self._server = await loop.create_server(self._connection, sock=every, **options)
        else:  # a name may have several addresses: the loop listens on each
            self._server = await loop.create_server(self._connection, self._host, self._port, **options)


class Listener:
    """A bound socket serving one application. ``port`` is the real one where 0 was asked for."""

    def __init__(self, runner: web.AppRunner, host: str, port: int, scheme: str) -> None:
        self.port = port
        # "every address" is none that could be called: who is not told another one is here
        self.url = url_of(scheme, "localhost" if host in EVERY else host, port)
        self._runner = runner

    async def close(self) -> None:
        """Stop accepting, let handlers in flight finish for a moment, close."""
        await self._runner.cleanup()


async def listen(
    app: web.Application,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    own_tokens: bool = False,
    drain_s: float = 2.0,
    head_timeout_s: float = HEAD_TIMEOUT_S,
    handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
) -> Listener:
    """Serve ``app``. ``ConfigError``: the port is taken or not allowed, or the host would expose an open service.

    ``own_tokens``: the app asks each caller for a token that it makes itself, so it needs no file of them.
    ``head_timeout_s``, ``handshake_timeout_s``: what a connection has to send a request's head, and before it to end
    the TLS handshake; whoever takes longer is cut.
    """
    authenticator = app.get(AUTHENTICATOR, Authenticator())
    known = own_tokens or authenticator.tokens is not None or (authenticator.mutual_tls and tls is not None)
    if not known and not _is_loopback(host):
        every = "every address" if host in EVERY else host
        raise ConfigError(f"{every}: will not listen beyond loopback without a token file or mutual TLS; set one")
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=drain_s)
    await runner.setup()
    late_heads = app.get(LATE_HEADS)
    connection = partial(
        TimedHandler,
        runner.server,
        loop=asyncio.get_running_loop(),
        timeout_s=head_timeout_s,
        late=late_heads.inc if late_heads is not None else lambda: None,
        calls=app.get(CALLS),
        access_log=None,
        keepalive_timeout=KEEPALIVE_TIMEOUT_S,
        auto_decompress=False,
    )
    site = TimedSite(runner, host, port, connection=connection, tls=tls, handshake_timeout_s=handshake_timeout_s)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(f"{join_host_port(host, port)}: cannot listen ({_listen_problem(error)})") from error
    bound: Any = runner.addresses[0]
    return Listener(runner, host, int(bound[1]), "http" if tls is None else "https")


def _listen_problem(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is taken: end the process that holds it or choose another port"
    if error.errno == errno.EACCES:
        return "not permitted: choose a port of 1024 or above"
    return error.strerror or str(error)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
