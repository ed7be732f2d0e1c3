"""A standby passes requests on to the leader, streams too, so that a Service may name every coordinator.

It has authenticated the caller already; the leader does so again, by the same token, or by our certificate and the name
we vouch for. A request that was passed on once is never passed on again: while etcd says that somebody leads who does
not, it is answered with 503 ``no_leader``, and the caller asks again. It refuses to repeat a request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import aiohttp
import yarl
from aiohttp import web

from services.coordinator.http.access import PROXIED, VOUCHED, Caller
from services.coordinator.http.desk import Desk
from services.coordinator.http.routing import EVENTS
from services.coordinator.http.streaming import break_off, finish, send
from shared.adapters.peers.identity import identity_of
from shared.runtime.http.listener import Refused

CONNECT_S = 1.0
ANSWER_S = 35.0
"""Longer than any handler takes; a stream may last, its parts come at least every 15 s."""

PASSED_ON = ("Authorization", "Content-Type", "Accept", "Last-Event-ID")
PASSED_BACK = ("Content-Type", "Retry-After", "Cache-Control", "Allow")
PART_BYTES = 64 << 10


class Proxy:
    """One per process; ``close`` it."""

    def __init__(self, desk: Desk, *, tls: ssl.SSLContext | None = None) -> None:
        self._desk = desk
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def pass_on(
        self,
        request: web.Request,
        body: bytes,
        caller: Caller,
        request_id: str,
        dress: Callable[[web.StreamResponse], None],
        stopping: asyncio.Event,
    ) -> web.StreamResponse:
        """The leader's answer. Refused: 503 ``no_leader`` where there is none to ask."""
        if PROXIED in request.headers:
            raise _no_leader("the coordinator that was asked does not lead any more")
        leader = self._desk.leader
        if leader is None or leader[0].identity == self._desk.service_id:
            raise _no_leader("no coordinator leads; one is being elected")
        if not leader[0].admin_url:  # during an upgrade: one from before there was this API
            raise _no_leader(f"{leader[0].identity} leads and serves no admin API; start it with --admin-listen")
        if self._tls is not None and not leader[0].admin_url.startswith("https://"):
            # the caller's token would go in the clear, to whoever answers there
            raise _no_leader(f"{leader[0].identity} leads without TLS, which we do not speak; use one overlay for all")
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        headers |= {PROXIED: self._desk.service_id, VOUCHED: caller.title, "X-Request-Id": request_id}
        # of the target only path and query: it may name a host of its own (RFC 9112 3.2.2)
        url = yarl.URL(leader[0].admin_url.rstrip("/") + request.rel_url.raw_path_qs, encoded=True)
        try:
            async with self._open().request(
                request.method,
                url,
                headers=headers,
                data=body or None,
                allow_redirects=False,
                # a certificate is made before its pod has an address: it names the role
                server_hostname=identity_of("coordinator") if self._tls is not None else None,
            ) as told:
                return await _relay(request, told, dress, stopping)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise _no_leader(f"{leader[0].identity} leads and cannot be reached") from None
        except (aiohttp.ClientError, TimeoutError):
            # it may have been done: not for us to repeat
            raise Refused(
                f"{leader[0].identity} leads and gave no answer; look before trying again",
                code="leader_silent",
                status=503,
                retry_after_s=1,
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
    request: web.Request,
    told: aiohttp.ClientResponse,
    dress: Callable[[web.StreamResponse], None],
    stopping: asyncio.Event,
) -> web.StreamResponse:
    headers = {name: told.headers[name] for name in PASSED_BACK if name in told.headers}
    if told.content_length is not None:
        return web.Response(status=told.status, body=await told.read(), headers=headers)
    response = web.StreamResponse(status=told.status, headers=headers)
    dress(response)
    await response.prepare(request)
    stopped = asyncio.ensure_future(stopping.wait())
    try:
        while True:
            coming = asyncio.ensure_future(told.content.readany())
            await asyncio.wait((coming, stopped), return_when=asyncio.FIRST_COMPLETED)
            whole = False
            if not coming.done():
                coming.cancel()
                break
            try:
                part = coming.result()
            except (aiohttp.ClientError, TimeoutError):
                break
            if not part:
                whole = True
                break
            await send(request, response, part)
    finally:
        stopped.cancel()
    if not whole and told.content_type != EVENTS:
        # events may end anywhere, their reader begins anew; half a document must not look like one
        raise break_off(request, "the leader's answer has broken off")
    await finish(response)
    return response


def _no_leader(message: str) -> Refused:
    return Refused(message, code="no_leader", status=503, retry_after_s=1)
