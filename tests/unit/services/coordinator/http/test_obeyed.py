"""A change is answered when the leader goes by it, and says so where it does not yet; drained nodes that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.coordinator.core.core import Core
from services.coordinator.core.events import Event
from services.coordinator.http import desk
from shared.runtime.records.control import read_control, set_drained
from tests.unit.services.coordinator.http.api_world import ApiWorld, api_world
from tests.unit.services.coordinator.test_shell import KEYS

CHANGES = [
    ("POST", "/v1/scheduling/pause", {}),
    ("POST", "/v1/nodes/n1/drain", {}),
    ("PATCH", "/v1/settings", {"values": {"batch_units": 7}}),
]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ApiWorld]:
    async with api_world(tmp_path) as world:
        yield world


class SlowWatch:
    """What the leader's core would be told, held back until ``go``."""

    def __init__(self, world: ApiWorld) -> None:
        self.following = following = world.parts.following
        self.held: list[Event] = []
        self.came = asyncio.Event()
        self._post = following._post
        following._post = self._hold

    def _hold(self, event: Event) -> None:
        self.held.append(event)
        self.came.set()

    def go(self) -> None:
        self.following._post = self._post
        self.following._tell()


def goes_by_it(core: Core, path: str) -> bool:
    state = core.state
    return {"pause": state.paused is not None, "drain": "n1" in state.drained}.get(
        path.rsplit("/", 1)[-1], state.settings.batch_units == 7
    )


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
async def test_a_change_is_answered_only_when_the_leader_goes_by_it(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: dict[str, object]
) -> None:
    monkeypatch.setattr(desk, "OBEYED_S", 30.0)
    core, slow = world.admin.core, SlowWatch(world)
    assert core is not None
    asked = asyncio.create_task(world.ask(method, path, json=body))
    await slow.came.wait()
    await asyncio.wait([asked], timeout=0.05)
    assert not asked.done()
    assert not goes_by_it(core, path)
    slow.go()
    answered = await asked
    assert (answered.status, answered.json["obeyed"]) == (200, True)
    assert goes_by_it(core, path)


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
async def test_a_leader_that_does_not_hear_of_a_change_in_time_is_told_of(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: dict[str, object]
) -> None:
    """The ablation too: without the wait the answer comes before the leader goes by the change."""
    monkeypatch.setattr(desk, "OBEYED_S", 0.0)
    core, _ = world.admin.core, SlowWatch(world)
    assert core is not None
    answered = await world.ask(method, path, json=body)
    assert (answered.status, answered.json["obeyed"]) == (200, False)
    assert not goes_by_it(core, path)


async def test_a_node_that_went_while_drained_is_listed_and_can_be_forgotten(world: ApiWorld) -> None:
    for name in ("left", "n1"):
        await set_drained(world.store, KEYS, name, True, by="anna", reason="disk", now=world.desks["c0"].wall())
    core = world.admin.core
    assert core is not None
    await world.until(lambda: len(core.state.drained) == 2)
    gone = (await world.ask("GET", "/v1/nodes?gone=true", "viewer")).json["items"]
    assert [(node["name"], node["drained"]["by"], node["schedulable"]) for node in gone] == [("left", "anna", False)]
    forgotten = (await world.ask("POST", "/v1/nodes/left/resume", "operator")).json
    assert (forgotten["obeyed"], forgotten["gone"], forgotten["schedulable"]) == (True, True, False)
    assert (await world.ask("GET", "/v1/nodes?gone=true", "viewer")).json["items"] == []
    assert set((await read_control(world.store, KEYS)).drained) == {"n1"}
    assert (await world.ask("POST", "/v1/nodes/n1/resume", "operator")).json["gone"] is False
