"""An admin listener with made-up figures, for what is about the page alone: layout, contrast, text that is markup.

It serves the real dashboard files. What the page does with a mesh is tested with a mesh.
"""

from __future__ import annotations

import asyncio
import json
from typing import Self

from aiohttp import web

from services.coordinator.http.ui_files import ui_routes
from tests.e2e.admin_figures import Figures, Json

TOKEN = "token-of-the-stub"


class Stub:
    """``async with Stub() as stub``: served at ``stub.url``, and there again after ``stop`` and ``start``.

    ``figures.leader`` None: 503 ``no_leader``. ``streams`` False: 429 for a stream. ``mute``: streams stay open and
    say nothing. ``busy``: paths that are told 429, with the seconds after which to ask again. ``old``: the age of
    copies, by path. ``asked``: every GET.
    """

    def __init__(self, *, nodes: int = 120, text: str = "", role: str = "admin") -> None:
        self.figures = Figures(nodes=nodes, text=text, role=role)
        self.streams = True
        self.mute = False
        self.busy: dict[str, int] = {}
        self.old: dict[str, int] = {}
        self.asked: list[str] = []
        self.obeyed = True
        self.posts: list[tuple[str, Json]] = []
        self.url = ""
        self._port = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        app = web.Application()
        app.add_routes(
            [
                *ui_routes(),
                web.get("/v1/decisions/stream", self._stream),
                web.post("/{path:v1/.*}", self._post),
                web.get("/{path:v1/.*}", self._get),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def _refused(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return refused(401, "unauthenticated", "no accepted token or certificate")
        if self.figures.leader is None and request.path != "/v1/whoami":
            return refused(503, "no_leader", "no coordinator leads")
        if (after_s := self.busy.get(request.path, self.busy.get("*"))) is not None:
            return refused(
                429, "overloaded", "the leader runs late and has no copy of this yet", {"Retry-After": str(after_s)}
            )
        return None

    async def _get(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if (no := self._refused(request)) is not None:
            return no
        answer = self.figures.answer(request.path, request.query)
        if answer is None:
            return refused(404, "route_unknown", "no such route")
        age_s = self.old.get(request.path, self.old.get("*", 0))
        return web.json_response(answer, headers={"Age": str(age_s)})

    async def _post(self, request: web.Request) -> web.Response:
        if (no := self._refused(request)) is not None:
            return no
        if self.figures.role == "viewer":
            return refused(403, "forbidden", "role viewer may not do this; it takes operator")
        self.posts.append((request.path, await request.json()))
        if request.path.startswith("/v1/scheduling/"):
            self.figures.paused = request.path.endswith("pause")
        return web.json_response({"paused": self.figures.paused, "obeyed": self.obeyed})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if (no := self._refused(request)) is not None:
            return no
        if not self.streams:
            return refused(429, "overloaded", "too many streams")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            while self.figures.leader is not None and self.streams:
                if self.mute:
                    await asyncio.sleep(0.5)
                    continue
                events = [("decision", self.figures.decision()) for _ in range(3)]
                for name, data in [("overview", self.figures.overview()), *events]:
                    await response.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
                await asyncio.sleep(0.5)  # as often as a leader sends it
        except ConnectionError:
            pass  # the reader has gone
        return response


def refused(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"code": code, "message": message}, status=status, headers=headers)
