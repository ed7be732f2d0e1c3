"""A standby passes requests on to the leader, streams too, so that a Service may name every coordinator.

It has authenticated the caller already; the leader does so again, by the same token, or by our certificate and the name
we vouch for. A request that was passed on once is never passed on again: while etcd says that somebody leads who does
not, it is answered with 503 ``no_leader``, and the caller asks again. No request is ever repeated here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from io import BytesIO

import aiohttp
import yarl
from aiohttp import web

from shared.adapters.peers.identity import identity_of
from shared.runtime.http.callers import PROXIED, VOUCHED, Caller
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.http.routes import EVENTS, Backend
from shared.runtime.http.streaming import break_off, stream

CONNECT_S = 1.0
ANSWER_S = 35.0
"""Longer than any handler takes; a stream may last, its parts come at least every 15 s."""

PASSED_ON = ("Authorization", "Content-Type", "Accept", "Last-Event-ID")
PASSED_BACK = ("Content-Type", "Retry-After", "Cache-Control", "Allow", "Age")

Begin = Callable[[int, Mapping[str, str]], Awaitable[web.StreamResponse]]
"""(status, headers) to a response that parts may be written to."""


def nobody_leads(trouble: str) -> str:
    """What is told while there is no leader. ``trouble``: why none comes, where that is known."""
    return f"no coordinator leads: {trouble}" if trouble else "no coordinator leads; one is being elected"


class Proxy:
    """One per process; ``close`` it."""

    def __init__(self, backend: Backend, *, tls: ssl.SSLContext | None = None) -> None:
        self._backend = backend
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def pass_on(
        self, request: web.Request, body: bytes, caller: Caller, request_id: str, stopping: asyncio.Event, begin: Begin
    ) -> web.StreamResponse:
        """The leader's answer. Refused: 503 ``no_leader`` where there is none to ask."""
        if PROXIED in request.headers:
            raise RequestRefused("the coordinator that was asked does not lead any more", code="no_leader")
        if self._backend.leader is None or self._backend.leader[0].identity == self._backend.service_id:
            raise RequestRefused(nobody_leads(self._backend.trouble), code="no_leader")
        leader, _ = self._backend.leader
        if not leader.admin_url:  # during an upgrade: one from before there was this API
            raise RequestRefused(
                f"{leader.identity} leads and serves no admin API; start it with --admin-listen", code="no_leader"
            )
        if self._tls is not None and not leader.admin_url.startswith("https://"):
            # the caller's token would go in the clear, to whoever answers there
            raise RequestRefused(
                f"{leader.identity} leads without TLS, which we do not speak; use one overlay for all", code="no_leader"
            )
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        headers |= {PROXIED: self._backend.service_id, VOUCHED: caller.title, "X-Request-Id": request_id}
        # of the target only path and query: it may name a host of its own (RFC 9112 3.2.2)
        url = yarl.URL(leader.admin_url.rstrip("/") + request.rel_url.raw_path_qs, encoded=True)
        try:
            async with self._open().request(
                request.method,
                url,
                headers=headers,
                data=BytesIO(body) if body else None,  # of large bytes aiohttp warns
                allow_redirects=False,
                # a certificate is made before its pod has an address: it names the role
                server_hostname=identity_of("coordinator") if self._tls is not None else None,
            ) as told:
                return await _relay(request, told, stopping, begin)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise RequestRefused(f"{leader.identity} leads and cannot be reached", code="no_leader") from None
        except (aiohttp.ClientError, TimeoutError):
            # it may have been done: not for us to repeat
            raise RequestRefused(
                f"{leader.identity} leads and gave no answer; look before trying again", code="leader_silent"
            ) from None

    async def close(self) -> None:
        """Release connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, ssl=self._tls if self._tls is not None else True)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=ANSWER_S)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        return self._session


async def _relay(
    request: web.Request, told: aiohttp.ClientResponse, stopping: asyncio.Event, begin: Begin
) -> web.StreamResponse:
    headers = {name: told.headers[name] for name in PASSED_BACK if name in told.headers}
    if told.content_length is not None:
        return web.Response(status=told.status, body=await told.read(), headers=headers)
    endless = told.content_type == EVENTS
    parts = _parts(request, told, endless=endless)
    return await stream(request, parts, stopping=stopping, begin=lambda: begin(told.status, headers), endless=endless)


async def _parts(request: web.Request, told: aiohttp.ClientResponse, *, endless: bool) -> AsyncGenerator[bytes, None]:
    try:
        async for part in told.content.iter_any():
            yield part
    except (aiohttp.ClientError, TimeoutError):
        if not endless:
            raise break_off(request, "the leader's answer has broken off") from None
