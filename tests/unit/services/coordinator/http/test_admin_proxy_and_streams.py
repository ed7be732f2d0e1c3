"""A standby passes requests on, never twice; streams give what happens, in bounds, and end with the leader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.coordinator.core.decisions import PastDecision
from services.coordinator.http.routes import members, overview
from services.coordinator.http.table import ROUTES
from shared.election.record import LeaderRecord
from shared.runtime.http import streaming
from shared.runtime.http.callers import PROXIED, Role
from shared.runtime.http.limits import MAX_STREAMS, STREAMS_OF_ONE
from shared.runtime.http.routes import Route
from tests.builders import make_pod
from tests.patience import PATIENCE_S
from tests.unit.services.coordinator.http.api_world import TOKENS, ApiWorld, Seen, api_world


@pytest.fixture
async def world(tmp_path: Path) -> Any:
    async with api_world(tmp_path) as world:
        yield world


async def test_a_request_that_was_passed_on_is_never_passed_on_again(world: ApiWorld) -> None:
    answered = await world.ask("GET", "/v1/leader", at="c1", headers={PROXIED: "c9"})
    assert (answered.status, answered.code) == (503, "no_leader")
    assert answered.headers["Retry-After"] == "1"


async def test_a_target_that_names_another_host_is_still_asked_of_the_leader(world: ApiWorld) -> None:
    for at in ("c0", "c1"):
        port = int(world.listeners[at].url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        token = f"Authorization: Bearer {TOKENS['viewer']}"
        lines = ("GET http://elsewhere.example/v1/leader HTTP/1.1", "Host: x", token, "Connection: close", "", "")
        writer.write("\r\n".join(lines).encode())
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.read()
        writer.close()
        assert b" 200 " in answer.split(b"\r\n")[0]
        assert b'"id":"c0"' in answer


async def test_without_a_leader_there_is_nobody_to_ask(world: ApiWorld) -> None:
    world.standing_by.leader = None
    assert (await world.ask("GET", "/v1/overview", at="c1")).code == "no_leader"
    gone = LeaderRecord(identity="c9", incarnation="i", admin_url="http://127.0.0.1:1")
    world.standing_by.leader = Seen(gone.encode(), 9)
    assert (await world.ask("GET", "/v1/overview", at="c1")).code == "no_leader"
    # one of a version before there was this API
    old = LeaderRecord(identity="c9", incarnation="i")
    world.standing_by.leader = Seen(old.encode(), 9)
    answered = await world.ask("GET", "/v1/overview", at="c1")
    assert (answered.code, answered.json["message"].split(";")[0]) == (
        "no_leader", "c9 leads and serves no admin API",
    )  # fmt: skip
    # the document of the API needs no leader
    assert (await world.ask("GET", "/v1/openapi.json", at="c1")).status == 200


async def test_who_is_named_leader_and_does_not_lead_asks_nobody(world: ApiWorld) -> None:
    """The store's view lags behind: c1 is named, and passes nothing to itself."""
    itself = LeaderRecord(identity="c1", incarnation="i", admin_url=world.listeners["c1"].url)
    world.standing_by.leader = Seen(itself.encode(), 9)
    assert (await world.ask("GET", "/v1/overview", at="c1")).code == "no_leader"


async def test_a_leader_that_has_not_listed_yet_says_so(world: ApiWorld) -> None:
    parts, world.admin.parts = world.admin.parts, None
    answered = await world.ask("GET", "/v1/nodes")
    assert (answered.status, answered.code) == (503, "not_ready")
    stream = await world.ask("GET", "/v1/decisions/stream")
    assert (stream.status, stream.code) == (503, "not_ready")
    world.admin.parts = parts


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    kind = ""
    async for line in response.content:
        if line.startswith(b"event: "):
            kind = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            yield kind, json.loads(line[6:])


def stream(world: ApiWorld, at: str, query: str = "", *, role: str = "viewer") -> Any:
    headers = {"Authorization": f"Bearer {TOKENS[role]}"}
    return world.session.get(f"{world.listeners[at].url}/v1/decisions/stream{query}", headers=headers)


