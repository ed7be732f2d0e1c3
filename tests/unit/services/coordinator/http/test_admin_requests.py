"""What a request must look like, and what every response carries; limits; the audit log before every change."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from services.coordinator.http.routes import queue
from services.coordinator.http.table import ROUTES
from shared.errors import StoreUnknown
from shared.ports import DeleteKey
from shared.runtime.http import admin
from shared.runtime.http.callers import Caller, Role
from shared.runtime.http.limits import (
    IN_FLIGHT_OF_ONE,
    MAX_IN_FLIGHT,
    MOST_CALLERS,
    READS,
    WRITES,
    Buckets,
    Rate,
    RequestLimit,
)
from shared.runtime.http.pages import PageQuery, page
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.http.routes import Ask, Because, Route
from shared.runtime.records.admin import read_audit
from shared.runtime.records.control import read_control
from shared.runtime.records.settings import change_settings, read_settings
from tests.unit.services.coordinator.http.api_world import KEYS, TOKENS, Answered, ApiWorld, api_world


@pytest.fixture
async def world(tmp_path: Path) -> Any:
    async with api_world(tmp_path) as world:
        yield world


BAD: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("GET", "/v1/nothing", {}, 404, "route_unknown"),
    ("GET", "/", {}, 404, "route_unknown"),
    ("DELETE", "/v1/settings", {}, 405, "method_not_allowed"),
    ("HEAD", "/v1/decisions/stream", {}, 405, ""),
    ("GET", "/v1/nodes?limit=0", {}, 400, "invalid_request"),
    ("GET", "/v1/nodes?limit=501", {}, 400, "invalid_request"),
    ("GET", "/v1/nodes?limit=x", {}, 400, "invalid_request"),
    ("GET", "/v1/nodes?limit=1&limit=2", {}, 400, "invalid_request"),
    ("GET", "/v1/nodes?colour=red", {}, 400, "invalid_request"),
    ("GET", "/v1/nodes?continue=%00%FF", {}, 400, "invalid_request"),
    ("GET", "/v1/nodes?continue=a", {}, 400, "invalid_request"),
    ("GET", "/v1/queue?continue=bm90", {}, 400, "invalid_request"),
    ("GET", "/v1/nodes?selector=a%3D%3D%3Db", {}, 400, "invalid_request"),
    ("GET", "/v1/nodes?labels=a,b,c,d,e,f,g,h,i", {}, 400, "invalid_request"),
    ("GET", "/v1/nodes/map?groupBy=rack", {}, 400, "invalid_request"),
    ("GET", "/v1/pending?sort=name", {}, 400, "invalid_request"),
    ("GET", "/v1/history?minutes=61", {}, 400, "invalid_request"),
    ("GET", "/v1/queue?place=elsewhere", {}, 400, "invalid_request"),
    ("GET", "/v1/decisions/stream?events=gossip", {}, 400, "invalid_request"),
    ("GET", "/v1/nodes/nope", {}, 404, "node_unknown"),
    ("GET", "/v1/pods/default/nope/explain", {}, 404, "pod_unknown"),
    ("POST", "/v1/nodes/nope/drain", {}, 404, "node_unknown"),
    ("POST", "/v1/nodes/nope/resume", {}, 404, "node_unknown"),
    ("POST", "/v1/scheduling/pause", {"data": b"{"}, 415, "media_type_unsupported"),
    ("POST", "/v1/scheduling/pause", {"data": b"{", "headers": {"Content-Type": "application/json"}}, 400, ""),
    ("POST", "/v1/scheduling/pause", {"data": b"\xff", "headers": {"Content-Type": "application/json"}}, 400, ""),
    ("POST", "/v1/scheduling/pause", {"json": {"reason": "x", "more": 1}}, 400, "invalid_request"),
    ("POST", "/v1/scheduling/pause", {"json": {"reason": "a\nb"}}, 400, "invalid_request"),
    ("POST", "/v1/scheduling/pause", {"json": {"reason": "\u202eevil"}}, 400, "invalid_request"),
    ("POST", "/v1/scheduling/pause", {"json": {"reason": "x" * 257}}, 400, "invalid_request"),
    ("POST", "/v1/scheduling/pause", {"json": []}, 400, "invalid_request"),
    ("POST", "/v1/scheduling/pause", {"json": {"reason": "x" * 70_000}}, 413, "too_large"),
    ("PATCH", "/v1/settings", {"data": b"[" * 60_000, "headers": {"Content-Type": "application/json"}}, 400, ""),
    ("PATCH", "/v1/settings", {"json": {"values": {}}}, 400, "invalid_request"),
    ("PATCH", "/v1/settings", {"json": {"values": {"batch_units": 0}}}, 422, "invalid_value"),
    ("PATCH", "/v1/settings", {"json": {"values": {"batch_units": True}}}, 400, "invalid_request"),
    ("PATCH", "/v1/settings", {"json": {"values": {"lease_ttl_s": 9}}}, 422, "invalid_value"),
    ("PATCH", "/v1/settings", {"json": {"values": {"no_such": None}}}, 422, "invalid_value"),
    ("PATCH", "/v1/settings", {"json": {"values": {"batch_units": 9}, "number": 5}}, 409, "conflict"),
    ("PUT", "/v1/log-level", {"json": {"level": "loud"}}, 400, "invalid_request"),
    ("POST", "/v1/policies/activate", {"json": {"name": "no-such"}}, 404, "policy_unknown"),
    ("POST", "/v1/policies/activate", {"json": {}}, 400, "invalid_request"),
    ("POST", "/v1/policies/activate", {"json": {"name": "fgd", "stage": "active", "percent": 5}}, 422, ""),
    ("POST", "/v1/policies/activate", {"json": {"name": "fgd", "stage": "active", "goal": "room"}}, 422, ""),
    ("POST", "/v1/policies/activate", {"json": {"name": "fgd", "promotion": "soon"}}, 400, "invalid_request"),
    ("POST", "/v1/policies/promote", {"json": {"name": "fgd"}}, 409, "conflict"),
    ("POST", "/v1/policies/promote", {"json": {}}, 400, "invalid_request"),
    ("POST", "/v1/policies/promote", {"json": {"name": "fgd", "to": "shadow"}}, 400, "invalid_request"),
    ("POST", "/v1/policies/promote", {"json": {"name": "fgd", "to": "active", "percent": 5}}, 422, "invalid_value"),
    ("GET", "/v1/policies/no-such/card", {}, 404, "policy_unknown"),
    ("POST", "/v1/policies/rollback", {}, 409, "conflict"),
]


async def test_bad_requests_are_refused_with_a_stable_code_and_change_nothing(world: ApiWorld) -> None:
    for method, path, options, status, code in BAD:
        for at in ("c0", "c1"):
            answered = await world.ask(method, path, at=at, **options)
            while answered.status == 429:  # the writes' limit is not what this test is about
                await asyncio.sleep(float(answered.headers["Retry-After"]) / 10)
                answered = await world.ask(method, path, at=at, **options)
            assert answered.status == status, (method, path, at, answered.text)
            assert code in ("", answered.code), (method, path, at, answered.text)
            assert method == "HEAD" or set(answered.json) == {"code", "message"}
    control = await read_control(world.store, KEYS)
    assert (control.paused, dict(control.drained), control.settings) == (None, {}, None)


async def test_a_refusal_is_one_line_for_people(world: ApiWorld) -> None:
    gone = await world.ask("GET", "/v1/nodes/n1%0A%1B[2J")
    assert gone.json["message"] == "there is no node n1??[2J"
    broken = await world.ask("POST", "/v1/scheduling/pause", json={"reason": "a\nb"})
    assert broken.json["message"] == "body: Expected `str` without control characters or line breaks - at `$.reason`"


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        (
            "GET", "/v1/nodes?state=asleep", None,
            "at `$.state`; it is one of cordoned, drained, not_ready, pressure, ready, unowned",
        ),
        ("PUT", "/v1/log-level", {"level": "loud"}, "debug, error, info, warning"),
        (
            "POST", "/v1/policies/activate", {"name": "fgd", "goal": "x"},
            "balance, gpus, joules, latency, neutral, nodes, packing, room",
        ),
    ],
)  # fmt: skip
async def test_a_value_that_is_none_of_the_choices_is_told_the_choices(
    world: ApiWorld, method: str, path: str, body: Any, message: str
) -> None:
    answered = await world.ask(method, path, json=body)
    assert answered.code == "invalid_request"
    assert answered.json["message"].endswith(message)


async def test_responses_carry_the_request_id_and_are_not_kept(world: ApiWorld) -> None:
    for at in ("c0", "c1"):
        for path in ("/healthz", "/v1/leader", "/v1/nothing"):
            answered = await world.ask("GET", path, at=at, headers={"X-Request-Id": "abc-1"})
            assert answered.headers["X-Request-Id"] == "abc-1"
            assert answered.headers["X-Content-Type-Options"] == "nosniff"
            assert answered.headers["Cache-Control"] == "no-store"
            assert answered.headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert "aiohttp" not in answered.headers["Server"]
        made = await world.ask("GET", "/v1/leader", at=at, headers={"X-Request-Id": "<script>"})
        assert len(made.headers["X-Request-Id"]) == 32


async def test_lists_come_in_pieces_that_add_up(world: ApiWorld) -> None:
    whole = (await world.ask("GET", "/v1/nodes")).json["items"]
    pieces, token = [], ""
    while True:
        answered = (await world.ask("GET", f"/v1/nodes?limit=2&continue={token}")).json
        pieces += answered["items"]
        token = answered["continue"]
        if not token:
            break
    assert [node["name"] for node in pieces] == ["n0", "n1", "n2"] == [node["name"] for node in whole]


def test_a_page_after_an_item_that_is_gone_goes_on_behind_it() -> None:
    first, token = page(["a", "b", "c", "d"], PageQuery(limit=2), str)
    second, end = page(["a", "c", "d", "e"], PageQuery(limit=3, continue_=token), str)
    assert (first, second, end) == (["a", "b"], ["c", "d", "e"], "")
    with pytest.raises(RequestRefused):
        page([1], PageQuery(continue_=token), int)


async def test_a_change_is_in_the_audit_log_with_who_and_why(world: ApiWorld) -> None:
    answered = await world.ask("POST", "/v1/nodes/n1/drain", "operator", at="c1", json={"reason": "new disk"})
    assert answered.json["drained"] == {
        "by": "operator:operator-1", "reason": "new disk", "since": answered.json["drained"]["since"],
    }  # fmt: skip
    record = (await world.ask("GET", "/v1/audit", "viewer")).json["items"][0]
    assert {name: record[name] for name in ("by", "role", "route", "target", "reason")} == {
        "by": "operator-1", "role": "operator", "route": "POST /v1/nodes/{name}/drain", "target": "n1",
        "reason": "new disk",
    }  # fmt: skip
    assert record["request_id"] == answered.headers["X-Request-Id"]


async def test_a_path_cannot_forge_a_line_of_the_log(world: ApiWorld) -> None:
    with capture_logs() as lines:
        answered = await world.ask("POST", "/v1/nodes/n1%0A%1B[2Jlevel=error%00/drain", json={"reason": "x"})
    assert answered.code == "node_unknown"
    (line,) = [line for line in lines if line["event"] == "admin_change"]
    assert (line["target"], line["result"]) == ("n1  [2Jlevel=error", "node_unknown")
    record = (await world.ask("GET", "/v1/audit")).json["items"][0]
    assert record["target"] == "n1  [2Jlevel=error"


async def test_a_setting_that_another_version_has_stored_does_not_stop_changes(world: ApiWorld) -> None:
    """After a downgrade: what this version does not know is left as it is, until it is unset by its name."""
    await change_settings(
        world.store, KEYS, {"of_tomorrow": 3, "batch_units": 5000}, by="x", reason="", expected_number=None,
        now=world.desks["c0"].wall(), validate=lambda _: None,
    )  # fmt: skip
    changed = await world.ask("PATCH", "/v1/settings", json={"values": {"plans_in_flight": 7}})
    assert (changed.status, changed.json["number"]) == (200, 2)
    stored = await read_settings(world.store, KEYS)
    assert stored is not None
    assert stored.values == {"of_tomorrow": 3, "batch_units": 5000, "plans_in_flight": 7}
    assert (await world.ask("PATCH", "/v1/settings", json={"values": {"of_tomorrow": 4}})).status == 422
    assert (await world.ask("PATCH", "/v1/settings", json={"values": {"of_tomorrow": None}})).status == 200
    assert (await world.ask("PATCH", "/v1/settings", json={"values": {"of_tomorrow": None}})).status == 422


async def test_a_change_that_cannot_be_recorded_is_not_made(world: ApiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await no_audit(world, monkeypatch)
    assert (await world.ask("POST", "/v1/scheduling/pause")).code == "store_unknown"
    assert (await read_control(world.store, KEYS)).paused is None


async def test_without_the_record_first_the_change_would_be_made(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ablation of the test above: a handler outside ``recorded`` changes what nobody can read up."""
    await no_audit(world, monkeypatch)
    body, caller = Because(reason=""), next(iter(Role))
    desk = world.desks["c0"]
    ask = Ask(Caller(caller.title), "r1", {}, None, body)
    await queue.pause(desk, ask)
    assert (await read_control(world.store, KEYS)).paused is not None
    assert await read_audit(world.store, KEYS) == []


