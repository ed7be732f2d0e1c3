"""Units and queues over REST: lists with filters and pages, one of each, and what a job would meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shared.model.units.pod_group import GroupSource, group_key
from shared.model.units.queue import QUEUE_LABEL, Queue
from tests.builders import make_pod
from tests.unit.services.coordinator.http.api_world import GROUP, ApiWorld, api_world


@pytest.fixture
async def world(tmp_path: Path) -> Any:
    async with api_world(tmp_path) as world:
        core = world.admin.core
        assert core is not None
        for number in range(4):
            key = group_key(GroupSource.NATIVE, "batch", f"g{number}")
            core.state.cluster.pod_groups[key] = replace(
                GROUP, key=key, namespace="batch", name=f"g{number}", labels={"tier": "a" if number % 2 else "b"}
            )
        core.state.queues.put_queue(Queue("vision", parent="research", namespaces=("default",)))
        yield world


async def names(world: ApiWorld, query: str = "") -> list[str]:
    found = (await world.ask("GET", f"/v1/units{query}", "viewer")).json
    return [f"{one['namespace']}/{one['name']}" for one in found["items"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["batch/g0", "batch/g1", "batch/g2", "batch/g3", "default/train"]),
        ("?namespace=default", ["default/train"]),
        ("?phase=waiting&namespace=batch", ["batch/g0", "batch/g1", "batch/g2", "batch/g3"]),
        ("?phase=running", []),
        ("?queue=vision", ["default/train"]),
        ("?source=pod", []),
        ("?source=job", []),
        ("?place=gated", []),
        ("?selector=tier%3Da", ["batch/g1", "batch/g3"]),
    ],
)
async def test_units_are_listed_by_what_they_are_and_do(world: ApiWorld, query: str, found: list[str]) -> None:
    assert await names(world, query) == found


async def test_units_come_in_pages(world: ApiWorld) -> None:
    first = (await world.ask("GET", "/v1/units?limit=2", "viewer")).json
    rest = (await world.ask("GET", f"/v1/units?limit=9&continue={first['continue']}", "viewer")).json
    assert [one["name"] for one in first["items"] + rest["items"]] == ["g0", "g1", "g2", "g3", "train"]
    assert (bool(first["continue"]), rest["continue"]) == (True, "")


async def test_a_lone_pod_on_its_way_is_a_unit(world: ApiWorld) -> None:
    core = world.admin.core
    assert core is not None
    held = make_pod("held").set(labels={"app": "web"}).pod()
    core.takeover.held[held.uid] = held
    found = (await world.ask("GET", "/v1/units?source=pod&selector=app", "viewer")).json["items"]
    assert [(one["key"], one["state"], one["phase"], one["queue"]) for one in found] == [
        (held.uid, "intent", "placing", "vision")
    ]
    assert found[0]["pods"][0]["name"] == "held"
    assert await names(world, "?source=pod&selector=!app") == []


async def test_one_unit_tells_why_it_waits(world: ApiWorld) -> None:
    found = (await world.ask("GET", "/v1/units/default/train", "viewer")).json
    assert (found["phase"], found["reason"], found["missing"], found["queue"]) == ("waiting", "Incomplete", 2, "vision")
    refused = await world.ask("GET", "/v1/units/default/none", "viewer")
    assert (refused.status, refused.code) == (404, "unit_unknown")


async def test_queues_are_told_as_a_tree_in_pages(world: ApiWorld) -> None:
    found = (await world.ask("GET", "/v1/queues", "viewer")).json
    assert [(one["name"], one["depth"]) for one in found["items"]] == [("research", 0), ("vision", 1)]
    assert found["unqueued_units"] == 0
    first = (await world.ask("GET", "/v1/queues?limit=1", "viewer")).json
    rest = (await world.ask("GET", f"/v1/queues?continue={first['continue']}", "viewer")).json
    assert [one["name"] for one in first["items"] + rest["items"]] == ["research", "vision"]


async def test_one_queue_is_told_whole_or_is_unknown(world: ApiWorld) -> None:
    found = (await world.ask("GET", "/v1/queues/research", "viewer")).json
    assert found["resources"][0] | {"share": None} == {
        "name": "cpu_millis", "used": 0, "guaranteed": 4000, "maximum": None, "borrowed": 0, "share": None,
    }  # fmt: skip
    assert (found["children"], found["units"]) == (["vision"], [])
    for path in ("/v1/queues/none", "/v1/queues/none/simulate"):
        refused = await world.ask("GET", path, "viewer")
        assert (refused.status, refused.code) == (404, "queue_unknown")


async def test_a_simulation_is_asked_without_a_change(world: ApiWorld) -> None:
    core = world.admin.core
    assert core is not None
    core.state.queues.set_capacity({"cpu": 12_000, "pods": 100})
    path = "/v1/queues/vision/simulate?members=4&minCount=2&requests=cpu%3D1&priority=5"
    found = (await world.ask("GET", path, "viewer")).json
    assert (found["queue"], found["starts_in_s"], found["min_count"], found["displaced"]) == ("vision", 0.0, 2, [])
    assert found["fits"] == 4
    for wrong in ("members=2&minCount=3", "requests=cpu", "requests=cpu%3Dmuch"):
        refused = await world.ask("GET", f"/v1/queues/vision/simulate?{wrong}", "viewer")
        assert (refused.status, refused.code) == (422, "invalid_value"), wrong


async def test_a_simulation_without_a_name_is_of_the_namespaces_queue(world: ApiWorld) -> None:
    core = world.admin.core
    assert core is not None
    core.state.queues.put_queue(Queue("lab", namespaces=("lab",)))
    found = (await world.ask("GET", "/v1/queues/-/simulate?namespace=lab", "viewer")).json
    assert found["queue"] == "lab"
    refused = await world.ask("GET", "/v1/queues/-/simulate?namespace=elsewhere", "viewer")
    assert (refused.status, refused.code) == (404, "queue_unknown")
    assert "no Queue has elsewhere among its namespaces" in str(refused.json)


async def test_the_overview_counts_units_and_queues(world: ApiWorld) -> None:
    found = (await world.ask("GET", "/v1/overview", "viewer")).json
    assert found["units"] == {"waiting": 5, "placing": 0, "running": 0, "broken": 0, "ended": 0}
    assert found["queues"] == {"total": 2, "waiting_units": 0, "blocked_units": 0, "problems": 1}


async def test_a_pod_that_names_a_queue_that_is_not_there_shows_it(world: ApiWorld) -> None:
    core = world.admin.core
    assert core is not None
    held = make_pod("lost").set(labels={QUEUE_LABEL: "nowhere"}).pod()
    core.takeover.held[held.uid] = held
    found = (await world.ask("GET", "/v1/units?source=pod", "viewer")).json["items"]
    assert [one["queue"] for one in found] == ["nowhere"]
