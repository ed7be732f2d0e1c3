"""The admin API's application: what stands around every handler of its route table.

    route found --> known (401) --> may (403) --> in time (429) --> leads, or passed on
                --> a read:   kept answer, or query (4xx) --> handler --> answer, kept; while the leader is late the
                              last copy with its age, new ones only at a bounded rate (429)
                --> a change: body, query (4xx) --> audit --> handler --> answer; what is kept is forgotten

A change is in the audit log before it is made; where the log cannot be written (etcd is silent) it is not made. What a
route does is not known here.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from math import inf
from typing import Any

from aiohttp import web

from shared.runtime.http.caching import CachedAnswer, CachedAnswers
from shared.runtime.http.callers import ROLES, AdminAuthenticator, Caller
from shared.runtime.http.guard import Handler, add_routes, guarded, identified, read_body
from shared.runtime.http.limits import (
    IN_FLIGHT_OF_ONE,
    MAX_IN_FLIGHT,
    MAX_STREAMS,
    READS,
    READS_WHILE_LATE,
    STREAMS_OF_ONE,
    WRITES,
    Buckets,
    LoopLag,
    RequestLimit,
)
from shared.runtime.http.listener import AUTHENTICATOR, LATE_HEADS
from shared.runtime.http.proxying import Proxy
from shared.runtime.http.refusals import RequestRefused, answer_of, as_json, encoded
from shared.runtime.http.requests import ask_of
from shared.runtime.http.routes import EVENTS, MAX_BODY_BYTES, Ask, Backend, Route
from shared.runtime.http.streaming import stream

LATE_FRESH_S = 15.0
"""While the leader's loop runs late, a copy of this age is given rather than a new answer waited for."""

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

Audit = Callable[[Route, Ask[Any, Any]], AbstractAsyncContextManager[None]]
"""Around a change: writes it down before, and its result after it."""


