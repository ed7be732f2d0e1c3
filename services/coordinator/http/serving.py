"""The one shell around every handler: who asks, may they, how often, and does what they send fit its schema.

    route found --> known (401) --> may (403) --> in time (429) --> leads, or passed on
                --> a read:   kept answer, or query (4xx), not late (429) --> handler --> answer, kept
                --> a change: body, query (4xx) --> audit --> handler --> answer; what is kept is forgotten

A refusal before the handler runs has no effect. A change is in the audit log before it is made; where the log cannot be
written (etcd is silent) it is not made. It refuses to know what any route does.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog
from aiohttp import web

from services.coordinator.http.access import Caller, Doorkeeper
from services.coordinator.http.answers import ErrorAnswer, as_json, encoded, error_of
from services.coordinator.http.auditing import Auditor
from services.coordinator.http.caching import Answers
from services.coordinator.http.checking import MAX_BODY_BYTES, ask_of, read_body
from services.coordinator.http.desk import Desk
from services.coordinator.http.lagging import LoopLag
from services.coordinator.http.limits import (
    IN_FLIGHT_OF_ONE,
    MAX_IN_FLIGHT,
    MAX_STREAMS,
    READS,
    STREAMS_OF_ONE,
    WRITES,
    Buckets,
    Places,
)
from services.coordinator.http.proxying import Proxy
from services.coordinator.http.routing import EVENTS, Ask, Route
from services.coordinator.http.streaming import break_off, finish, send
from shared.runtime.http.listener import AUTHENTICATOR, LATE_HEADS, Authenticator, Refused

log = structlog.get_logger()

HANDLER_TIMEOUT_S = 30.0
"""No handler waits for anything without a deadline of its own; this one is the net under them."""

REQUEST_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
REQUEST_ID_HEADER = "X-Request-Id"
OWN_PAGES = frozenset({"same-origin", "none"})
"""``Sec-Fetch-Site`` of the dashboard's requests; no program but a browser sends it, and no page can forge it."""
FIXED_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Server": "conclave",
    "X-Content-Type-Options": "nosniff",
}
"""Of every response that does not say otherwise itself."""