async def test_a_change_that_waited_for_a_leader_of_an_earlier_term_is_not_made(world: ApiWorld) -> None:
    """A coordinator was stopped (SIGSTOP, a frozen machine) with a request on its socket; minutes later it went on and,
    before it noticed that somebody else leads, paused the mesh for a caller who had given up long ago."""
    await world.store.txn([], [DeleteKey(KEYS.coordinator_leader)])
    await world.put(KEYS.coordinator_leader, b"{}")
    for method, path, body in (
        ("POST", "/v1/scheduling/pause", {}),
        ("POST", "/v1/nodes/n0/drain", {}),
        ("PATCH", "/v1/settings", {"values": {"batch_units": 9}}),
        ("POST", "/v1/policies/activate", {"name": "fgd"}),
    ):
        answered = await world.ask(method, path, json=body)
        assert (answered.status, answered.code) == (503, "no_leader"), path
    control = await read_control(world.store, KEYS)
    assert (control.paused, control.drained, control.settings) == (None, {}, None)
    assert await read_audit(world.store, KEYS) == []


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("at", ["c0", "c1"])
async def test_a_change_whose_caller_has_gone_is_not_made(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch, at: str, asked: bool
) -> None:
    """As it is found on the socket by a process that was stopped meanwhile. The second case, without asking, is what
    it was; a standby passed it on to the leader."""
    if not asked:

        async def never(_: Any) -> bool:
            return False

        monkeypatch.setattr(admin, "gone", never)
    listener = urlsplit(world.listeners[at].url)
    with socket.create_connection((str(listener.hostname), listener.port or 0)) as caller:
        caller.sendall(
            b"POST /v1/scheduling/pause HTTP/1.1\r\nHost: c\r\nContent-Length: 0\r\n"
            b"Authorization: Bearer %s\r\n\r\n" % TOKENS["admin"].encode()
        )
    counted = f'admin_requests_total{{code="{"gone" if asked else "ok"}",route="POST /v1/scheduling/pause"}} 1.0'
    await world.until(lambda: counted.encode() in world.desks["c0" if not asked else at].metrics.exposition())
    paused = (await read_control(world.store, KEYS)).paused
    assert (paused is None) is asked


