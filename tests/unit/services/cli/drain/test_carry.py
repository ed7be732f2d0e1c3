"""However a drain ends, rooms that nobody needs are given back; nobody is asked for room on the node itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from services.cli.__main__ import run
from services.cli.drain.carry import LEAVER_LABEL, TIME_TO_LIVE_S, DrainOut
from services.cli.drain.evicting import give_back_old
from services.cli.drain.rooms import MOST_NAMES, REQUIRED, Going, RoomJudge, room_spec
from shared.errors import KubeRejected, KubeUnknown
from shared.kube.objects import ObjectMeta
from shared.kube.pods.standing_pods import SourcedPod
from shared.kube.reservations import RESERVATIONS, ReservationObject, reserve_pod_from_api
from shared.kube.resources import NODES, PODS, ObjectList, Upserted
from shared.rebalance.draining.draining import Draining, OwnerWants
from shared.rebalance.draining.leavers import DrainFlags, Leaver, departures
from shared.rebalance.trial import ClusterTrial
from tests.builders import NodeBuilder, PodBuilder, make_node
from tests.loop_clock import LoopClock
from tests.unit.shared.rebalance.worlds import owned, world

WHO = owned("p", "a")
RAW = msgspec.convert(WHO.json, SourcedPod)


def leaver(**more: Any) -> Leaver:
    return msgspec.structs.replace(departures([RAW], "a", DrainFlags(), ()).leavers[0], **more)


class Server:
    """Keeps every room at once, and answers an eviction when ``answer`` is set; ``log``: what was asked."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.answer, self.asked = asyncio.Event(), asyncio.Event()
        self.refusal: Exception | None = None
        self.rooms: asyncio.Queue[Any] = asyncio.Queue()
        self.renewed: list[dict[str, Any]] = []
        self.nodes: tuple[Any, ...] = ()

    async def list(self, resource: Any, **_: Any) -> ObjectList[Any]:
        return ObjectList((RAW,) if resource is PODS else self.nodes if resource is NODES else (), "1")

    async def watch(self, resource: Any, *, resource_version: str) -> AsyncIterator[Any]:
        while True:
            if resource is not RESERVATIONS:
                await asyncio.Event().wait()
            yield Upserted(await self.rooms.get())

    async def create(self, resource: Any, *, namespace: str, body: dict[str, Any], **_: Any) -> None:
        self.log.append("reserve")
        self.bodies.append(body)
        meta = ObjectMeta(name=body["metadata"]["name"], namespace=namespace, uid="room")
        self.rooms.put_nowait(ReservationObject(meta, body["spec"], {"phase": "Available", "node": "b"}))

    async def evict(self, **_: Any) -> None:
        self.log.append("evict")
        self.asked.set()
        await self.answer.wait()
        if self.refusal is not None:
            raise self.refusal

    async def patch(self, resource: Any, *, patch: dict[str, Any], **_: Any) -> None:
        self.renewed.append(patch)

    async def delete(self, resource: Any, **_: Any) -> None:
        self.log.append("give back")


def drain_out(server: Server, who: Leaver, judge: RoomJudge | None = None) -> tuple[DrainOut, Draining]:
    draining = Draining("a", [who], {who.uid})
    there = judge or RoomJudge(world([make_node("a")], [WHO]), "a")
    clock = asyncio.get_running_loop().time
    out = DrainOut(cast("Any", server), draining, {who.uid: RAW}, there, ("conclave",), clock, lambda _: None)
    return out, draining


async def interrupted(server: Server) -> Draining:
    """Ctrl-C while the eviction is on its way; its answer comes after that."""
    out, draining = drain_out(server, leaver())
    going = asyncio.ensure_future(out.run())
    async with asyncio.timeout(30.0):
        await server.asked.wait()
    going.cancel()
    asyncio.get_running_loop().call_soon(server.answer.set)
    with pytest.raises(asyncio.CancelledError):
        await going
    return draining


async def test_interrupted_with_an_eviction_on_its_way_its_room_stays() -> None:
    server = Server()
    draining = await interrupted(server)
    assert server.log == ["reserve", "evict"]
    assert draining.kept()


async def test_who_is_refused_stays_and_its_room_is_given_back() -> None:
    server = Server()
    server.refusal = KubeRejected("webhook says no", status=403)
    server.answer.set()
    out, draining = drain_out(server, leaver())
    await out.run()
    assert server.log == ["reserve", "evict", "give back"]
    assert "webhook says no" in draining.departures[0].why


async def test_a_room_goes_with_its_pods_owner_and_says_for_whom_it_is() -> None:
    server = Server()
    server.refusal = KubeRejected("no", status=403)
    server.answer.set()
    await drain_out(server, leaver())[0].run()
    meta = server.bodies[0]["metadata"]
    assert [(one["kind"], one["uid"]) for one in meta["ownerReferences"]] == [("ReplicaSet", "uid-web")]
    assert meta["labels"] == {LEAVER_LABEL: RAW.metadata.uid}


