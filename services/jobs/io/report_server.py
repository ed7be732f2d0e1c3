"""Where jobs report: ``POST /v1/jobs/NAMESPACE/NAME/report`` with the job's own token, in JSON.

    its token (401) --> not too often (429) --> size (413) --> JSON (400) --> the leader's core --> what was decided

The answer says how many workers the job is to have and at which batch, so that a training loop can follow without
asking the API server. A standby passes on to the leader, once. Loss of a report costs nothing but its news.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp import web

from services.jobs.core.events import Reported
from services.jobs.shell import JobsShell
from shared.election.record import LeaderRecord
from shared.jobs.reports import MAX_BYTES, ReportRefused, Said, accept, read_report
from shared.jobs.tokens import is_token
from shared.model.controllers.training_job import JobReport
from shared.runtime.http.callers import Caller
from shared.runtime.http.guard import add_routes, guarded, read_body
from shared.runtime.http.limits import Buckets, Rate, RequestLimit
from shared.runtime.http.listener import LATE_HEADS, Listener, listen
from shared.runtime.http.refusals import RequestRefused, answer_of, as_json
from shared.runtime.observe.metrics import Metrics

ROUTE = "/v1/jobs/{namespace}/{name}/report"
PASSED_ON = "X-Conclave-Proxied"
RATE = Rate(1.0, 10.0)
"""Of one job: one report a second, ten at once."""
IN_FLIGHT, OF_ONE = 64, 4
ANSWER_S = 5.0


class ReportServer:
    """``leading``: the shell, while this process leads; ``leader``: who does otherwise."""

    def __init__(
        self, metrics: Metrics, *, leading: Callable[[], JobsShell | None], leader: Callable[[], LeaderRecord | None]
    ) -> None:
        self._shell = leading
        self._leader = leader
        self._buckets = Buckets(RATE)
        self._session: aiohttp.ClientSession | None = None
        self.app = web.Application(client_max_size=MAX_BYTES * 4)
        self.app[LATE_HEADS] = metrics.late_heads.labels("report")

        async def healthz(_: web.Request) -> web.Response:
            return web.Response(text="ok\n")

        async def unknown(request: web.Request) -> web.Response:
            return answer_of(request, RequestRefused(f"no route {request.path[:128]}", code="route_unknown"))

        report = guarded(self._report, route=ROUTE, admit=self._admit, places=RequestLimit(IN_FLIGHT, OF_ONE))
        rows = [web.post(ROUTE, report), web.get("/healthz", healthz), web.route("*", "/{tail:.*}", unknown)]
        add_routes(self.app, rows)

    async def listen(self, host: str, port: int) -> Listener:
        """Take reports, from anywhere: each shows its job's token. ``ConfigError``: the port cannot be had."""
        return await listen(self.app, host=host, port=port, own_tokens=True)

    async def close(self) -> None:
        """Release connections."""
        if self._session is not None:
            await self._session.close()

    def _admit(self, request: web.Request) -> Caller:
        key = _key(request)
        shell = self._shell()
        if shell is not None:
            seen = shell.core.state.jobs.get(key)
            scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
            if seen is None and shell.core.missing:
                raise RequestRefused("the jobs are still being listed", code="not_ready")
            uid = seen.job.uid if seen is not None else ""
            # one answer for both: who has no token learns nothing of which jobs there are
            if not is_token(shell.core.state.report_key, key, uid, shown) or seen is None or scheme != "Bearer":
                raise RequestRefused("no such job, or not its token", code="unauthenticated")
        if self._buckets.take(f"{key}@{request.remote}" if shell is None else key, time.monotonic()):
            raise RequestRefused("too many reports of this job", code="overloaded")
        return Caller("job", key)

    async def _report(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        body = await read_body(request, MAX_BYTES)
        shell = self._shell()
        if shell is None:
            return await self._pass_on(request, body)
        key = caller.name
        seen = shell.core.state.jobs.get(key)
        if seen is None:
            raise RequestRefused("the job is gone", code="unauthenticated")
        try:
            said = read_report(body)
        except ReportRefused as error:
            shell.post_one(Reported(key, seen.job.uid, Said(), str(error), error.reason))
            raise RequestRefused(str(error), code="invalid_request") from None
        if said.job and said.job != key:
            shell.post_one(Reported(key, seen.job.uid, said))
            raise RequestRefused(f"job: {said.job[:128]!r} is another; this token is {key}'s", code="forbidden")
        shell.post_one(Reported(key, seen.job.uid, said))
        try:
            accept(said, job=key, last=JobReport(), at=0.0, restarted=True)
        except ReportRefused as error:  # the core says so on the object, by the same rule
            raise RequestRefused(str(error), code="invalid_request") from None
        status, job = seen.job.status, seen.job
        decided: dict[str, Any] = {
            "workers": status.target, "batch": status.batch or job.batch or None, "phase": status.phase.value,
        }  # fmt: skip
        return as_json(decided, status=202)

    async def _pass_on(self, request: web.Request, body: bytes) -> web.StreamResponse:
        """To the leader, once. It authenticates the job itself."""
        leader = self._leader()
        if PASSED_ON in request.headers or leader is None or not leader.admin_url:
            raise RequestRefused("nobody leads the jobs just now", code="no_leader")
        headers = {PASSED_ON: "1", "Content-Type": "application/json"}
        headers["Authorization"] = request.headers.get("Authorization", "")
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S))
        try:
            url = leader.admin_url.rstrip("/") + request.rel_url.raw_path
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as told:
                return web.Response(
                    status=told.status, body=await told.content.read(MAX_BYTES), content_type=told.content_type
                )
        except (aiohttp.ClientError, TimeoutError):
            raise RequestRefused("the leader gave no answer", code="leader_silent") from None


def _key(request: web.Request) -> str:
    return f"{request.match_info['namespace']}/{request.match_info['name']}"
