"""Room that is kept for pods which it cannot hold: they are not tried for ever, and cost little each time."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from services.binder.core.core import BinderCore
from services.binder.core.state import BinderCoreSettings, BinderState
from services.binder.core.takeover import BinderTakeover
from services.coordinator.core.core import Core
from services.coordinator.core.events import AgentsChanged, ControlSeen, Event, IntentsListed
from services.coordinator.core.instructions import SetTimer
from services.coordinator.core.state import CoreSettings
from services.coordinator.io.reservation_writes import REFUSED_S
from services.coordinator.reservations.keeper import (
    FOREIGN_S,
    EndReservation,
    MarkNode,
    ReservationKeeper,
    ReservationWork,
    TellReservation,
)
from services.coordinator.reservations.leaving import MOST_AT_A_TIME, LeftRoom
from shared.kube.reservations import ReservationObject, reserve_pod_from_api, seconds_since_1970
from shared.kube.scheduling_kinds import RESERVATION_KIND
from shared.model.cluster_events import Listed, NodeUpserted, PodUpserted
from shared.model.pod import Pod
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import make_node, make_pod
from tests.fake_kube import at_once
from tests.sim.reservations import MADE, of_deployment, reserve, shown
from tests.sim.test_mesh_reservations import Told
from tests.unit.services.binder.binder_world import KEYS


class _Lifts:
    """How often kept room was lifted to see whether a pod may have it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, take_room = 0, ClusterState.take_room

        def counting(cluster: ClusterState, reservation: str, pod: Pod, devices: tuple[int, ...] = ()) -> object:
            self.count += 1
            return take_room(cluster, reservation, pod, devices)

        patch.setattr(ClusterState, "take_room", counting)


def test_who_does_not_fit_into_kept_room_is_not_woken_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(nodes=1)
    reserve(told.kube, "launch", "web", cpu="2")
    told.settle()
    told.pod("filler", cpu="2")
    told.settle(2)
    lifts = _Lifts(monkeypatch)
    for number in range(3):
        told.pod(f"web-{number}", "web", cpu="3")
    told.settle()
    state = told.world.coordinator.core.state
    clock, woken = state.cluster.table.clock, state.stats.woken
    told.settle(20)
    assert (lifts.count, state.cluster.table.clock, state.stats.woken) == (0, clock, woken)


def test_a_refusal_costs_few_judgements_at_a_time_and_none_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(nodes=6, cpu="2")
    for number in range(6):
        reserve(told.kube, f"launch-{number}", "web", nodes={"names": [f"n{number}"]})
    told.settle()
    for number in range(6):
        told.kube.nodes[f"n{number}"]["spec"]["taints"] = [{"key": "closed", "effect": "NoSchedule"}]
        told.kube.change_node(f"n{number}")
    told.settle(1)
    lifts = _Lifts(monkeypatch)
    told.pod("web-1", "web")
    told.pod("web-2", "web")
    told.settle(0.5)
    assert lifts.count <= 8
    told.settle(20)
    assert lifts.count == 6  # each for the class once
    told.kube.nodes["n5"]["spec"]["taints"] = []
    told.kube.change_node("n5")
    told.settle(15)
    assert "n5" in (told.node_of("web-1"), told.node_of("web-2"))


def test_a_write_that_is_refused_holds_up_no_other() -> None:
    told = Told(nodes=1)
    for number in range(3):
        reserve(told.kube, f"r{number}", "web", cpu="1", ttlSeconds=60)
    told.settle()
    writes, keeper = told.world.reservations, ReservationKeeper(told.world.coordinator.core.state)
    due = [work for work in keeper.due(4e9) if isinstance(work, EndReservation)]
    tried: list[str] = []
    write = writes.write

    async def guarded(work: ReservationWork, *, told: bool = False) -> bool:
        assert isinstance(work, EndReservation)
        tried.append(work.pod.name)
        return work.pod.name != due[0].pod.name and await write(work, told=told)

    writes.write = guarded  # type: ignore[method-assign]
    at_once(writes.write_all(due, lambda: 0.0))
    at_once(writes.write_all(due[:1], lambda: 10.0))
    assert tried == [one.pod.name for one in due]
    at_once(writes.write_all(due[:1], lambda: REFUSED_S))
    assert tried[3:] == [due[0].pod.name]
    assert sorted(pod.finished for pod in shown(told.kube).values()) == [False, True, True]


def test_what_is_edited_on_a_reservation_that_stands_takes_no_room() -> None:
    told = Told(nodes=1)
    reserve(told.kube, "mine", "web", cpu="1", priority=10)
    reserve(told.kube, "theirs", "shop", cpu="2", priority=5)
    told.settle()
    body = told.kube.objects["reservations"]["default/mine"]
    body["spec"]["resources"] = {"cpu": "4"}
    told.kube.put_object(RESERVATION_KIND, body)
    told.walk.drain()
    for core in (told.world.coordinator.core, told.world.binder.core):
        table = core.state.cluster.table
        assert int(table.requested[table.column_of["cpu"], table.row_of["n0"]]) == 3000
    assert not any(
        isinstance(one, EndReservation) for one in ReservationKeeper(told.world.coordinator.core.state).due(0.0)
    )


