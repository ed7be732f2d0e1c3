"""What a caller that means harm gets from a service's listener: a stable code, no effect, and nothing to read.

Real sockets, real routes (an agent's and the learner's), tokens with roles; certificates are in
``tests/process/test_mutual_tls_mesh.py``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import logging as stdlib_logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import aiohttp
import msgspec
import pytest
import structlog

from services.agent.settings import AgentSettings
from services.agent.shell import AgentShell
from services.binder.admin import BinderAdmin
from shared.adapters.peers.client import MEDIA_TYPE, ErrorBody, PeerClient
from shared.adapters.peers.credentials import TokenFile
from shared.adapters.peers.traffic import MOST_OUTCOMES, Traffic
from shared.agent.core import AgentCore
from shared.errors import PeerRejected
from shared.policy.heuristics import KubeDefault
from shared.runtime.http.callers import Authenticator, Caller
from shared.runtime.http.limits import MOST_CALLERS, Buckets, Rate, RequestLimit
from shared.runtime.http.listener import Listener, listen
from shared.runtime.http.peers import PeerRoute, build_app
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.observe.logging import configure
from shared.runtime.observe.metrics import Metrics
from shared.wire.codec import MAX_BODY_BYTES, encode
from shared.wire.messages import VERSION, Offer, Transitions

COORDINATOR, AGENT, METRICS = "c" * 32, "a" * 32, "m" * 32


def offer(term: int) -> bytes:
    return encode(Offer(VERSION, 1, 0, term, 1, None, []))


async def leads() -> int:
    return 5


@dataclasses.dataclass
class Target:
    """An agent's listener and everything it logs."""

    url: str
    log: io.StringIO
    raw: aiohttp.ClientSession

    async def post(self, body: bytes, token: str = COORDINATOR, kind: str = MEDIA_TYPE) -> tuple[int, str]:
        headers = {"Content-Type": kind, **({"Authorization": f"Bearer {token}"} if token else {})}
        async with self.raw.post(f"{self.url}/v1/offers", data=io.BytesIO(body), headers=headers) as answer:
            decode = msgspec.msgpack.decode if answer.content_type == MEDIA_TYPE else msgspec.json.decode
            return answer.status, decode(await answer.read(), type=ErrorBody).code if answer.status != 200 else ""


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Target]:
    tokens = tmp_path / "token"
    tokens.write_text(f"{COORDINATOR} coordinator\n{AGENT} agent\n{METRICS} metrics\n")
    root = stdlib_logging.getLogger()
    handlers, level, log = root.handlers[:], root.level, io.StringIO()
    configure("agent", stream=log, level="debug")
    metrics = Metrics("agent")
    shell = AgentShell(AgentCore(KubeDefault(), Random(1)), metrics, agent_id="a1", read_term=leads)
    app = build_app(
        metrics,
        routes=shell.routes(),
        authenticator=Authenticator(TokenFile(tokens)),
        settings=AgentSettings(token_file=tokens, id="a1"),
    )
    async with AsyncExitStack() as stack:
        listener = await listen(app, drain_s=0.1)
        stack.push_async_callback(listener.close)
        raw = await stack.enter_async_context(aiohttp.ClientSession())
        yield Target(listener.url, log, raw)
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level


@pytest.mark.parametrize(
    ("body", "token", "expected"),
    [
        pytest.param(offer(5), "", (401, "unauthenticated"), id="no credential"),
        pytest.param(offer(5), "x" * 32, (401, "unauthenticated"), id="unknown token"),
        pytest.param(offer(5), AGENT, (403, "forbidden"), id="another role"),
        pytest.param(offer(5), METRICS, (403, "forbidden"), id="who may read metrics"),
        pytest.param(offer(2**52), COORDINATOR, (409, "stale_term"), id="forged term"),
        pytest.param(b"\x91" * 1_000_000, COORDINATOR, (400, "wire_malformed"), id="nested a million deep"),
        pytest.param(b"\x81\xa1a" * 300_000, COORDINATOR, (400, "wire_malformed"), id="nested maps"),
        pytest.param(b"\xdd\xff\xff\xff\xff", COORDINATOR, (400, "wire_malformed"), id="array of four billion"),
        pytest.param(b"\xc6\xff\xff\xff\xff", COORDINATOR, (400, "wire_malformed"), id="four billion bytes"),
        pytest.param(b"\xc7\x04\x01abcd", COORDINATOR, (400, "wire_malformed"), id="extension type"),
        pytest.param(bytes(MAX_BODY_BYTES + 1), COORDINATOR, (413, "wire_too_large"), id="oversized"),
        pytest.param(bytes(MAX_BODY_BYTES + 1), "", (401, "unauthenticated"), id="oversized without credential"),
        pytest.param(b"", COORDINATOR, (400, "wire_malformed"), id="empty"),
    ],
)
async def test_harm_is_refused_with_a_stable_code_and_the_next_caller_is_served(
    target: Target, body: bytes, token: str, expected: tuple[int, str]
) -> None:
    assert await target.post(body, token) == expected
    assert await target.post(offer(5)) == (200, "")


