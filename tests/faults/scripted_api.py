"""A Kubernetes API server that answers what a test scripts: faults on purpose, in order, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

import msgspec
from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    raw: str = ""
    """The path as it was sent, with its escapes."""


class ScriptedApi:
    """Answers per (method, path), each used once, the last one for ever after. Unscripted requests get 404.

    A GET with ``watch=true`` is scripted as the method ``WATCH``.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.seen: list[Seen] = []
        self.url = ""
        self._tls = tls
        self._script: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        self._runner: web.AppRunner | None = None

    def on(self, method: str, path: str, *answers: Answer) -> Self:
        """Append answers."""
        self._script[method, path] += answers
        return self

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        self.url = f"{'https' if self._tls else 'http'}://localhost:{self._runner.addresses[0][1]}"
        return self

    async def listen_at(self, place: socket.socket) -> None:
        """Answer there too, from now on."""
        assert self._runner is not None
        await web.SockSite(self._runner, place).start()

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.read()
        body = msgspec.json.decode(text) if text else None
        self.seen.append(
            Seen(
                request.method, request.path, dict(request.query), dict(request.headers), body, request.rel_url.raw_path
            )
        )
        method = "WATCH" if request.query.get("watch") == "true" else request.method
        script = self._script[method, request.path]
        if not script:
            return web.json_response(failure(404, "NotFound", "not scripted"), status=404)
        answer = script.pop(0) if len(script) > 1 else script[0]
        return await answer(request)

    def queries(self, **match: str) -> list[dict[str, str]]:
        """The queries seen that hold ``match``."""
        return [seen.query for seen in self.seen if match.items() <= seen.query.items()]


class StaticAccess:
    """``KubeAccess`` to a fixed URL; counts renewals, which change the token."""

    proxy: str | None = None
    server_hostname: str | None = None

    def __init__(self, base_url: str, *, tls: list[ssl.SSLContext] | None = None, renewable: bool = True) -> None:
        self.base_url = base_url
        self.renewals = 0
        self._tls = tls or []
        self._renewable = renewable

    def tls(self) -> ssl.SSLContext | None:
        return self._tls[min(self.renewals, len(self._tls) - 1)] if self._tls else None

    async def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer token-{self.renewals}"}

    async def renew(self) -> bool:
        self.renewals += 1
        return self._renewable


def failure(code: int, reason: str, message: str = "") -> dict[str, Any]:
    """A Status failure."""
    return {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}


def answer(status: int, body: Any, **headers: str) -> Answer:
    """JSON (or bytes as they are) with a status."""

    async def give(_: web.Request) -> web.StreamResponse:
        text = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return web.Response(
            status=status,
            body=text,
            headers={"Content-Type": "application/json"} | {name.replace("_", "-"): v for name, v in headers.items()},
        )

    return give


def drop_reply() -> Answer:
    """The request is taken and done; the connection is cut before the answer."""

    async def give(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    return give


def hang() -> Answer:
    """No answer while the client waits."""

    async def give(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    return give


def stream(*chunks: bytes | dict[str, Any], end: str = "close") -> Answer:
    """A watch: dicts are sent as lines, bytes as they are, each as a chunk of its own.

    ``end``: ``close`` (as after timeoutSeconds), ``abort`` (connection reset) or ``silence`` (half-open).
    """

    async def give(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk if isinstance(chunk, bytes) else msgspec.json.encode(chunk) + b"\n")
        if end == "silence":
            await asyncio.Event().wait()
        if end == "abort":
            assert request.transport is not None
            request.transport.abort()
        return response

    return give


def pod(name: str, resource_version: int | str, **spec: Any) -> dict[str, Any]:
    """A small pod as JSON; its uid is ``uid-NAME``."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": str(resource_version),
        },
        "spec": {"containers": [{"name": "c"}], **spec},
        "status": {"phase": "Pending"},
    }


def event(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """A watch line."""
    return {"type": kind, "object": body}


def bookmark(resource_version: int) -> dict[str, Any]:
    """A bookmark as a 1.36 server sends it."""
    meta = {"resourceVersion": str(resource_version)}
    return event("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "spec": {}, "status": {}, "metadata": meta})


def page(items: list[dict[str, Any]], resource_version: int, token: str = "") -> dict[str, Any]:
    """A list page."""
    meta = {"resourceVersion": str(resource_version)} | ({"continue": token} if token else {})
    return {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items}
