"""The reports' listener: each code that it answers, and what reaches the core."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from services.jobs.core import events as ev
from services.jobs.io.report_server import ReportServer
from shared.election.record import LeaderRecord
from shared.errors import ConfigError
from shared.jobs.tokens import report_token
from shared.runtime.http import listener
from shared.runtime.observe.metrics import Metrics
from tests.unit.services.jobs.jobs_world import World, a_job

PATH = "/v1/jobs/default/a/report"
TOKEN = {"Authorization": f"Bearer {report_token(b'k' * 32, 'default/a', 'uid-a')}"}


class Shell:
    """What the server needs of a leader's shell."""

    def __init__(self, world: World) -> None:
        self.core = world.core
        self.posted: list[Any] = []

    def post_one(self, event: Any) -> None:
        self.posted.append(event)


def leading() -> Shell:
    world = World()
    world.put_job(a_job())
    world.settle()
    return Shell(world)


def server_of(shell: Any, leader: LeaderRecord | None = None) -> ReportServer:
    return ReportServer(Metrics("jobs"), leading=lambda: shell, leader=lambda: leader)


async def ask(server: ReportServer, path: str = PATH, **request: Any) -> tuple[int, Any]:
    async with TestClient(TestServer(server.app)) as client, client.post(path, **request) as answer:
        found = answer.status, await answer.json()
    await server.close()
    return found


async def test_it_listens_beyond_loopback_where_workers_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listener, "_is_loopback", lambda _: False)
    server = server_of(leading())
    opened = await server.listen("127.0.0.1", 0)
    async with aiohttp.ClientSession() as session:
        async with session.post(opened.url + PATH, json={"steps": 3}, headers=TOKEN) as answer:
            assert answer.status == 202
        async with session.post(opened.url + PATH, json={"steps": 3}) as answer:
            assert answer.status == 401
    await opened.close()
    await server.close()
    # what stands in the way of an app that knows nobody's token
    with pytest.raises(ConfigError, match="will not listen beyond loopback"):
        await listener.listen(server_of(leading()).app, host="127.0.0.1")


async def test_a_report_reaches_the_core_and_is_answered_by_what_was_decided():
    shell = leading()
    status, answer = await ask(server_of(shell), json={"steps": 3}, headers=TOKEN)
    assert (status, answer) == (202, {"workers": 2, "batch": None, "phase": "Running"})
    assert [(one.key, one.said.steps) for one in shell.posted if isinstance(one, ev.Reported)] == [("default/a", 3)]


@pytest.mark.parametrize(
    ("path", "request_", "code"),
    [
        (PATH, {"json": {"steps": 3}}, (401, "unauthenticated")),
        (PATH, {"json": {"steps": 3}, "headers": {"Authorization": "Bearer no"}}, (401, "unauthenticated")),
        ("/v1/jobs/default/b/report", {"json": {}, "headers": TOKEN}, (401, "unauthenticated")),
        (PATH, {"data": b"{", "headers": TOKEN}, (400, "invalid_request")),
        (PATH, {"json": {"steps": -1}, "headers": TOKEN}, (400, "invalid_request")),
        (PATH, {"json": {"steps": 3, "checkpoint_steps": 4}, "headers": TOKEN}, (400, "invalid_request")),
        (PATH, {"json": {"job": "default/b"}, "headers": TOKEN}, (403, "forbidden")),
        (PATH, {"data": b" " * 9000, "headers": TOKEN}, (413, "too_large")),
        ("/v1/else", {"json": {}}, (404, "route_unknown")),
    ],
)
async def test_what_is_refused_has_its_code(path: str, request_: dict[str, Any], code: tuple[int, str]):
    status, answer = await ask(server_of(leading()), path, **request_)
    assert (status, answer["code"]) == code


async def test_who_reports_too_often_is_told_when_to_come_again():
    server = server_of(leading())
    async with TestClient(TestServer(server.app)) as client:
        codes = []
        for _ in range(12):
            async with client.post(PATH, json={"steps": 3}, headers=TOKEN) as answer:
                codes.append(answer.status)
    assert codes[:10] == [202] * 10
    assert 429 in codes


async def test_a_standby_passes_on_to_the_leader_once():
    shell = leading()
    async with TestServer(server_of(shell).app) as there:
        leader = LeaderRecord(identity="other", incarnation="i", admin_url=str(there.make_url("/")))
        status, answer = await ask(server_of(None, leader), json={"steps": 3}, headers=TOKEN)
    assert (status, answer["workers"]) == (202, 2)
    assert len(shell.posted) == 1
    nobody = LeaderRecord(identity="other", incarnation="i")
    assert (await ask(server_of(None, nobody), json={}, headers=TOKEN))[1]["code"] == "no_leader"
    again = {**TOKEN, "X-Conclave-Proxied": "1"}
    assert (await ask(server_of(None, leader), json={}, headers=again))[1]["code"] == "no_leader"


async def test_nobody_is_known_before_the_jobs_are_listed():
    core = SimpleNamespace(state=SimpleNamespace(jobs={}, report_key=b"k"), missing={"trainingjobs"})
    status, answer = await ask(server_of(SimpleNamespace(core=core)), json={}, headers=TOKEN)
    assert (status, answer["code"]) == (503, "not_ready")