@pytest.mark.parametrize("at", ["c0", "c1"])
async def test_decisions_come_as_they_are_made(world: ApiWorld, at: str) -> None:
    async with stream(world, at, "?events=leader,decision") as response, asyncio.timeout(PATIENCE_S):
        assert response.status == 200
        coming = events(response)
        kind, leader = await anext(coming)
        assert (kind, leader["id"]) == ("leader", "c0")
        world.kube.add_pod(make_pod("late").cpu("100m"))
        kind, decision = await anext(coming)
        assert (kind, decision["name"], decision["namespace"]) == ("decision", "late", "default")
        assert decision["considered"][0]["node"] == decision["node"]


async def test_an_overview_comes_with_the_stream(world: ApiWorld) -> None:
    async with stream(world, "c0", "?events=overview") as response, asyncio.timeout(PATIENCE_S):
        kind, overview = await anext(events(response))
        assert kind == "overview"
        assert overview["pods"]["bound"] == 3
        assert overview["nodes"]["total"] == 3


async def test_a_reader_that_is_too_slow_is_told_how_much_it_missed(world: ApiWorld) -> None:
    core = world.admin.core
    assert core is not None
    async with stream(world, "c0", "?events=leader,decision") as response, asyncio.timeout(PATIENCE_S):
        coming = events(response)
        await anext(coming)
        for number in range(3000):  # in one turn of the loop: the reader cannot have taken any
            decision = PastDecision(0.0, number, "n0", "p", 1, (), f"u{number}", "default", f"<b>{number}</b>\n")
            core.state.recent.remember(f"u{number}", decision)
        assert await anext(coming) == ("dropped", {"count": 3000 - 1024})
        kind, first = await anext(coming)
        assert (kind, first["name"]) == ("decision", f"<b>{3000 - 1024}</b>\n")


async def test_a_reader_that_goes_leaves_nothing_behind(world: ApiWorld) -> None:
    core = world.admin.core
    assert core is not None
    async with stream(world, "c0") as response:
        await anext(events(response))
        assert len(core.state.recent._feeds) == 1
    world.kube.add_pod(make_pod("late").cpu("100m"))
    await world.until(lambda: not core.state.recent._feeds)


@pytest.mark.parametrize("at", ["c0", "c1"])
async def test_streams_end_when_the_leader_does(world: ApiWorld, at: str) -> None:
    async with stream(world, at) as response, asyncio.timeout(PATIENCE_S):
        await anext(events(response))
        world.leading.term = 0
        async for _ in events(response):
            pass
    world.standing_by.leader = None
    assert (await world.ask("GET", "/v1/decisions/stream", at=at)).code == "no_leader"


@pytest.mark.parametrize("at", ["c0", "c1"])
async def test_a_listener_that_closes_does_not_wait_for_readers(world: ApiWorld, at: str) -> None:
    async with stream(world, at) as response, asyncio.timeout(PATIENCE_S):
        await anext(events(response))
        await world.listeners[at].close()
        async for _ in events(response):
            pass


async def test_a_stream_that_fails_half_way_does_not_look_complete(tmp_path: Path) -> None:
    async def failing(*_: Any) -> AsyncIterator[bytes]:
        yield b'{"half":'
        raise RuntimeError("password=hunter2")

    routes = (*ROUTES, Route(method="GET", path="/v1/half", role=Role.VIEWER, summary="", stream=failing))  # type: ignore[arg-type]
    async with api_world(tmp_path, routes=routes) as world:
        for at in ("c0", "c1"):
            with pytest.raises(aiohttp.ClientError):
                await world.ask("GET", "/v1/half", at=at)
            assert (await world.ask("GET", "/v1/overview", at=at)).status == 200


