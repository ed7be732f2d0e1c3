"""The peer listener of a service: routes between services in msgpack, and figures in JSON for operators.

A route between services is a function of bytes and the caller to bytes, one of figures a function of the path's parts
to what is encoded; who may call, limits, counting and errors are the guard's. Message types are not known here.
``/healthz`` and ``/readyz`` are open; everything else needs a known caller, and one that only calls (a
sensor) reads nothing.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

from shared.adapters.peers.client import MEDIA_TYPE
from shared.adapters.peers.identity import CALLING_ROLES
from shared.adapters.peers.traffic import RouteTraffic, Traffic
from shared.runtime.http.callers import Authenticator, Caller
from shared.runtime.http.calls import Call, CallAnswer, CallRoute, CallRoutes, address_of, refused_call
from shared.runtime.http.guard import Handler, add_routes, guard, guarded, identified, read_body
from shared.runtime.http.limits import Buckets, Rate, RequestLimit
from shared.runtime.http.listener import AUTHENTICATOR, CALLS, LATE_HEADS
from shared.runtime.http.refusals import RequestRefused, answer_of
from shared.runtime.observe.masking import effective
from shared.runtime.observe.metrics import CONTENT_TYPE, Metrics

PeerHandler = Callable[[bytes, Caller], Awaitable[bytes]]


class PeerRoute(Struct, frozen=True):
    """One POST route. ``roles``: who may call it, empty for every authenticated peer.

    ``max_body_bytes`` bounds a request, ``max_in_flight`` the handlers running at once, ``of_one`` what one caller may
    have of them and ``rate_of_one`` how often it may come; one more is told 429. A caller is told apart by its
    certificate and address, which the handler is told where the route is ``addressed``.
    """

    path: str
    handler: PeerHandler
    roles: frozenset[str] = frozenset()
    max_body_bytes: int = 4 << 20
    max_in_flight: int = 64
    of_one: int | None = None
    rate_of_one: Rate | None = None
    addressed: bool = False


class FiguresRoute(Struct, frozen=True):
    """One GET route in JSON for every known caller but those that only call (sensors). ``read`` gets the variable parts
    of the path by name."""

    path: str
    read: Callable[..., Any]


def build_app(
    metrics: Metrics,
    *,
    routes: Sequence[PeerRoute | FiguresRoute] = (),
    authenticator: Authenticator | None = None,
    ready: Callable[[], bool] = lambda: True,
    settings: object | None = None,
) -> web.Application:
    """The application of one peer listener. ``settings``: shown at ``/v1/settings`` with its secrets masked.

    ``ValueError``: a path is registered twice.
    """
    authenticator = authenticator if authenticator is not None else Authenticator()
    traffic = Traffic()
    metrics.watch_traffic("server", traffic)
    # the routes check their own limit, each at its own size; this one only stops what they would all refuse
    largest = max([1 << 20, *(route.max_body_bytes for route in routes if isinstance(route, PeerRoute))])
    app = web.Application(client_max_size=largest)
    app[AUTHENTICATOR] = authenticator
    app[LATE_HEADS] = metrics.late_heads.labels("peer")

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if ready() else web.Response(status=503, text="not ready\n")

    async def exposition(*_: object) -> web.Response:
        return web.Response(body=metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    def known(request: web.Request) -> Caller:
        caller = identified(authenticator.caller(request))
        if caller.role in CALLING_ROLES:
            raise RequestRefused(f"role {caller.role} may not read this", code="forbidden")
        return caller

    own = (
        FiguresRoute("/v1/stats", metrics.stats),
        FiguresRoute("/v1/settings", lambda: effective(settings) if settings is not None else {}),
    )
    rows = [
        web.get("/healthz", healthz),
        web.get("/readyz", readyz),
        web.get("/metrics", guarded(exposition, route="/metrics", admit=known)),
    ]
    calls = app[CALLS] = CallRoutes()
    for route in (*own, *routes):
        if isinstance(route, PeerRoute):
            door = _door(route, authenticator, traffic)
            rows.append(web.post(route.path, door.handler()))
            if door.buckets is None:  # a caller's rate is counted once, wherever it is read
                calls.add(route.path, door.calls())
        else:
            rows.append(web.get(route.path, guarded(_figures(route), route=route.path, admit=known)))
    add_routes(app, [*rows, web.route("*", "/{tail:.*}", _not_found)])
    return app


def _figures(route: FiguresRoute) -> Callable[[web.Request, Caller], Awaitable[web.Response]]:
    async def answer(request: web.Request, _: Caller) -> web.Response:
        found = route.read(**request.match_info)
        if inspect.isawaitable(found):
            found = await found
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    return answer


def _door(route: PeerRoute, authenticator: Authenticator, traffic: Traffic) -> _Door:
    buckets = Buckets(route.rate_of_one) if route.rate_of_one is not None else None
    places = RequestLimit(route.max_in_flight, route.of_one or route.max_in_flight)
    return _Door(route, authenticator, traffic.route(route.path), places, buckets)


class _Door(Struct, frozen=True):
    """One POST route: who may come in, how many at once, and what is counted of them."""

    route: PeerRoute
    authenticator: Authenticator
    counters: RouteTraffic
    places: RequestLimit
    buckets: Buckets | None

    def admit(self, request: web.Request | Call) -> Caller:
        """The caller. Refused: 401, 403, 429."""
        route, caller = self.route, identified(self.authenticator.caller(request))
        if route.roles:
            if caller.role and caller.role not in route.roles:
                raise RequestRefused(f"role {caller.role} may not call this", code="forbidden")
            if self.authenticator.mutual_tls and not (caller.certified and caller.role):
                raise RequestRefused("only a certificate with a role may call this", code="forbidden")
        if self.buckets is not None and self.buckets.take(f"{caller.title}@{request.remote}", time.monotonic()):
            raise RequestRefused("too many requests of this caller", code="overloaded")
        if route.addressed:
            return replace(caller, address=(request.remote or "").partition("%")[0].removeprefix("::ffff:"))
        return caller

    def handler(self) -> Handler:
        """For aiohttp."""

        async def answer(request: web.Request, caller: Caller) -> web.Response:
            if request.content_type != MEDIA_TYPE:
                raise RequestRefused(f"send {MEDIA_TYPE}", code="media_type_unsupported")
            body = await read_body(request, self.route.max_body_bytes, over="wire_too_large")
            request[_RECEIVED] = len(body)
            return web.Response(body=await self.route.handler(body, caller), headers={"Content-Type": MEDIA_TYPE})

        def ended(request: web.Request, response: web.StreamResponse | None, outcome: str, _: float) -> None:
            sent = response.content_length or 0 if response is not None else 0
            self.counters.count(sent=sent, received=request.get(_RECEIVED, 0), outcome=outcome)

        path, places = self.route.path, self.places
        return guarded(answer, route=path, admit=self.admit, places=places, by_address=True, ended=ended)

    def calls(self) -> CallRoute:
        """Without aiohttp."""

        async def answer(call: Call, caller: Caller) -> CallAnswer:
            return CallAnswer(200, await self.route.handler(call.body, caller))

        def ended(call: Call, response: CallAnswer | None, outcome: str, _: float) -> None:
            sent = len(response.body) if response is not None else 0
            self.counters.count(sent=sent, received=len(call.body), outcome=outcome)

        def knows(call: Call) -> bool:
            try:
                self.admit(call)
            except RequestRefused:
                return False
            return True

        path, places = self.route.path, self.places
        handle = guard(
            answer, refuse=refused_call, route=path, admit=self.admit, places=places, address=address_of, ended=ended
        )
        return CallRoute(handle, knows, self.route.max_body_bytes)


_RECEIVED: web.RequestKey[int] = web.RequestKey("received", int)


async def _not_found(request: web.Request) -> web.Response:
    return answer_of(request, RequestRefused(f"no route {request.path[:128]}", code="route_unknown"))
