"""The listening side of a service: peer routes in msgpack, and health, metrics and figures for operators.

A peer route is a function of bytes and the caller to bytes; authentication, limits, counting and the mapping of errors
to stable codes happen here once. It refuses to know message types, and to listen beyond loopback without a token file
or mutual TLS.

Errors: 4xx = refused, had no effect; 5xx = outcome unknown. The body is ``{code, message}``, in msgpack where the
caller speaks it, else JSON. A refusal before the handler runs (401, 403, 413, 415, 429) is always free of effects.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import structlog
from aiohttp import web
from prometheus_client import Counter

from shared.adapters.peers.client import ERROR_TEXT_LIMIT, MEDIA_TYPE, ErrorBody
from shared.adapters.peers.credentials import TokenFile
from shared.adapters.peers.identity import split_common_name
from shared.adapters.peers.traffic import Traffic
from shared.errors import (
    ConclaveError,
    ConfigError,
    KubeRejected,
    PeerRejected,
    StoreFenced,
    StoreRejected,
    WireError,
)
from shared.runtime.http.caller_limits import CallerLimit, Callers
from shared.runtime.http.connections import HANDSHAKE_TIMEOUT_S, HEAD_TIMEOUT_S, TimedHandler, TimedSite
from shared.runtime.observe.metrics import CONTENT_TYPE, Metrics
from shared.runtime.process.settings import effective

log = structlog.get_logger()

STATUS_OF: tuple[tuple[type[ConclaveError], int], ...] = (
    (WireError, 400),
    (StoreFenced, 409),
    (StoreRejected, 409),
    (KubeRejected, 409),
    (PeerRejected, 409),
)
"""What a handler may raise to refuse. Every other ConclaveError is 503: the outcome is unknown to the caller too."""


BODY_TIMEOUT_S = 10.0
"""A caller that sends its body slower than this holds a place of ``max_in_flight`` for nothing."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. ``name``: certificate CN (mTLS) or empty; ``role``: CN up to ``:``, or the token's role."""

    name: str = ""
    role: str = ""

    @property
    def id(self) -> str:
        """The one process that the certificate was made for; empty: a token, or a certificate shared by a role."""
        return split_common_name(self.name)[1]