class Serving:
    """The application of the admin listener. ``extra``: open routes (the dashboard's files)."""

    def __init__(
        self,
        desk: Desk,
        routes: Sequence[Route],
        doorkeeper: Doorkeeper,
        *,
        auditor: Auditor,
        proxy: Proxy,
        extra: Sequence[web.RouteDef] = (),
    ) -> None:
        self._desk = desk
        self._doorkeeper = doorkeeper
        self._auditor = auditor
        self._proxy = proxy
        self._reads, self._writes = Buckets(READS), Buckets(WRITES)
        self._requests = Places(MAX_IN_FLIGHT, IN_FLIGHT_OF_ONE)
        self._streams = Places(MAX_STREAMS, STREAMS_OF_ONE)
        self._answers, self._lag = Answers(), LoopLag()
        self._stopping = asyncio.Event()
        self._counted = desk.metrics.counter("admin_requests_total", "Requests, by route and code", ["route", "code"])
        self._seconds = desk.metrics.histogram("admin_request_duration_seconds", "Answering one, by route", ["route"])
        self.app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._outermost])
        self.app[LATE_HEADS] = desk.metrics.late_heads.labels("admin")
        # so that ``listen`` knows that callers are known
        self.app[AUTHENTICATOR] = Authenticator(doorkeeper.tokens, doorkeeper.mutual_tls)
        self.app.add_routes(
            [
                web.get("/healthz", _healthz),
                *(_routed(route, self._handler(route)) for route in routes),
                *extra,
            ]
        )

    def stop(self) -> None:
        """End the streams; the listener can close at once then."""
        self._stopping.set()
        self._lag.stop()

    @web.middleware
    async def _outermost(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Request ids, fixed headers, and answers in JSON also where no route was found."""
        given = request.headers.get(REQUEST_ID_HEADER, "")
        request[_REQUEST_ID] = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        try:
            response = await handler(request)
        except web.HTTPNotFound:
            response = _refused(Refused("there is no such route", code="route_unknown", status=404))
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            response = _refused(Refused(f"only {allowed} here", code="method_not_allowed", status=405))
            response.headers["Allow"] = allowed
        if not response.prepared:
            _dress(response, request)
        return response

    def _handler(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        places = self._streams if route.stream is not None else self._requests
        seconds = self._seconds.labels(route.name)
        answered_ok = self._counted.labels(route.name, "ok")

        async def handle(request: web.Request) -> web.StreamResponse:
            started, code = time.perf_counter(), "internal"
            try:
                caller = self._admit(route, request)
                if not places.enter(caller.title):
                    raise Refused("too many requests at once", code="overloaded", status=429, retry_after_s=1)
                try:
                    response = await self._answer(route, request, caller)
                finally:
                    places.leave(caller.title)
                code = "ok" if response.status < 400 else str(response.status)
                return response
            except (ConnectionError, asyncio.CancelledError):
                code = "gone"
                raise
            except Exception as error:
                failed = error_of(error)
                if failed.status == 500:
                    log.error("admin_request_failed", route=route.name, exc_info=error)
                code = failed.code
                return _refused(failed)
            finally:
                (answered_ok if code == "ok" else self._counted.labels(route.name, code)).inc()
                if route.stream is None:
                    seconds.observe(time.perf_counter() - started)

        return handle

    def _admit(self, route: Route, request: web.Request) -> Caller:
        caller = self._doorkeeper.caller(request)
        if caller is None:
            raise Refused("no accepted token or certificate", code="unauthenticated", status=401)
        if caller.role < route.role:
            raise Refused(
                f"role {caller.role.title} may not do this; it takes {route.role.title}", code="forbidden", status=403
            )
        if route.writes and request.headers.get("Sec-Fetch-Site", "none") not in OWN_PAGES:
            # a browser shows its certificate to us for any page that asks it to
            raise Refused("a page of another site may not change anything here", code="forbidden", status=403)
        wait_s = (self._writes if route.writes else self._reads).take(caller.title, time.monotonic(), route.cost)
        if wait_s:
            raise Refused("too many requests", code="overloaded", status=429, retry_after_s=wait_s)
        return caller

    async def _answer(self, route: Route, request: web.Request, caller: Caller) -> web.StreamResponse:
        if route.writes and await gone(request):
            raise ConnectionResetError("the caller has gone")
        if not route.local and not self._desk.leads:
            request_id = request[_REQUEST_ID]
            body = await read_body(request) if route.body is not None else b""
            return await self._proxy.pass_on(request, body, caller, request_id, _dress_with(request_id), self._stopping)
        if not route.writes and route.stream is None:
            return await self._read_only(route, request, caller)
        ask = await ask_of(route, request, caller, request[_REQUEST_ID])
        if route.stream is not None:
            self._in_time()
            return await self._stream(route, request, ask)
        assert route.handler is not None
        try:
            async with asyncio.timeout(HANDLER_TIMEOUT_S), self._auditor.recorded(route, ask):
                return as_json(await route.handler(self._desk, ask))
        finally:
            self._answers.forget(time.monotonic())
            self._desk.glance = None

    async def _read_only(self, route: Route, request: web.Request, caller: Caller) -> web.Response:
        """An answer at hand, or a new one. Refused: 429 while the loop runs late, unless the answer is there."""
        handler = route.handler
        assert handler is not None
        if not route.fresh_s:
            self._in_time()
            ask = await ask_of(route, request, caller, request[_REQUEST_ID])
            async with asyncio.timeout(HANDLER_TIMEOUT_S):
                return as_json(await handler(self._desk, ask))
        key, now, term = request.raw_path, time.monotonic(), self._desk.term
        body = self._answers.fresh(key, now, fresh_s=route.fresh_s, term=term)
        if body is None:
            ask = await ask_of(route, request, caller, request[_REQUEST_ID])
            if not route.spared and not self._answers.coming(key):
                self._in_time()

            async def make() -> bytes:
                async with asyncio.timeout(HANDLER_TIMEOUT_S):
                    return encoded(await handler(self._desk, ask))

            body = await self._answers.made(key, now, term=term, make=make)
        return web.Response(body=body, headers=_KEPT_HEADERS.copy())

    def _in_time(self) -> None:
        if self._lag.asked():
            raise Refused("the leader is busy placing pods", code="overloaded", status=429, retry_after_s=1)

    async def _stream(self, route: Route, request: web.Request, ask: Ask[Any, Any]) -> web.StreamResponse:
        """Parts as they come, until the reader goes, the source ends, or we stop."""
        assert route.stream is not None
        parts = route.stream(self._desk, ask)
        response: web.StreamResponse | None = None
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            while True:
                coming = asyncio.ensure_future(anext(parts, None))
                try:
                    await asyncio.wait((coming, stopped), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not coming.done():
                        coming.cancel()
                        await asyncio.gather(coming, return_exceptions=True)
                if coming.cancelled() and response is None:
                    raise Refused("this coordinator is ending", code="no_leader", status=503, retry_after_s=1)
                if coming.cancelled() and route.media_type != EVENTS:
                    raise break_off(request, "this coordinator is ending")
                part = coming.result() if not coming.cancelled() else None
                if response is None:  # only now: what is refused before the first part has a status of its own
                    response = web.StreamResponse(headers={"Content-Type": route.media_type, "X-Accel-Buffering": "no"})
                    _dress(response, request)
                    await response.prepare(request)
                if part is None:
                    break
                await send(request, response, part)
            await finish(response)
            return response
        except Exception as error:
            if response is None or isinstance(error, ConnectionError):
                raise
            log.error("admin_stream_failed", route=route.name, exc_info=error)
            raise break_off(request, "the stream has failed") from error
        finally:
            stopped.cancel()
            await parts.aclose()


_REQUEST_ID: web.RequestKey[str] = web.RequestKey("admin_request_id", str)
_KEPT_HEADERS = web.Response(headers={"Content-Type": "application/json", **FIXED_HEADERS}).headers


def _routed(route: Route, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.RouteDef:
    # a HEAD would run the handler and throw its answer away, and never end on a stream
    options = {"allow_head": False} if route.method == "GET" else {}
    return web.route(route.method, route.path, handler, **options)


async def gone(request: web.Request) -> bool:
    """Whether the caller has left already. After a stop (SIGSTOP, a frozen machine) there are requests on our sockets
    of callers who gave up long ago, looked, and went on: to do now what they wanted then would surprise everybody."""
    await asyncio.sleep(0)  # the end of a connection is read one turn of the loop after its last bytes
    return request.transport is None or request.transport.is_closing()


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _dress(response: web.StreamResponse, request: web.Request) -> None:
    _dress_with(request[_REQUEST_ID])(response)


def _dress_with(request_id: str) -> Callable[[web.StreamResponse], None]:
    """What every response carries."""

    def dress(response: web.StreamResponse) -> None:
        headers = response.headers
        for name, value in FIXED_HEADERS.items():
            if name not in headers:
                headers[name] = value
        headers[REQUEST_ID_HEADER] = request_id

    return dress


def _refused(error: Refused) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    return as_json(ErrorAnswer(code=error.code, message=str(error)), status=error.status, headers=headers)
