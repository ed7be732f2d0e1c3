"""However a run ends, who left keeps the room; nobody is evicted whom the history does not name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import msgspec
import pytest

from shared.errors import ConfigError, KubeRejected
from shared.kube.objects import ObjectMeta
from shared.kube.pods.standing_pods import SourcedPod
from shared.kube.reservations import RESERVATIONS, ReservationObject
from shared.kube.resources import PODS, ObjectList, Upserted
from shared.rebalance.carrying import Carrying, CarryingPatience
from shared.rebalance.history import PastMove
from shared.rebalance.plan import Move
from shared.runtime.kube.moves.carry import CarryOut, reservation_spec
from shared.runtime.kube.moves.memory import CONFIG_MAPS, ConfigMapObject, remember, remembered
from tests.unit.shared.rebalance.worlds import owned

RAW = msgspec.convert(owned("p", "a").json, SourcedPod)
MOVE = Move("uid-p", "default", "p", "default/ReplicaSet:web", "a", "b", 1.0, 1)
PAST = PastMove("default/ReplicaSet:web", "a", "b", 1000.0)


class Server:
    """Keeps every room at once, and answers an eviction when ``answer`` is set; ``log``: what was written."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.answer, self.asked = asyncio.Event(), asyncio.Event()
        self.written = asyncio.Event()
        self.refusal: Exception | None = None
        self.rooms: asyncio.Queue[Any] = asyncio.Queue()
        self.config: ConfigMapObject | None = None
        self.before_patch: list[PastMove] = []
        self.pods: asyncio.Queue[Any] = asyncio.Queue()
        self.kept = asyncio.Event()
        self.priorities: list[int] = []

    async def list(self, resource: Any, **_: Any) -> ObjectList[Any]:
        return ObjectList((RAW,) if resource is PODS else (), "1")

    async def watch(self, resource: Any, *, resource_version: str) -> AsyncIterator[Any]:
        shown = self.rooms if resource is RESERVATIONS else self.pods
        while True:
            yield Upserted(await shown.get())

    async def create(self, resource: Any, *, namespace: str, body: dict[str, Any], **_: Any) -> None:
        self.log.append(f"create {resource.kind}")
        self.kept.set()
        if resource is CONFIG_MAPS:
            self.config = ConfigMapObject(ObjectMeta(name="x", resource_version="1"), body["data"])
            return
        self.priorities.append(body["spec"]["priority"])
        meta = ObjectMeta(name=body["metadata"]["name"], namespace=namespace, uid="room")
        self.rooms.put_nowait(ReservationObject(meta, body["spec"], {"phase": "Available", "node": "b"}))

    async def evict(self, **_: Any) -> None:
        self.log.append("evict")
        self.asked.set()
        await self.answer.wait()
        if self.refusal is not None:
            raise self.refusal

    async def delete(self, resource: Any, **_: Any) -> None:
        self.log.append("delete")

    async def get(self, resource: Any, **_: Any) -> Any:
        return self.config

    async def patch(self, resource: Any, *, patch: dict[str, Any], **_: Any) -> None:
        assert self.config is not None
        if self.before_patch:
            await remember(cast("Any", self), [self.before_patch.pop()], "other")
        if patch["metadata"]["resourceVersion"] != self.config.metadata.resource_version:
            raise KubeRejected("conflict", status=409)
        version = str(int(self.config.metadata.resource_version or "0") + 1)
        self.config = ConfigMapObject(ObjectMeta(name="x", resource_version=version), patch["data"])


def carry_out(server: Server, fails: Exception | None = None, **more: Any) -> CarryOut:
    carrying = Carrying([MOVE], {MOVE.uid: "ReplicaSet/web"}, {MOVE.uid})

    async def write(moves: Sequence[PastMove]) -> None:
        server.log.append(f"write {len(moves)}")
        server.written.set()
        if fails is not None:
            raise fails

    clock = asyncio.get_running_loop().time
    return CarryOut(cast("Any", server), carrying, {MOVE.uid: RAW}, clock, lambda _: None, write, "run", **more)