class AdminApp:
    """The application of one admin listener; ``close`` it. ``tls``: towards the leader. ``extra``: open routes (the
    dashboard's files). ``ValueError``: a path is registered twice."""

    def __init__(
        self,
        backend: Backend,
        routes: Sequence[Route],
        authenticator: AdminAuthenticator,
        *,
        audit: Audit,
        tls: ssl.SSLContext | None = None,
        extra: Sequence[web.RouteDef] = (),
    ) -> None:
        self._backend = backend
        self._authenticator = authenticator
        self._audit = audit
        self._proxy = Proxy(backend, tls=tls)
        self._reads, self._writes = Buckets(READS), Buckets(WRITES)
        self._requests = RequestLimit(MAX_IN_FLIGHT, IN_FLIGHT_OF_ONE)
        self._streams = RequestLimit(MAX_STREAMS, STREAMS_OF_ONE)
        self._answers, self._lag = CachedAnswers(), LoopLag()
        self._late_reads = Buckets(READS_WHILE_LATE)
        self._stopping = asyncio.Event()
        metrics = backend.metrics
        self._counted = metrics.counter("admin_requests_total", "Requests, by route and code", ["route", "code"])
        self._seconds = metrics.histogram("admin_request_duration_seconds", "Answering one, by route", ["route"])
        # each route checks its own limit; this one only stops what they would all refuse
        largest = max([MAX_BODY_BYTES, *(route.body_bytes for route in routes)])
        self.app = web.Application(client_max_size=largest, middlewares=[self._outermost])
        self.app[LATE_HEADS] = metrics.late_heads.labels("admin")
        self.app[AUTHENTICATOR] = authenticator
        add_routes(self.app, [web.get("/healthz", _healthz), *map(self._row, routes), *extra])

    def stop(self) -> None:
        """End the streams; the listener can close at once then."""
        self._stopping.set()
        self._lag.stop()

    async def close(self) -> None:
        """Release the connections to the leader."""
        await self._proxy.close()

    @web.middleware
    async def _outermost(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Request ids, fixed headers, and answers in JSON also where no route was found."""
        given = request.headers.get(REQUEST_ID_HEADER, "")
        request[_REQUEST_ID] = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        try:
            response = await handler(request)
        except web.HTTPNotFound:
            response = answer_of(request, RequestRefused("there is no such route", code="route_unknown"))
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            response = answer_of(request, RequestRefused(f"only {allowed} here", code="method_not_allowed"))
            response.headers["Allow"] = allowed
        if not response.prepared:
            _dress(request, response)
        return response

    def _row(self, route: Route) -> web.RouteDef:
        seconds = self._seconds.labels(route.name)
        answered_ok = self._counted.labels(route.name, "ok")

        def ended(_: web.Request, __: web.StreamResponse | None, outcome: str, took_s: float) -> None:
            (answered_ok if outcome == "ok" else self._counted.labels(route.name, outcome)).inc()
            if route.stream is None:
                seconds.observe(took_s)

        handler = guarded(
            partial(self._answer, route),
            route=route.name,
            admit=partial(self._admit, route),
            places=self._streams if route.stream is not None else self._requests,
            ended=ended,
        )
        # a HEAD would run the handler and throw its answer away, and never end on a stream
        options = {"allow_head": False} if route.method == "GET" else {}
        return web.route(route.method, route.path, handler, **options)

    def _admit(self, route: Route, request: web.Request) -> Caller:
        caller = identified(self._authenticator.caller(request))
        if ROLES[caller.role] < route.role:
            raise RequestRefused(f"role {caller.role} may not do this; it takes {route.role.title}", code="forbidden")
        if route.writes and request.headers.get("Sec-Fetch-Site", "none") not in OWN_PAGES:
            # a browser shows its certificate to us for any page that asks it to
            raise RequestRefused("a page of another site may not change anything here", code="forbidden")
        wait_s = (self._writes if route.writes else self._reads).take(caller.title, time.monotonic(), route.cost)
        if wait_s:
            raise RequestRefused("too many requests", code="overloaded", retry_after_s=wait_s)
        return caller

    async def _answer(self, route: Route, request: web.Request, caller: Caller) -> web.StreamResponse:
        if route.writes and await gone(request):
            raise ConnectionResetError("the caller has gone")
        begin = partial(_begin, request)
        if not route.local and not self._backend.leads:
            body = await read_body(request, route.body_bytes) if route.body is not None else b""
            return await self._proxy.pass_on(request, body, caller, request[_REQUEST_ID], self._stopping, begin)
        if not route.writes and route.stream is None:
            return await self._read_only(route, request, caller)
        ask = await ask_of(route, request, caller, request[_REQUEST_ID])
        if route.stream is not None:
            self._in_time(route)
            parts = route.stream(self._backend, ask)
            headers = {"Content-Type": route.media_type, "X-Accel-Buffering": "no"}
            try:
                return await stream(
                    request, parts, stopping=self._stopping, begin=partial(begin, 200, headers),
                    endless=route.media_type == EVENTS,
                )  # fmt: skip
            finally:
                await parts.aclose()
        assert route.handler is not None
        try:
            async with asyncio.timeout(HANDLER_TIMEOUT_S), self._audit(route, ask):
                return as_json(await route.handler(self._backend, ask))
        finally:
            self._answers.forget(time.monotonic())
            self._backend.changed()

    async def _read_only(self, route: Route, request: web.Request, caller: Caller) -> web.Response:
        """An answer at hand with its age, or a new one. Refused: 429 while the loop runs late, reads have had their
        part of its time, and there is no copy."""
        handler = route.handler
        assert handler is not None
        if not route.fresh_s:
            self._in_time(route)
            ask = await ask_of(route, request, caller, request[_REQUEST_ID])
            async with asyncio.timeout(HANDLER_TIMEOUT_S):
                return as_json(await handler(self._backend, ask))
        key, now, term = request.raw_path, time.monotonic(), self._backend.term
        kept = self._answers.fresh(key, now, fresh_s=route.fresh_s, term=term)
        if kept is None:
            ask = await ask_of(route, request, caller, request[_REQUEST_ID])
            if not route.spared and not self._answers.coming(key) and self._lag.asked():
                kept = self._copy_instead(route, key, now, term)
        if kept is not None:
            return web.Response(body=kept.answer, headers={**_KEPT_HEADERS, "Age": str(int(now - kept.made_at))})

        async def make() -> bytes:
            async with asyncio.timeout(HANDLER_TIMEOUT_S):
                return encoded(await handler(self._backend, ask))

        body = await self._answers.made(key, now, term=term, make=make)
        return web.Response(body=body, headers=_KEPT_HEADERS.copy())

    def _copy_instead(self, route: Route, key: str, now: float, term: int) -> CachedAnswer | None:
        """What is given while the loop runs late; None: a new answer. Refused: 429 where neither is to be had."""
        kept = self._answers.fresh(key, now, fresh_s=LATE_FRESH_S, term=term)
        if kept is None and (wait_s := self._late_wait_s(route, now)):
            kept = self._answers.fresh(key, now, fresh_s=inf, term=term)
            if kept is None:
                raise _late(wait_s)
        return kept

    def _in_time(self, route: Route) -> None:
        """Refused: 429 while the loop runs late and reads have had their part of its time."""
        if self._lag.asked() and (wait_s := self._late_wait_s(route, time.monotonic())):
            raise _late(wait_s)

    def _late_wait_s(self, route: Route, now: float) -> float:
        """Seconds until all that read may have such an answer made; 0.0: now."""
        return self._late_reads.take("", now, route.cost)


def _late(wait_s: float) -> RequestRefused:
    return RequestRefused("the leader runs late and has no copy of this yet", code="overloaded", retry_after_s=wait_s)


_REQUEST_ID: web.RequestKey[str] = web.RequestKey("admin_request_id", str)
_KEPT_HEADERS = web.Response(headers={"Content-Type": "application/json", **FIXED_HEADERS}).headers


async def gone(request: web.Request) -> bool:
    """Whether the caller has left already. After a stop (SIGSTOP, a frozen machine) there are requests on our sockets
    of callers who gave up long ago, looked, and went on: to do now what they wanted then would surprise everybody."""
    await asyncio.sleep(0)  # the end of a connection is read one turn of the loop after its last bytes
    return request.transport is None or request.transport.is_closing()


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _begin(request: web.Request, status: int, headers: Mapping[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers=headers)
    _dress(request, response)
    await response.prepare(request)
    return response


def _dress(request: web.Request, response: web.StreamResponse) -> None:
    """What every response carries."""
    for name, value in FIXED_HEADERS.items():
        if name not in response.headers:
            response.headers[name] = value
    response.headers[REQUEST_ID_HEADER] = request[_REQUEST_ID]