def _from_template(scheduler: str | None) -> Pod:
    spec = {"containers": [{"name": "c"}], **({"schedulerName": scheduler} if scheduler else {})}
    body = {
        "metadata": {"name": "launch", "namespace": "default", "uid": "r-1", "creationTimestamp": MADE},
        "spec": {"template": {"spec": spec}, "owners": [{"pod": "web-0"}]},
    }
    return reserve_pod_from_api(msgspec.convert(body, ReservationObject))


@pytest.mark.parametrize(("named", "ours"), [(None, True), ("mine", True), ("conclave", False)])
def test_who_names_no_scheduler_is_served_by_any_name_and_who_names_another_is_told(
    named: str | None, ours: bool
) -> None:
    core = Core(term=7, scheduler_name="mine", policy="kube-default", rng=Random(0))
    binder = BinderCore(7, BinderCoreSettings(scheduler_name="mine"), KEYS)
    pod = _from_template(named)
    started: list[Event] = [AgentsChanged(()), ControlSeen(), IntentsListed(()), Listed("nodes"), Listed("pods")]
    core.handle([*started, PodUpserted(pod)], 1000.0)
    binder.handle_all([PodUpserted(pod)], 1000.0)
    assert ("r-1" in core.state.queue.entries, "r-1" in binder.state.pending) == (ours, ours)
    made = seconds_since_1970(MADE)
    assert ReservationKeeper(core.state).due(made + FOREIGN_S - 1) == []
    told = ReservationKeeper(core.state).due(made + FOREIGN_S)
    assert [(work.reason, "'conclave'" in work.message) for work in told if isinstance(work, TellReservation)] == (
        [] if ours else [("OtherScheduler", True)]
    )


def _begun(core: Core) -> bool:
    return core.state.started


MARKED = replace(make_node("n0").node(), reserved=(True, True))


@pytest.mark.parametrize("refused", [True, False])
def test_a_coordinator_waits_for_reservations_that_nodes_tell_of(refused: bool) -> None:
    core = Core(
        term=7, scheduler_name="conclave", policy="kube-default", rng=Random(0), kinds=("reservations",),
        settings=CoreSettings(validate=True),
    )  # fmt: skip
    events: list[Event] = [AgentsChanged(()), ControlSeen(), IntentsListed(()), NodeUpserted(MARKED)]
    core.handle([*events, Listed("nodes"), Listed("pods")], 1000.0)
    if refused:
        core.handle([Listed("reservations", served=False, refused=True)], 1001.0)
    out = core.handle([], 5000.0)
    assert not _begun(core)
    assert not [one for one in out if isinstance(one, SetTimer)], "it sleeps until it is told"
    core.handle([Listed("reservations")], 5001.0)
    assert _begun(core)
    assert ReservationKeeper(core.state).due(0.0) == [MarkNode("n0", keep=False)]
    core.handle([Listed("reservations", served=False, refused=True)], 5002.0)
    assert ReservationKeeper(core.state).due(0.0) == [], "who may not see them takes no mark away"


@pytest.mark.parametrize(("served", "marked"), [(False, True), (True, True), (False, False)])
def test_reservations_that_are_none_or_that_no_node_tells_of_hold_up_nobody(served: bool, marked: bool) -> None:
    core = Core(
        term=7, scheduler_name="conclave", policy="kube-default", rng=Random(0), kinds=("reservations",),
        settings=CoreSettings(validate=True),
    )  # fmt: skip
    node = MARKED if marked else make_node("n0").node()
    events: list[Event] = [AgentsChanged(()), ControlSeen(), IntentsListed(()), NodeUpserted(node)]
    refused = not served and not marked
    listed = [Listed("nodes"), Listed("pods"), Listed("reservations", served=served, refused=refused)]
    core.handle([*events, *listed], 1000.0)
    assert _begun(core)


def test_a_binder_waits_for_reservations_that_nodes_tell_of() -> None:
    state = BinderState(1, BinderCoreSettings())
    takeover = BinderTakeover(state, ("reservations",))
    state.cluster.upsert_node(MARKED)
    for kind in ("pods", "nodes"):
        takeover.listed(kind)
    takeover.list_intents({})
    takeover.reservations_listed(refused=True)
    assert takeover.due() is None
    state.now += 10_000.0
    assert takeover.due() is None
    assert takeover.wake_at() is None
    takeover.reservations_listed(refused=False)
    assert takeover.due() == {}


def test_room_of_one_controller_is_kept_for_so_many_pods_at_a_time_and_no_more() -> None:
    pod = replace(of_deployment(make_pod("web-1").cpu("1"), "web").on("n0").pod(), owner=("apps/v1", "ReplicaSet", "w"))
    left = LeftRoom()
    rooms = [left.keep(replace(pod, uid=f"u{number}", keep_room_s=60), 0.0) for number in range(MOST_AT_A_TIME + 5)]
    assert sum(room is not None for room in rooms) == MOST_AT_A_TIME
    assert left.keep(replace(pod, keep_room_s=60), 61.0) is not None
