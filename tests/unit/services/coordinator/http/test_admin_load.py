"""What many readers cost the leader: answers are made once, changes are seen at once, reads yield when it is late."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from services.coordinator.http import opening
from shared.runtime.http import admin, caching
from shared.runtime.http.caching import MOST_BYTES, MOST_KEPT, SETTLING_S, CachedAnswers
from shared.runtime.http.callers import Role
from shared.runtime.http.limits import INTERVAL_S, READS_WHILE_LATE, TARGET_S, Buckets, Lag, LoopLag, Rate
from shared.runtime.http.routes import Because, Route, RouteAnswer
from tests.loop_clock import LoopClock
from tests.patience import PATIENCE_S
from tests.unit.services.coordinator.http.api_world import api_world


class Count(RouteAnswer, frozen=True, kw_only=True):
    number: int


class Counting:
    """Routes over one number: how often it was read, and a change of it."""

    def __init__(self) -> None:
        self.number = 0
        self.made = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def read(self, *_: Any) -> Count:
        self.made += 1
        number = self.number
        self.asked.set()
        await self.gate.wait()
        return Count(number=number)

    async def change(self, *_: Any) -> Count:
        self.number += 1
        return Count(number=self.number)

    def routes(self) -> tuple[Route, ...]:
        shared: dict[str, Any] = {"role": Role.VIEWER, "summary": "-", "answer": Count}
        return (
            Route(method="GET", path="/v1/kept", handler=self.read, fresh_s=60.0, **shared),
            Route(method="GET", path="/v1/soon", handler=self.read, fresh_s=1e-9, **shared),
            Route(method="GET", path="/v1/made", handler=self.read, fresh_s=0.0, **shared),
            Route(method="POST", path="/v1/change", handler=self.change, body=Because, **shared),
        )


async def test_an_answer_is_made_once_and_given_to_every_caller_who_may_read(tmp_path: Path) -> None:
    counting = Counting()
    async with api_world(tmp_path, routes=counting.routes()) as world:
        answered = [await world.ask("GET", "/v1/kept", role) for role in ("viewer", "admin", "viewer")]
        assert [answer.json for answer in answered] == [{"number": 0}] * 3
        assert counting.made == 1
        assert len({answer.headers["X-Request-Id"] for answer in answered}) == 3
        assert (await world.ask("GET", "/v1/kept", None)).status == 401
        assert (await world.ask("GET", "/v1/kept?colour=red")).code == "invalid_request"
        for _ in range(2):
            await world.ask("GET", "/v1/made")
        assert counting.made == 3


async def test_requests_for_the_same_share_one_computation(tmp_path: Path) -> None:
    counting = Counting()
    async with api_world(tmp_path, routes=counting.routes()) as world:
        counting.gate.clear()
        async with asyncio.TaskGroup() as group:
            asks = [group.create_task(world.ask("GET", "/v1/kept")) for _ in range(8)]
            await counting.asked.wait()
            counting.gate.set()
        assert {ask.result().json["number"] for ask in asks} == {0}
        assert counting.made == 1


async def test_a_change_is_seen_by_the_next_read_also_while_an_older_one_is_under_way(tmp_path: Path) -> None:
    counting = Counting()
    async with api_world(tmp_path, routes=counting.routes()) as world:
        assert (await world.ask("GET", "/v1/kept")).json == {"number": 0}
        assert (await world.ask("POST", "/v1/change", at="c1")).json == {"number": 1}
        assert (await world.ask("GET", "/v1/kept")).json == {"number": 1}
        counting.gate.clear()
        counting.asked.clear()
        old = asyncio.create_task(world.ask("GET", "/v1/kept"))
        await counting.asked.wait()
        await world.ask("POST", "/v1/change")
        counting.gate.set()
        assert (await world.ask("GET", "/v1/kept")).json == {"number": 2}
        assert (await old).json == {"number": 1}
        assert (await world.ask("GET", "/v1/kept")).json == {"number": 2}


async def test_without_forgetting_a_change_would_not_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ablation of the test above."""
    monkeypatch.setattr(caching.CachedAnswers, "forget", lambda *_: None)
    counting = Counting()
    async with api_world(tmp_path, routes=counting.routes()) as world:
        await world.ask("GET", "/v1/kept")
        await world.ask("POST", "/v1/change")
        assert (await world.ask("GET", "/v1/kept")).json == {"number": 0}