class Refused(ConclaveError):
    """Raised by a handler to answer with a 4xx of its own: ``status`` and stable ``code``."""

    def __init__(self, message: str, *, code: str, status: int = 409, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.retry_after_s = retry_after_s


PeerHandler = Callable[[bytes, Caller], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class PeerRoute:
    """One POST route. ``roles``: who may call it, empty for every authenticated peer.

    ``max_body_bytes`` bounds a request, ``max_in_flight`` the handlers running at once, ``per_caller`` what one caller
    may have of them and how often it may come; one more is told 429.
    """

    path: str
    handler: PeerHandler
    roles: frozenset[str] = frozenset()
    max_body_bytes: int = 4 << 20
    max_in_flight: int = 64
    per_caller: CallerLimit | None = None


@dataclass(frozen=True, slots=True)
class Authenticator:
    """How callers are known: by bearer token, or by the certificate that ``ssl`` has checked. Neither: loopback only.

    With both, whoever shows a certificate is who it says; a token is for those who have none (Prometheus), and opens
    what every known caller may read, never a route with ``roles``. With tokens alone, one without a role (a secret
    shared by the whole mesh) passes every route's ``roles``; tokens with roles and certificates are held to them.
    """

    tokens: TokenFile | None = None
    mutual_tls: bool = False

    def caller(self, request: web.BaseRequest) -> Caller | None:
        """Who calls, or None when it cannot be told (401)."""
        if self.mutual_tls:
            if request.get_extra_info("peercert"):
                name = certificate_name(request)
                return Caller(name, split_common_name(name)[0]) if name else None
            if self.tokens is None:
                return None
        if self.tokens is not None:
            role = self.tokens.role_of(request.headers.get("Authorization", ""))
            return None if role is None else Caller("", role)
        return Caller()


KEEPALIVE_TIMEOUT_S = 75.0
"""How long a connection may be idle between two requests."""

LATE_HEADS: web.AppKey[Counter] = web.AppKey("late_heads", Counter)
"""Counts the connections of the app's listener that were cut, since a request's head took too long."""

AUTHENTICATOR: web.AppKey[Authenticator] = web.AppKey("authenticator", Authenticator)
CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)
"""Under which a ``guarded`` handler finds who calls."""


def build_app(
    metrics: Metrics,
    *,
    peer_routes: Sequence[PeerRoute] = (),
    authenticator: Authenticator | None = None,
    ready: Callable[[], bool] = lambda: True,
    settings: object | None = None,
    extra: Sequence[web.RouteDef] = (),
) -> web.Application:
    """The application of one listener. ``extra`` routes are plain aiohttp and guard themselves (``guarded``).

    ``settings``: the service's settings object, shown at ``/v1/settings`` with its secrets masked.

    ``/healthz`` and ``/readyz`` are open; everything else needs a known caller.
    """
    authenticator = authenticator if authenticator is not None else Authenticator()
    traffic = Traffic()
    metrics.watch_traffic("server", traffic)
    # the routes check their own limit, each at its own size; this one only stops what they would all refuse
    app = web.Application(client_max_size=max([1 << 20, *(route.max_body_bytes for route in peer_routes)]))
    app[AUTHENTICATOR] = authenticator
    app[LATE_HEADS] = metrics.late_heads.labels("peer")

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if ready() else web.Response(status=503, text="not ready\n")

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    async def stats(_: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(metrics.stats()), content_type="application/json")

    async def settings_in_force(_: web.Request) -> web.Response:
        shown = effective(settings) if settings is not None else {}
        return web.Response(body=msgspec.json.encode(shown), content_type="application/json")

    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/metrics", guarded(authenticator, exposition)),
            web.get("/v1/stats", guarded(authenticator, stats)),
            web.get("/v1/settings", guarded(authenticator, settings_in_force)),
            *(web.post(route.path, _peer_handler(route, authenticator, traffic)) for route in peer_routes),
            *extra,
            web.route("*", "/{tail:.*}", _not_found),
        ]
    )
    return app