async def test_no_secret_is_in_settings_figures_metrics_or_the_log(target: Target) -> None:
    await target.post(offer(5), "s3cret-of-somebody-else-123456789")
    await target.post(offer(5), AGENT)
    await target.post(b"\x91" * 10)
    shown = target.log.getvalue()
    for route in ("/v1/settings", "/v1/stats", "/metrics", "/healthz"):
        headers = {"Authorization": f"Bearer {METRICS}"}
        async with target.raw.get(target.url + route, headers=headers) as answer:
            assert answer.status == 200, route
            shown += await answer.text()
    for secret in (COORDINATOR, AGENT, METRICS, "s3cret-of-somebody-else"):
        assert secret not in shown
    assert "token_file" in shown, "the file's name is no secret"


async def test_without_a_credential_figures_and_settings_are_not_shown(target: Target) -> None:
    for route in ("/v1/settings", "/v1/stats", "/metrics"):
        async with target.raw.get(target.url + route) as answer:
            assert answer.status == 401, route


def test_every_route_between_services_says_who_may_call_it() -> None:
    agent = AgentShell(AgentCore(KubeDefault(), Random(1)), Metrics("agent"), agent_id="a1", read_term=leads)
    routes = [route for route in (*agent.routes(), *BinderAdmin("b", "0").routes()) if isinstance(route, PeerRoute)]
    assert {(route.path, *route.roles) for route in routes} == {
        ("/v1/offers", "coordinator"), ("/v1/views", "coordinator"), ("/v1/plans", "coordinator"),
    }  # fmt: skip


async def test_an_agents_certificate_speaks_for_that_agent_alone() -> None:
    from tests.unit.lab.serve.test_shell import MemoryStore, shell

    learner = shell(MemoryStore())
    (route,) = learner.routes()
    assert route.roles == {"agent"}
    body = encode(Transitions(VERSION, 1, 0, 1, "node-1", "marl-dqn", []))
    with pytest.raises(RequestRefused) as refused:
        await route.handler(body, Caller("agent", "node-2", certified=True))
    assert (refused.value.status, refused.value.code) == (403, "foreign_agent")
    for known in (Caller("agent", "node-1", certified=True), Caller("agent", certified=True), Caller("agent")):
        assert await route.handler(body, known)


# --- one caller's share ------------------------------------------------------------------------------------------


def test_one_caller_gets_its_places_and_others_theirs() -> None:
    places = RequestLimit(3, 2)
    assert [places.enter("a") for _ in range(3)] == [True, True, False], "two at once"
    assert [places.enter("b"), places.enter("c")] == [True, False], "three in all"
    places.leave("a")
    assert places.enter("c")


def test_callers_that_are_remembered_are_bounded_and_those_at_work_stay() -> None:
    places, buckets = RequestLimit(2, 1), Buckets(Rate(per_s=1.0, burst=1))
    assert places.enter("first")
    for number in range(2 * MOST_CALLERS):
        who = f"caller-{number}"
        assert not buckets.take(who, 0.0)
        assert places.enter(who)
        places.leave(who)
    assert buckets.take(who, 0.0) == 1.0, "its burst is used up"
    assert not places.enter("first"), "it is still at work"


async def serving(of_one: int | None, handler_of: asyncio.Event) -> Listener:
    async def wait(_: bytes, __: Caller) -> bytes:
        await handler_of.wait()
        return b""

    route = PeerRoute("/v1/x", wait, max_in_flight=8, of_one=of_one)
    return await listen(build_app(Metrics("test"), routes=[route]), drain_s=0.1)


@pytest.mark.parametrize("limited", [True, False], ids=["limited", "ablation"])
async def test_a_greedy_caller_is_told_429_long_before_the_route_is_full(limited: bool) -> None:
    done = asyncio.Event()
    listener = await serving(2 if limited else None, done)
    client = PeerClient()
    calls = [asyncio.create_task(client.call(listener.url, "/v1/x", b"", timeout_s=10)) for _ in range(4)]
    while limited and sum(call.done() for call in calls) < 2:
        finished, _ = await asyncio.wait([c for c in calls if not c.done()], return_when=asyncio.FIRST_COMPLETED)
        for error in [call.exception() for call in finished]:
            assert isinstance(error, PeerRejected)
            assert (error.status, error.code) == (429, "overloaded")
    done.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert results.count(b"") == (2 if limited else 4)
    await client.close()
    await listener.close()


# --- what a hostile peer answers ------------------------------------------------------------------------------------


async def test_a_peers_text_is_neither_a_code_nor_a_time_series() -> None:
    counter = 0

    async def refuse(_: bytes, __: Caller) -> bytes:
        nonlocal counter
        counter += 1
        refused = RequestRefused("no", code="conflict")
        refused.code = f'x"}}\n{counter}'
        raise refused

    listener = await listen(build_app(Metrics("test"), routes=[PeerRoute("/v1/x", refuse)]), drain_s=0.1)
    client = PeerClient()
    for _ in range(3):
        with pytest.raises(PeerRejected) as refused:
            await client.call(listener.url, "/v1/x", b"", timeout_s=10)
        assert refused.value.code == "http_409"
    assert client.traffic.route("/v1/x").outcomes == {"http_409": 3}
    await client.close()
    await listener.close()


def test_outcomes_of_a_route_are_bounded() -> None:
    traffic = Traffic().route("/v1/x")
    for number in range(10 * MOST_OUTCOMES):
        traffic.count(sent=0, received=0, outcome=f"code_{number}")
    assert len(traffic.outcomes) == MOST_OUTCOMES + 1
    assert sum(traffic.outcomes.values()) == traffic.requests