async def no_audit(world: ApiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: Any, **__: Any) -> None:
        raise StoreUnknown("etcd is silent")

    monkeypatch.setattr("services.coordinator.http.auditing.append_audit", unknown)


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    buckets = Buckets(Rate(per_s=2, burst=3))
    assert [buckets.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("b", 0.0) == 0.0
    assert buckets.take("a", 0.5) == 0.0
    assert buckets.take("a", 0.5) > 0.0
    for number in range(2 * MOST_CALLERS):
        buckets.take(str(number), 1.0)
    assert len(buckets._of) == MOST_CALLERS


def test_what_takes_the_leader_long_is_asked_less_often() -> None:
    buckets = Buckets(Rate(per_s=2, burst=10))
    assert [buckets.take("a", 0.0, 5) for _ in range(3)] == [0.0, 0.0, 2.5]
    assert buckets.take("a", 2.5, 5) == 0.0
    # none costs more than a full bucket holds: it could never be asked
    assert all(route.cost <= (WRITES if route.writes else READS).burst for route in ROUTES)


def test_places_are_bounded() -> None:
    places = RequestLimit(3, of_one=2)
    assert [places.enter("ann") for _ in range(3)] == [True, True, False]
    assert [places.enter("ben") for _ in range(2)] == [True, False]
    places.leave("ann")
    assert [places.enter("ben"), places.enter("ann")] == [True, False]


async def test_a_caller_that_writes_too_fast_is_told_to_wait_and_others_are_not(world: ApiWorld) -> None:
    statuses = [(await world.ask("POST", "/v1/scheduling/resume", "operator")) for _ in range(60)]
    late = [answered for answered in statuses if answered.status == 429]
    assert late
    assert {answered.code for answered in late} == {"overloaded"}
    assert all(int(answered.headers["Retry-After"]) >= 1 for answered in late)
    assert (await world.ask("POST", "/v1/scheduling/resume", "admin")).status == 200


async def test_more_requests_at_once_than_there_are_places_are_refused(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def slow(*_: Any) -> dict[str, int]:
        await gate.wait()
        return {}

    routes = (*ROUTES, Route(method="GET", path="/v1/slow", role=Role.VIEWER, summary="", answer=dict, handler=slow))
    held: list[asyncio.Task[Answered]] = []
    async with api_world(tmp_path, routes=routes) as world:
        for role, places in (("viewer", IN_FLIGHT_OF_ONE), ("operator", MAX_IN_FLIGHT - IN_FLIGHT_OF_ONE)):
            # what one caller may have at once is not all there is: the other one finds the rest
            asked = [asyncio.create_task(world.ask("GET", "/v1/slow", role)) for _ in range(places + 3)]
            done: set[asyncio.Task[Answered]] = set()
            while len(done) < 3:
                more, _ = await asyncio.wait(set(asked) - done, return_when=asyncio.FIRST_COMPLETED)
                done |= more
            assert {task.result().code for task in done} == {"overloaded"}
            held += set(asked) - done
        gate.set()
        assert [(await task).status for task in held] == [200] * MAX_IN_FLIGHT


async def test_a_failure_of_ours_tells_nothing_but_its_code(tmp_path: Path) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("password=hunter2")

    routes = (*ROUTES, Route(method="GET", path="/v1/broken", role=Role.VIEWER, summary="", handler=broken))
    async with api_world(tmp_path, routes=routes) as world:
        answered = await world.ask("GET", "/v1/broken", "viewer")
        assert (answered.status, answered.code) == (500, "internal")
        assert "hunter2" not in answered.text