async def test_a_pod_whose_volumes_no_other_node_takes_has_no_room_whatever_a_reservation_would_say() -> None:
    server = Server()
    out, draining = drain_out(server, leaver(named=True))
    await out.run()
    assert server.log == []
    assert "volumes or claims" in draining.departures[0].why


def test_room_is_looked_for_off_the_node_also_for_who_tolerates_all() -> None:
    spec = room_spec(RAW, leaver(), "a", 60, names=(), ours=("conclave",))
    terms = spec["template"]["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]}]
    reserve = reserve_pod_from_api(ReservationObject(ObjectMeta(name="r", namespace="default", uid="u"), spec, {}))
    assert reserve.invalid == ""
    there = world([make_node("a"), make_node("b")], [])
    trial = ClusterTrial(there.state)
    assert trial.names_of(trial.rows_for(reserve)) == ["b"]


def test_pods_of_another_scheduler_are_judged_by_ours() -> None:
    theirs = msgspec.structs.replace(RAW, spec=msgspec.structs.replace(RAW.spec, scheduler_name="other"))
    assert "schedulerName" not in room_spec(theirs, leaver(), "a", 60, names=(), ours=("conclave",))["template"]["spec"]
    assert room_spec(RAW, leaver(), "a", 60, names=(), ours=("conclave",))["template"]["spec"]["schedulerName"]


def test_a_dry_run_finds_room_beside_who_goes_before() -> None:
    pods = [owned("p", "a", "2"), owned("q", "a", "2")]
    found = departures([msgspec.convert(one.json, SourcedPod) for one in pods], "a", DrainFlags(), ()).leavers
    nodes = [make_node("a").allocatable(cpu="4"), make_node("b").allocatable(cpu="3")]
    rooms = RoomJudge(world(nodes, pods), "a").in_turn(found)
    assert sorted(rooms.values()) == ["", "b"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a", "--force"), "--force: goes with --evict"),
        (("a", "--evict", "--reason", "disk"), "--reason: --evict asks the API server"),
    ],
)
def test_options_of_one_way_are_refused_on_the_other(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["drain", *arguments]) == 2
    assert said in capsys.readouterr().err


