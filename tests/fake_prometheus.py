"""A Prometheus over a real socket, as far as ``query_range`` goes: it answers from given functions of time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from aiohttp import web

Rows = Sequence[tuple[Mapping[str, str], Callable[[float], float]]]


class FakePrometheus:
    """``rows``: by a word of the query, labels and value over unix seconds. ``now``: instant samples are of this
    moment, not of second 0. ``asked``: the queries that came."""

    def __init__(self, rows: Mapping[str, Rows], *, fail: web.Response | None = None, now: bool = False) -> None:
        self.rows = rows
        self.now = now
        self.fail = fail
        self.url = ""
        self.asked: list[str] = []
        self.tokens: list[str] = []

    async def _answer(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.tokens.append(request.headers.get("Authorization", ""))
        text = str(form["query"])
        self.asked.append(text)
        if self.fail is not None:
            return self.fail
        start, end, step = (float(str(form[key])) for key in ("start", "end", "step"))
        count = int((end - start) / step + 1e-9) + 1
        assert count <= 11_000, "Prometheus refuses more points per series"
        times = [start + number * step for number in range(count)]
        result = [
            {"metric": dict(labels), "values": [[time, str(value(time))] for time in times]}
            for word, rows in self.rows.items()
            if word in text
            for labels, value in rows
        ]
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": result}})

    async def _instant(self, request: web.Request) -> web.Response:
        """One sample each, as of second 0 of the functions."""
        text = str((await request.post())["query"])
        self.asked.append(text)
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.fail is not None:
            return self.fail
        result = [
            {"metric": dict(labels), "value": [time.time() if self.now else 0, str(value(0.0))]}
            for word, rows in self.rows.items()
            if word in text
            for labels, value in rows
        ]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[FakePrometheus]:
        """Listen on a free port of the loopback."""
        app = web.Application()
        app.router.add_post("/api/v1/query_range", self._answer)
        app.router.add_post("/api/v1/query", self._instant)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()
