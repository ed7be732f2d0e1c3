"""The server: sockets in, calls out, faults in between.

aiohttp's low-level server is used without its router: a request costs a third less, and Kubernetes' paths need their
own parser anyway. The order of what happens to a request: faults, authentication, authorization, path, negotiation,
the handler. Handlers of single objects are synchronous: a request that was read completely is applied completely.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from twin import metrics_data
from twin.api import answers, documents, meddling, resources
from twin.api.answers import ResponseMaker
from twin.api.collection import delete_collection, list_objects, open_watch
from twin.api.listening import AnyMethodServer, SocketListener
from twin.api.requests import bodies
from twin.api.requests.access import Access, Witness, token_warning
from twin.api.requests.negotiation import choose_form
from twin.api.requests.paths import parse_path
from twin.api.resources import ApiCall
from twin.api.routes import find_kind
from twin.api.streams import MIN_TIMEOUT_S, WatchStream
from twin.faults import FaultPlan
from twin.metrics_data import MetricsData
from twin.registry import creating
from twin.registry.expiry import expire_events
from twin.registry.list_options import parse_list_options, query_bool
from twin.registry.registry import TwinRegistry
from twin.registry.served import ServedKind
from twin.registry.status import ApiError, internal

MAX_BODY_BYTES = 3 * 1024 * 1024
"""``MaxRequestBodyBytes`` of the API server."""

EXPIRE_EVERY_S = 60.0
"""How often old events are looked for."""


class TwinServer:
    """Serves a registry over HTTP."""

    def __init__(
        self,
        registry: TwinRegistry,
        *,
        token: str = "",
        faults: FaultPlan | None = None,
        rng: random.Random | None = None,
        tls: ssl.SSLContext | None = None,
        witness: Witness | None = None,
    ) -> None:
        """``token``: the administrator's; empty lets everybody in. ``rng`` decides faults and watch time-outs.

        With ``tls`` the same port speaks HTTPS too. ``witness`` is told who asks for what.
        """
        self.registry = registry
        self.faults = faults if faults is not None else FaultPlan()
        self.access = Access(token, registry, registry.clock, witness=witness)
        self.port = 0
        self.metrics = MetricsData(registry)
        """What the metrics APIs answer."""
        self._rng = rng if rng is not None else random.Random()
        self._streams: set[WatchStream] = set()
        self._tls = tls
        self._runner: web.ServerRunner | None = None
        self._listener: SocketListener | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._log = structlog.get_logger("twin")

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> int:
        """Listen; the port, chosen by the system when 0 is asked. ``OSError`` when it is taken."""
        server = AnyMethodServer(
            self._handle, request_factory=_request, handler_cancellation=True, access_log=None, keepalive_timeout=120.0
        )
        runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await runner.setup()
        self._runner = runner
        self._listener = SocketListener(server, self._tls)
        self.port = self._listener.bind(host, port)
        self._expiring = asyncio.get_running_loop().create_task(self._expire())
        return self.port

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            expire_events(self.registry)

    async def stop(self) -> None:
        """End all watches cleanly, then stop listening."""
        if self._expiring is not None:
            self._expiring.cancel()
            self._expiring = None
        for stream in tuple(self._streams):
            stream.close()
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        fault = self.faults.decide(request.method, request.path, self._rng) if self.faults.rules else None
        if fault is None:
            return await self._answer(request)
        if fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        if fault.status:
            return ResponseMaker(request.headers, {}).error(fault.error())
        response = await self._answer(request)
        if fault.drop and request.transport is not None:
            # The request was applied; the client must find out by itself.
            request.transport.abort()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        out = ResponseMaker(request.headers, request.query)
        try:
            return await self._serve(request, out)
        except ApiError as error:
            return out.error(error)
        except web.HTTPRequestEntityTooLarge:
            return out.raw(answers.encode(creating.too_large(MAX_BODY_BYTES).body), 413)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - the shell's one guard: a bug answers 500 and is logged
            self._log.exception("request_failed", method=request.method, path=request.path)
            return out.error(internal(f"{type(error).__name__}: {error}"))

    async def _serve(self, request: web.BaseRequest, out: ResponseMaker) -> web.StreamResponse:
        path, method, query, headers = request.path, request.method, request.query, request.headers
        target = parse_path(path)
        credentials = headers.get("Authorization", "")
        warning = token_warning(credentials)
        if warning:
            out.warnings.append(warning)
        caller = self.access.caller(credentials)
        self.access.check(caller, method, path, target, watch=query_bool(query.get("watch")))
        if method == "GET" and target is not None and target.plural and target.group in metrics_data.GROUPS:
            return out.json(self.metrics.serve(target, query))
        if path.startswith(meddling.PREFIX):
            return await meddling.serve(request, self.registry, self.faults, self.metrics, out)
        if target is None:
            documents.check_method(path, method)
            return documents.serve_document(self.registry, path, query, headers, out)
        if not target.plural:
            documents.check_version_method(self.registry, target.group, method)
            return documents.serve_resource_list(self.registry, target.group, target.version, out)
        kind = find_kind(self.registry, target, method)
        if kind is None:
            return documents.unknown_version(self.registry, target.group, target.version)
        out.form = choose_form(headers.get("Accept", ""))
        body = await request.read() if request.can_read_body else b""
        call = ApiCall("GET" if method == "HEAD" else method, target, query, headers, body, caller, out)
        if target.name and not target.watch:
            response = resources.handle(self.registry, call, kind)
            if target.subresource == "token" and response.status == 201 and isinstance(response.body, bytes):
                self.access.issue(target.namespace, bodies.parse_json(response.body))
            return response
        return await self._collection(request, call, kind)

    async def _collection(self, request: web.BaseRequest, call: ApiCall, kind: ServedKind) -> web.StreamResponse:
        if call.method == "DELETE":
            return await delete_collection(self.registry, call, kind)
        if call.method != "GET":
            return resources.handle(self.registry, call, kind)
        query: Any = {**call.query, "watch": "true"} if call.path.watch else call.query
        options = parse_list_options(query)
        if not options.watch:
            return await list_objects(self.registry, call, kind, options)
        stream = await open_watch(self.registry, call, kind, options)
        timeout_s = float(options.timeout_s or 0) or MIN_TIMEOUT_S * (1.0 + self._rng.random())
        self._streams.add(stream)
        try:
            return await stream.run(request, timeout_s)
        finally:
            self._streams.discard(stream)


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: Any,
    writer: Any,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)