SPREAD = {
    "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}  # fmt: skip
APART = {REQUIRED: [{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}]}


def zoned(*zones: str) -> list[NodeBuilder]:
    """``a``, ``b``, ``c`` in these zones; ``a`` is cordoned, as one that is drained."""
    nodes = [make_node(name).label(zone=zone) for name, zone in zip("abc", zones, strict=False)]
    nodes[0].cordon()
    return nodes


def ruled(name: str, node: str, *, apart: bool = False, **more: Any) -> PodBuilder:
    found = owned(name, node, **more)
    if apart:
        found.json["spec"]["affinity"] = {"podAntiAffinity": APART}
    else:
        found.json["spec"]["topologySpreadConstraints"] = [SPREAD]
    return found


def leaving(pods: list[PodBuilder]) -> tuple[list[SourcedPod], tuple[Leaver, ...]]:
    raws = [msgspec.convert(one.json, SourcedPod) for one in pods]
    return raws, departures(raws, "a", DrainFlags(), ()).leavers


def test_who_leaves_does_not_count_where_rules_of_spread_are_judged() -> None:
    pods = [ruled(name, name) for name in "abc"]
    [who] = leaving(pods)[1]
    judge = RoomJudge(world(zoned("a", "b", "c"), pods), "a")
    assert judge.nodes_for(who) == []  # a is empty then, and counts: each other would have two
    assert judge.in_turn([who]) == {who.uid: ""}
    judge = RoomJudge(world(zoned("z", "z", "y"), pods), "a")
    assert judge.nodes_for(who) == ["b", "c"]  # each zone has one without it


def test_what_keeps_pods_apart_does_not_keep_a_pod_from_its_own_zone() -> None:
    pods = [ruled("p", "a", apart=True), ruled("q", "c", apart=True)]
    raws, [who] = leaving(pods)
    there = world(zoned("z", "z", "y"), pods)
    judge = RoomJudge(there, "a")
    assert judge.in_turn([who]) == {who.uid: "b"}
    spec = room_spec(raws[0], who, "a", 60, names=judge.nodes_for(who), ours=("conclave",))
    reserve = reserve_pod_from_api(ReservationObject(ObjectMeta(name="r", namespace="default", uid="u"), spec, {}))
    trial = ClusterTrial(there.state)
    assert trial.names_of(trial.rows_for(reserve)) == ["b"]  # so the mesh judges, while the pod stands


def test_room_is_judged_again_with_who_leaves_before_and_with_what_came_since() -> None:
    pods = [ruled("p", "a", apart=True), ruled("q", "a", owner="other", apart=True)]
    pods[1].json["metadata"]["labels"] = {"app": "web"}
    _, (p, q) = leaving(pods)
    judge = RoomJudge(world(zoned("a", "b", "c"), pods), "a")
    assert set(judge.in_turn([p, q]).values()) == {"b", "c"}
    assert judge.fits(p, "b", "")
    assert not judge.fits(q, "b", "", (), [Going(p.uid, "b")])
    new = ruled("new", "b", apart=True)
    judge.see_pod(msgspec.convert(new.json, SourcedPod), gone=False)
    assert not judge.fits(p, "b", "")
    judge.only(PODS, {p.uid, q.uid}, set())
    assert judge.fits(p, "b", "")


async def test_nobody_is_evicted_whose_room_does_not_do_any_more() -> None:
    server = Server()
    nodes = [make_node("a"), make_node("b").taint("down", "NoExecute")]
    server.nodes = tuple(one.api() for one in nodes)
    out, draining = drain_out(server, leaver(), RoomJudge(world(nodes, [WHO]), "a"))
    async with asyncio.timeout(30.0):
        await out.run()
    assert "evict" not in server.log
    assert server.log.count("give back") == server.log.count("reserve") == draining.patience.tries


def test_no_reservation_names_more_nodes_than_it_may() -> None:
    nodes = [make_node("a"), *(make_node(f"n{number}").allocatable(cpu="9") for number in range(MOST_NAMES + 2))]
    busy = owned("busy", "n7", "5")
    judge = RoomJudge(world(nodes, [WHO, busy]), "a")
    names = judge.nodes_for(leaver())
    assert len(names) == MOST_NAMES
    assert "n7" not in names


async def test_why_asking_for_room_had_no_answer_is_kept() -> None:
    class Failing(Server):
        async def create(self, *_: Any, **__: Any) -> None:
            raise KubeUnknown("webhook: 500")

    out, draining = drain_out(Failing(), leaver())
    draining.start(0.0)
    await out._seek(leaver(), draining.departures[0].step, ("default", "r"))
    draining.tell(out._events.get_nowait(), 0.0)
    draining.tick(draining.patience.seek_s)
    assert "webhook: 500" in draining.departures[0].why


async def test_a_second_run_gives_back_what_one_that_was_killed_kept_for_who_still_stands() -> None:
    given: list[str] = []
    made = {"there": RAW.metadata.uid, "left": "uid-of-one-that-left", "other": ""}
    objects = [
        ReservationObject(
            ObjectMeta(name=name, namespace="default", uid=name, labels={LEAVER_LABEL: uid} if uid else {}), {}, {}
        )
        for name, uid in made.items()
    ]  # fmt: skip

    class Api:
        async def list(self, resource: Any, **_: Any) -> ObjectList[Any]:
            return ObjectList(tuple(objects), "1")

        async def delete(self, resource: Any, *, namespace: str, name: str, uid: str = "", **_: Any) -> None:
            given.append(f"{namespace}/{name}/{uid}")

    await give_back_old(cast("Any", Api()), {RAW.metadata.uid})
    assert given == ["default/there/there"]  # the room of who left is for its replacement


async def test_while_it_waits_its_rooms_are_renewed() -> None:
    server, clock = Server(), LoopClock()
    out, _ = drain_out(server, leaver())
    going = asyncio.ensure_future(out.run())
    async with asyncio.timeout(30.0):
        await server.asked.wait()
    assert server.renewed == []
    server.answer.set()  # it leaves, and its replacement takes its time
    await clock.forward(TIME_TO_LIVE_S / 3)
    [patch] = server.renewed
    assert patch["spec"]["ttlSeconds"] >= TIME_TO_LIVE_S * 4 / 3
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going


def workload(uid: str = "uid-web", replicas: int | None = None, **status: Any) -> dict[str, Any]:
    spec = {} if replicas is None else {"replicas": replicas}
    return {"metadata": {"uid": uid}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("found", "more"),
    [
        (workload(replicas=3, readyReplicas=2), True),
        (workload(replicas=2, readyReplicas=2), False),  # scaled away during the move
        (workload(replicas=0), False),
        (workload("another", replicas=3), False),  # deleted, and made again under its name
        (workload(completionTime="2026-01-01T00:00:00Z"), False),
        (workload(active=1), True),
        (KubeRejected("gone", status=404), False),
        (KubeRejected("forbidden", status=403), True),
        ([], True),  # nothing that anybody can read
        ({"metadata": {"uid": "uid-web"}, "status": []}, True),
    ],
)
async def test_an_owner_is_asked_whether_it_wants_another_pod(found: Any, more: bool) -> None:
    class Asked(Server):
        async def read(self, _route: str, path: str, **_: Any) -> bytes:
            self.log.append(path)
            if isinstance(found, Exception):
                raise found
            return msgspec.json.encode(found)

    server = Asked()
    out, draining = drain_out(server, leaver())
    await out._ask_owner(leaver())
    assert server.log == ["/apis/apps/v1/namespaces/default/replicasets/web"]
    assert out._events.get_nowait() == OwnerWants(draining.leavers[0].uid, more)


async def test_of_a_kind_whose_path_is_a_guess_nobody_believes_that_it_is_gone() -> None:
    class Asked(Server):
        async def read(self, *_: Any, **__: Any) -> bytes:
            raise KubeRejected("no such path", status=404)

    out, _ = drain_out(Asked(), leaver())
    await out._ask_owner(leaver(owner=("x.io/v1", "Proxy", "p", "uid-p")))
    event = out._events.get_nowait()
    assert isinstance(event, OwnerWants)
    assert event.more
