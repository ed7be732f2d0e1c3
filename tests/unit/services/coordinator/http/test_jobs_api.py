"""Training jobs by the admin API: what the leading jobs service says, passed on; its policy, changed in stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from shared.election.record import LeaderRecord
from shared.errors import PeerUnknown
from shared.jobs.board import Board, JobRow, JobSpan
from shared.ports import Put
from tests.unit.services.coordinator.http.api_world import ApiWorld, api_world
from tests.unit.services.coordinator.test_shell import KEYS

BOARD = Board(
    leading=True, policy="elastic", now=100.0, since=10.0, nodes={"n0": 4},
    jobs=(JobRow(name="a", namespace="ns", phase="Running", workers=2, target=2, minimum=1, maximum=4, gpus=2.0),),
    spans=(JobSpan(job="ns/a", pod="a-worker-0", node="n0", gpus=1.0, began=20.0),),
)  # fmt: skip


async def jobs_service(world: ApiWorld, answer: bytes | Exception) -> list[tuple[Any, ...]]:
    """Somebody leads the jobs service and answers so; the calls that were made."""
    record = LeaderRecord(identity="j0", incarnation="i", url="http://j0", admin_url="http://reports")
    await world.store.txn([], [Put(KEYS.leader("jobs"), record.encode())])
    calls: list[tuple[Any, ...]] = []

    async def call(url: str, route: str, body: bytes, *, timeout_s: float, service: str) -> bytes:
        calls.append((url, route, body, service))
        if isinstance(answer, Exception):
            raise answer
        return answer

    world.desks["c0"].call = call
    return calls


async def test_jobs_are_shown_as_the_leading_jobs_service_says(tmp_path: Path) -> None:
    async with api_world(tmp_path) as world:
        calls = await jobs_service(world, msgspec.msgpack.encode(BOARD))
        shown = await world.ask("GET", "/v1/jobs", "viewer")
        assert shown.status == 200, shown.text
        assert (shown.json["leading"], shown.json["policy"], shown.json["nodes"]) == (True, "elastic", {"n0": 4})
        assert shown.json["jobs"][0]["name"] == "a"
        assert shown.json["spans"][0]["began"] == 20.0
        assert calls == [("http://j0", "/v1/board", b"", "jobs")]


async def test_without_a_jobs_service_the_answer_says_how_to_have_one(tmp_path: Path) -> None:
    async with api_world(tmp_path) as world:
        shown = await world.ask("GET", "/v1/jobs", "viewer")
        assert (shown.status, shown.json["leading"], shown.json["jobs"]) == (200, False, [])
        assert "conclave run jobs" in shown.json["problem"]


async def test_one_that_does_not_answer_is_named(tmp_path: Path) -> None:
    for answer in (PeerUnknown("no answer within 2 s"), b"\xc1"):
        async with api_world(tmp_path) as world:
            await jobs_service(world, answer)
            shown = await world.ask("GET", "/v1/jobs", "viewer")
            assert (shown.status, shown.json["leading"]) == (200, False)
            assert "http://j0 gave no answer" in shown.json["problem"]


async def test_a_policy_goes_from_shadow_to_the_canary_and_back(tmp_path: Path) -> None:
    async with api_world(tmp_path) as world:
        assert (await world.ask("GET", "/v1/jobs/policy", "viewer")).json["stage"] == "none"
        assert (await world.ask("PUT", "/v1/jobs/policy", "viewer", json={"name": "drf"})).status == 403
        unknown = await world.ask("PUT", "/v1/jobs/policy", "operator", json={"name": "best"})
        assert (unknown.status, unknown.code) == (422, "invalid_value")
        told = await world.ask("PUT", "/v1/jobs/policy", "operator", json={"name": "drf", "reason": "try"})
        assert told.status == 200, told.text
        assert (told.json["stage"], told.json["by"], told.json["reason"]) == ("shadow", "operator:operator-1", "try")
        early = await world.ask("POST", "/v1/jobs/policy/promote", "operator", json={})
        assert (early.status, early.code) == (409, "too_few_windows")
        assert "drf has 0 of 1 good windows in a row at this step" in early.json["message"]
        forced = await world.ask("POST", "/v1/jobs/policy/promote", "operator", json={"force": True, "percent": 20})
        assert (forced.json["stage"], forced.json["percent"]) == ("canary", 20)
        back = await world.ask("POST", "/v1/jobs/policy/back", "operator", json={})
        assert (back.json["stage"], back.json["candidate"], back.json["reason"]) == (
            "none",
            "drf",
            "taken back by hand",
        )