async def test_streams_have_places_of_their_own(world: ApiWorld) -> None:
    async with asyncio.timeout(PATIENCE_S):
        open_streams = [await stream(world, "c0") for _ in range(STREAMS_OF_ONE)]
        try:
            late = await world.ask("GET", "/v1/decisions/stream", "viewer")
            assert (late.status, late.code) == (429, "overloaded")
            assert (await world.ask("GET", "/v1/overview", "viewer")).status == 200
            assert (await world.ask("GET", "/v1/dump", "admin")).status == 200
            open_streams += [await stream(world, "c0", role="operator") for _ in range(MAX_STREAMS - STREAMS_OF_ONE)]
            late = await world.ask("GET", "/v1/dump", "admin")
            assert (late.status, late.code) == (429, "overloaded")
        finally:
            for response in open_streams:
                response.close()


async def test_members_are_counted_once_for_all_who_look_at_the_same_time(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0

    async def counting(desk: Any) -> Any:
        nonlocal counted
        counted += 1
        return await members.read_members(desk)

    monkeypatch.setattr(overview, "read_members", counting)
    answers = await asyncio.gather(*(world.ask("GET", "/v1/overview") for _ in range(20)))
    assert {answered.status for answered in answers} == {200}
    assert counted == 1


@pytest.mark.parametrize("at", ["c0", "c1"])
async def test_a_reader_that_reads_nothing_gives_its_place_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """There are 16 places: as many connections that never read would shut everybody else out for ever."""
    monkeypatch.setattr(streaming, "STALLED_S", 0.3)

    async def endless(*_: Any) -> AsyncIterator[bytes]:
        while True:
            yield b"x" * (1 << 20)

    routes = (*ROUTES, Route(method="GET", path="/v1/endless", role=Role.VIEWER, summary="", stream=endless))  # type: ignore[arg-type]
    async with api_world(tmp_path, routes=routes) as world:
        port = int(world.listeners[at].url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        token = f"Authorization: Bearer {TOKENS['viewer']}"
        writer.write(f"GET /v1/endless HTTP/1.1\r\nHost: x\r\n{token}\r\n\r\n".encode())
        places = [listener._app._streams for listener in world.listeners.values()]
        await reader.readline()
        assert any(place.taken for place in places)
        await world.until(lambda: not any(place.taken for place in places))
        writer.close()


@pytest.mark.parametrize("at", ["c0", "c1"])
async def test_a_document_that_is_cut_by_an_ending_coordinator_does_not_look_complete(tmp_path: Path, at: str) -> None:
    """Its last byte may be a brace by chance, so a reader could not tell."""

    async def slow(*_: Any) -> AsyncIterator[bytes]:
        yield b'{"half":{}'
        await asyncio.Event().wait()

    routes = (*ROUTES, Route(method="GET", path="/v1/slow", role=Role.ADMIN, summary="", stream=slow))  # type: ignore[arg-type]
    async with api_world(tmp_path, routes=routes) as world:
        headers = {"Authorization": f"Bearer {TOKENS['admin']}"}
        async with world.session.get(f"{world.listeners[at].url}/v1/slow", headers=headers) as response:
            assert await response.content.readany()
            world.listeners[at].stop()
            with pytest.raises(aiohttp.ClientError):
                async with asyncio.timeout(PATIENCE_S):
                    await response.read()


async def test_a_dump_holds_every_part_and_no_secret(world: ApiWorld) -> None:
    for at in ("c0", "c1"):
        answered = await world.ask("GET", "/v1/dump", at=at)
        dump = json.loads(answered.text)
        assert not [name for name, part in dump.items() if isinstance(part, dict) and "error" in part]
        assert {"versions", "settings", "members", "queue", "nodes", "plans", "intents", "decisions", "log"} <= set(
            dump
        )
        assert len(dump["nodes"]) == 3
        assert len(dump["decisions"]) == 3
        assert not [token for token in TOKENS.values() if token in answered.text]


async def test_a_leader_checks_itself_when_a_dump_asks_for_it(world: ApiWorld) -> None:
    for at in ("c0", "c1"):
        dump = json.loads((await world.ask("GET", "/v1/dump?check=true", at=at)).text)
        assert dump["check"] == []