def guarded(
    authenticator: Authenticator,
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    *,
    roles: frozenset[str] = frozenset(),
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """``handler`` behind the same authentication and error mapping as peer routes; the caller is in the request.

    The handler finds it as ``request[CALLER]``.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            request[CALLER] = _admit(authenticator, request, roles)
            return await handler(request)
        except (ConclaveError, web.HTTPRequestEntityTooLarge) as error:
            return _error_response(request, error)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            log.error("request_failed", route=request.path[:128], exc_info=error)
            return _error_response(request, error)

    return handle


def _peer_handler(
    route: PeerRoute, authenticator: Authenticator, traffic: Traffic
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    counters = traffic.route(route.path)
    in_flight = 0
    callers = Callers(route.per_caller) if route.per_caller is not None else None

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal in_flight
        body, answer, outcome, place = b"", b"", "internal", ""
        in_flight += 1
        try:
            caller = _admit(authenticator, request, route.roles)
            if in_flight > route.max_in_flight:
                raise Refused("too many requests in flight", code="overloaded", status=429, retry_after_s=1)
            if callers is not None:
                who = f"{caller.name}@{request.remote}"
                if not callers.enter(who):
                    raise Refused("too many requests of this caller", code="overloaded", status=429, retry_after_s=1)
                place = who
            if request.content_type != MEDIA_TYPE:
                raise Refused(f"send {MEDIA_TYPE}", code="media_type_unsupported", status=415)
            if (request.content_length or 0) > route.max_body_bytes:
                raise Refused(f"body over {route.max_body_bytes} bytes", code="wire_too_large", status=413)
            try:
                async with asyncio.timeout(BODY_TIMEOUT_S):
                    body = await request.read()
            except TimeoutError as error:
                raise Refused("the body came too slowly", code="body_timeout", status=408) from error
            if len(body) > route.max_body_bytes:
                raise Refused(f"body over {route.max_body_bytes} bytes", code="wire_too_large", status=413)
            answer = await route.handler(body, caller)
            outcome = "ok"
            return web.Response(body=answer, headers={"Content-Type": MEDIA_TYPE})
        except (ConclaveError, web.HTTPRequestEntityTooLarge) as error:
            response = _error_response(request, error)
            outcome = getattr(error, "code", "wire_too_large")
            return response
        except (ConnectionError, asyncio.CancelledError):
            outcome = "gone"
            raise
        except Exception as error:
            log.error("request_failed", route=route.path, exc_info=error)
            return _error_response(request, error)
        finally:
            in_flight -= 1
            if callers is not None and place:
                callers.leave(place)
            counters.count(sent=len(answer), received=len(body), outcome=outcome)

    return handle


async def _not_found(request: web.Request) -> web.Response:
    return _error_response(request, Refused(f"no route {request.path[:128]}", code="route_unknown", status=404))


def _admit(authenticator: Authenticator, request: web.Request, roles: frozenset[str]) -> Caller:
    caller = authenticator.caller(request)
    if caller is None:
        raise Refused("no accepted token or certificate", code="unauthenticated", status=401)
    if roles and caller.role and caller.role not in roles:
        raise Refused(f"role {caller.role} may not call this", code="forbidden", status=403)
    if roles and authenticator.mutual_tls and not (caller.name and caller.role):
        raise Refused("only a certificate with a role may call this", code="forbidden", status=403)
    return caller


def _error_response(request: web.Request, error: Exception) -> web.Response:
    headers: dict[str, str] = {}
    if isinstance(error, Refused):
        status, code, message = error.status, error.code, str(error)
        if error.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(error, web.HTTPRequestEntityTooLarge):
        status, code, message = 413, "wire_too_large", "body too large"
    elif isinstance(error, ConclaveError):
        status = next((number for kind, number in STATUS_OF if isinstance(error, kind)), 503)
        code, message = error.code, str(error)
    else:
        status, code, message = 500, "internal", "internal error"  # its text may hold anything: it is in our log only
    body = ErrorBody(code, message[:ERROR_TEXT_LIMIT])
    if request.content_type == MEDIA_TYPE:
        headers["Content-Type"] = MEDIA_TYPE
        return web.Response(status=status, body=msgspec.msgpack.encode(body), headers=headers)
    headers["Content-Type"] = "application/json"
    return web.Response(status=status, body=msgspec.json.encode(body) + b"\n", headers=headers)


def certificate_name(request: web.BaseRequest) -> str:
    """The CN of the caller's certificate, which TLS has checked; empty where there is none."""
    certificate: Any = request.get_extra_info("peercert") or {}
    for pairs in certificate.get("subject", ()):
        for key, value in pairs:
            if key == "commonName":
                return str(value)
    return ""


class Listener:
    """A bound socket serving one application. ``port`` is the real one where 0 was asked for."""

    def __init__(self, runner: web.AppRunner, host: str, port: int, scheme: str) -> None:
        self.port = port
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
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
    drain_s: float = 2.0,
    head_timeout_s: float = HEAD_TIMEOUT_S,
    handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
) -> Listener:
    """Serve ``app``. ``ConfigError``: the port is taken or not allowed, or the host would expose an open service.

    ``head_timeout_s``, ``handshake_timeout_s``: what a connection has to send a request's head, and before it to end
    the TLS handshake; whoever takes longer is cut.
    """
    authenticator = app.get(AUTHENTICATOR, Authenticator())
    if not _is_loopback(host) and authenticator.tokens is None and not (authenticator.mutual_tls and tls is not None):
        raise ConfigError(f"{host}: will not listen beyond loopback without a token file or mutual TLS; set one")
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=drain_s)
    await runner.setup()
    late_heads = app.get(LATE_HEADS)
    connection = partial(
        TimedHandler,
        runner.server,
        loop=asyncio.get_running_loop(),
        timeout_s=head_timeout_s,
        late=late_heads.inc if late_heads is not None else lambda: None,
        access_log=None,
        keepalive_timeout=KEEPALIVE_TIMEOUT_S,
        auto_decompress=False,
    )
    site = TimedSite(runner, host, port, connection=connection, tls=tls, handshake_timeout_s=handshake_timeout_s)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise ConfigError(f"{host}:{port}: cannot listen ({_listen_problem(error)})") from error
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