async def test_a_drain_and_a_pause_show_in_every_read_that_follows(tmp_path: Path) -> None:
    async with api_world(tmp_path) as world:
        for change, drained in (("drain", True), ("resume", False), ("drain", True)):
            await world.ask("POST", f"/v1/nodes/n1/{change}", at="c1")
            node, nodes, flags, overview = [
                (await world.ask("GET", path, at=at)).json
                for path, at in (
                    ("/v1/nodes/n1", "c0"),
                    ("/v1/nodes", "c1"),
                    ("/v1/nodes/map", "c0"),
                    ("/v1/overview", "c0"),
                )
            ]
            shown = {item["name"]: item["drained"] is not None for item in nodes["items"]}
            assert (node["drained"] is not None, shown["n1"], flags["flags"][1] & 1 == 1) == (drained,) * 3
            assert overview["nodes"]["drained"] == drained
        for change, paused in (("pause", True), ("resume", False)):
            await world.ask("POST", f"/v1/scheduling/{change}")
            assert (await world.ask("GET", "/v1/scheduling", at="c1")).json["paused"] is paused
            assert (await world.ask("GET", "/v1/overview")).json["scheduling"]["paused"] is paused


async def test_a_leader_that_still_lists_takes_a_pause_all_the_same(tmp_path: Path) -> None:
    async with api_world(tmp_path) as world:
        assert world.admin.core is not None
        world.admin.core.takeover._missing.add("pods")  # else its next turn finds everything listed
        world.admin.core.state.started = False
        assert (await world.ask("GET", "/v1/nodes")).code == "not_ready"
        assert (await world.ask("POST", "/v1/scheduling/pause")).json["paused"]
        assert (await world.ask("GET", "/v1/scheduling")).json["paused"]


async def bytes_of(text: bytes) -> bytes:
    return text


def told(kept: caching.CachedAnswer | None) -> bytes | None:
    return kept.answer if kept is not None else None


async def test_what_is_kept_is_bounded_in_number_size_age_and_term() -> None:
    answers = CachedAnswers()
    for number in range(MOST_KEPT + 1):
        await answers.made(str(number), 0.0, term=1, make=lambda: bytes_of(b"x"))
    assert answers.fresh("0", 0.0, fresh_s=1.0, term=1) is None
    assert told(answers.fresh("1", 0.9, fresh_s=1.0, term=1)) == b"x"
    assert answers.fresh("1", 1.0, fresh_s=1.0, term=1) is None
    assert answers.fresh("1", 0.0, fresh_s=1.0, term=2) is None
    await answers.made("large", 0.0, term=1, make=lambda: bytes_of(b"x" * (MOST_BYTES + 1)))
    assert answers.fresh("large", 0.0, fresh_s=1.0, term=1) is None


async def test_nothing_is_kept_until_the_leader_has_heard_of_a_change() -> None:
    answers = CachedAnswers()
    answers.forget(10.0)
    await answers.made("a", 10.5, term=1, make=lambda: bytes_of(b"old"))
    assert answers.fresh("a", 10.5, fresh_s=9.0, term=1) is None
    await answers.made("a", 10.0 + SETTLING_S, term=1, make=lambda: bytes_of(b"new"))
    assert told(answers.fresh("a", 11.5, fresh_s=9.0, term=1)) == b"new"


async def test_an_error_is_told_to_all_who_wait_and_not_kept() -> None:
    answers, gate, made = CachedAnswers(), asyncio.Event(), []

    async def make() -> bytes:
        made.append(1)
        await gate.wait()
        raise TimeoutError

    asks = [asyncio.create_task(answers.made("a", 0.0, term=1, make=make)) for _ in range(3)]
    await asyncio.sleep(0)
    gate.set()
    told = await asyncio.gather(*asks, return_exceptions=True)
    assert [type(error) for error in told] == [TimeoutError] * 3
    assert len(made) == 1
    assert await answers.made("a", 0.0, term=1, make=lambda: bytes_of(b"x")) == b"x"


async def test_who_waited_for_a_caller_that_went_makes_the_answer_itself() -> None:
    answers, never = CachedAnswers(), asyncio.Event()

    async def hang() -> bytes:
        await never.wait()
        return b""

    first = asyncio.create_task(answers.made("a", 0.0, term=1, make=hang))
    await asyncio.sleep(0)
    second = asyncio.create_task(answers.made("a", 0.0, term=1, make=lambda: bytes_of(b"x")))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == b"x"
    assert not answers.coming("a")