async def interrupted(server: Server) -> None:
    """Ctrl-C while the eviction is on its way; its answer comes after that."""
    run = asyncio.ensure_future(carry_out(server).run())
    async with asyncio.timeout(30.0):
        await server.asked.wait()
    run.cancel()
    asyncio.get_running_loop().call_later(0.05, server.answer.set)
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_interrupted_with_an_eviction_on_its_way_the_room_stays_and_it_was_written_before() -> None:
    server = Server()
    await interrupted(server)
    assert server.log == ["create Reservation", "write 1", "evict"]


async def test_interrupted_with_an_eviction_that_is_refused_the_room_is_given_back_and_the_move_taken_back() -> None:
    server = Server()
    server.refusal = KubeRejected("webhook says no", status=403)
    await interrupted(server)
    assert server.log == ["create Reservation", "write 1", "evict", "write 0", "delete"]


async def test_nobody_is_evicted_whose_move_cannot_be_written_down() -> None:
    server = Server()
    out = carry_out(server, fails=KubeRejected("forbidden", status=403))
    run = asyncio.ensure_future(out.run())
    async with asyncio.timeout(30.0):
        await server.written.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert "evict" not in server.log
    assert server.log[-1] == "delete"


async def test_what_others_write_meanwhile_stays_and_a_run_corrects_its_own() -> None:
    server = Server()
    api = cast("Any", server)
    await remember(api, [PAST], "mine")
    server.before_patch = [PAST]
    await remember(api, [msgspec.structs.replace(PAST, uid="uid-new")], "mine")
    found = (await remembered(api, 3600.0)).moves
    assert sorted((one.run, one.uid) for one in found) == [("mine", "uid-new"), ("other", "")]


async def test_the_cap_an_hour_counts_what_others_move_meanwhile() -> None:
    server = Server()
    api = cast("Any", server)
    await remember(api, [PAST], "other")
    with pytest.raises(ConfigError, match="perHour 1 is reached"):
        await remember(api, [PAST], "mine", 1)


def test_a_priority_that_no_reservation_may_have_is_brought_within() -> None:
    spec = msgspec.structs.replace(RAW.spec, priority=2_000_000_000)
    assert reservation_spec(msgspec.structs.replace(RAW, spec=spec), MOVE, 60)["priority"] == 10**9


async def test_who_may_not_lead_any_more_neither_reserves_nor_evicts() -> None:
    server = Server()
    async with asyncio.timeout(30.0):
        await carry_out(server, leads=lambda: False).run()
    assert server.log == []
    answers = iter((True, False))
    async with asyncio.timeout(30.0):
        await carry_out(server, leads=lambda: next(answers)).run()
    assert server.log == ["create Reservation", "write 1", "write 0", "delete"]


async def test_what_is_freed_for_a_unit_is_kept_for_it_before_anybody_moves_and_given_back_at_the_end() -> None:
    server = Server()
    server.answer.set()
    server.refusal = KubeRejected("no", status=403)
    async with asyncio.timeout(30.0):
        await carry_out(server, unit=[(RAW, "a")]).run()
    assert server.log[:2] == ["create Reservation"] * 2
    assert server.log.count("delete") == 2


@pytest.mark.parametrize("comes", [True, False])
async def test_what_was_made_for_a_unit_is_kept_until_it_stands_or_its_time_is_over(comes: bool) -> None:
    server = Server()
    waits = msgspec.convert(owned("u", "").json, SourcedPod)
    carrying = Carrying([], {}, set(), CarryingPatience(unit_s=30.0 if comes else 0.0))
    clock = asyncio.get_running_loop().time
    out = CarryOut(cast("Any", server), carrying, {}, clock, lambda _: None, nothing, "run", unit=[(waits, "a")])
    run = asyncio.ensure_future(out.run())
    async with asyncio.timeout(30.0):
        await server.kept.wait()
        if comes:
            assert server.log == ["create Reservation"]
            server.pods.put_nowait(msgspec.convert(owned("u", "a").json, SourcedPod))
        await run
    assert server.log == ["create Reservation", "delete"]
    assert server.priorities == [1], "it comes before pods of its priority that are older"
    assert list(out.homeless.values()) == ([] if comes else ["default/u"])


async def nothing(_: Sequence[PastMove]) -> None:
    """Writes nothing down."""