def test_only_lateness_that_lasts_counts() -> None:
    lag = Lag()
    lag.ran(due=0.0, now=5.0)
    assert lag.lasts(5.0)
    lag.ran(due=5.0, now=5.0 + TARGET_S / 2)
    assert not lag.lasts(9.0)
    lag.ran(due=9.0, now=9.0 + 2 * TARGET_S)
    assert not lag.lasts(9.0 + INTERVAL_S - 0.01)
    lag.ran(due=9.6, now=9.6 + 2 * TARGET_S)
    assert lag.lasts(9.0 + INTERVAL_S)


async def test_a_late_leader_gives_the_last_copies_with_their_age_and_takes_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting()
    async with api_world(tmp_path, routes=counting.routes()) as world:
        await world.ask("GET", "/v1/soon")
        counting.number = 7
        assert (await world.ask("GET", "/v1/soon")).json == {"number": 7}  # in time it is made anew
        monkeypatch.setattr(LoopLag, "asked", lambda _: True)
        counting.number = 8
        for at in ("c0", "c1"):
            answered = await world.ask("GET", "/v1/soon", at=at)
            assert (answered.status, answered.json, answered.headers["Age"]) == (200, {"number": 7}, "0")
        assert (await world.ask("GET", "/v1/kept")).json == {"number": 8}  # of what has no copy one is made
        assert (await world.ask("POST", "/v1/change")).json == {"number": 9}
        assert (await world.ask("GET", "/v1/soon")).json == {"number": 9}
        assert (await world.ask("GET", "/v1/soon?colour=red")).code == "invalid_request"


async def test_a_late_leader_makes_new_answers_for_a_bounded_share_of_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting()
    monkeypatch.setattr(admin, "READS_WHILE_LATE", Rate(per_s=1e-3, burst=1))
    monkeypatch.setattr(admin, "LATE_FRESH_S", 0.0)
    async with api_world(tmp_path, routes=counting.routes()) as world:
        monkeypatch.setattr(LoopLag, "asked", lambda _: True)
        assert (await world.ask("GET", "/v1/soon")).json == {"number": 0}
        counting.number = 1
        assert (await world.ask("GET", "/v1/soon", "admin")).json == {"number": 0}  # old, and better than nothing
        for path in ("/v1/kept", "/v1/made"):
            for at in ("c0", "c1"):
                answered = await world.ask("GET", path, at=at)
                assert (answered.status, answered.code) == (429, "overloaded")
                assert int(answered.headers["Retry-After"]) >= 1
        assert (await world.ask("POST", "/v1/change")).json == {"number": 2}
        assert counting.made == 1


def test_what_is_read_while_the_leader_is_late_takes_a_tenth_of_its_loop() -> None:
    from services.coordinator.http.table import ROUTES

    bucket, now, spent_ms = Buckets(READS_WHILE_LATE), 0.0, 0
    bucket.take("", now, READS_WHILE_LATE.burst)
    while now < 60.0:
        for route in ROUTES:
            if not route.writes and not bucket.take("", now, route.cost):
                spent_ms += route.cost
        now += 0.1
    assert spent_ms <= 0.1 * 60_000
    assert all(route.cost <= READS_WHILE_LATE.burst for route in ROUTES if not route.writes)


async def test_who_connects_to_the_admin_api_and_does_not_ask_is_cut_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "listen", partial(opening.listen, head_timeout_s=10.0))
    async with api_world(tmp_path, routes=Counting().routes()) as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(world.listeners["c0"].url).port)
        writer.write(b"GET /v1/kept HTTP/1.1\r\nHost:")
        await LoopClock().forward(11.0)
        with suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE_S):
                assert await reader.read() == b""
        writer.transport.abort()
        assert world.metrics.registry.get_sample_value("conclave_http_late_heads_total", {"listener": "admin"}) == 1
        assert (await world.ask("GET", "/v1/kept")).status == 200


async def test_the_timer_of_the_lag_runs_while_somebody_asks_and_can_be_stopped() -> None:
    late = LoopLag()
    assert not late.asked()
    late.lag.ran(due=-10.0, now=asyncio.get_running_loop().time())
    assert late.asked()
    late.stop()
    assert not late.asked()
    late.stop()


def test_only_reads_of_what_does_not_depend_on_the_caller_are_kept() -> None:
    from services.coordinator.http.table import ROUTES

    assert [route.path for route in ROUTES if not route.writes and not route.fresh_s] == ["/v1/snapshot", "/v1/whoami"]
