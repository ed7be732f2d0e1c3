"""Reservations in the whole mesh: Koordinator's ReservationFirst and Gödel's cases (peers.md 2), on pure cores."""

from __future__ import annotations

import pytest
from msgspec.structs import replace as replace_field

from services.coordinator.inspect.explain import explain
from services.coordinator.inspect.reservations import kept_from, reservations_shown
from shared.kube.pods.convert import pod_from_api
from tests.builders import make_node, make_pod
from tests.sim.reservations import check_reserved, of_deployment, reserve, shown
from tests.sim.test_mesh_random_walk import Walk


class Told:
    """A mesh at rest between two things that happen."""

    def __init__(self, *, agents: int = 1, nodes: int = 2, cpu: str = "4", shards: tuple[str, ...] = ()) -> None:
        self.walk = Walk(7, agents=agents, nodes=0, shards=shards)
        self.world = self.walk.world
        self.kube = self.world.kube
        for number in range(nodes):
            self.kube.add_node(make_node(f"n{number}").allocatable(cpu=cpu))

    def settle(self, seconds: float = 5.0) -> None:
        for _ in range(int(seconds / 0.5)):
            self.walk.drain()
            self.walk.advance(self.world.now + 0.5)
        self.walk.drain()
        assert check_reserved(self.world) == []
        assert self.world.coordinator.core.validate() == []
        assert self.world.binder.core.validate() == []

    def pod(self, name: str, owner: str = "", cpu: str = "2", priority: int = 0) -> None:
        builder = make_pod(name).cpu(cpu).priority(priority)
        self.kube.add_pod(of_deployment(builder, owner) if owner else builder)

    def phase(self, name: str) -> str:
        terms = shown(self.kube)[name].reserves
        assert terms is not None
        return terms.phase.value

    def node_of(self, name: str) -> str:
        return self.world.node_of(name)


@pytest.mark.parametrize("agents", [1, 2, 4])
def test_a_reservation_is_placed_as_a_pod_and_its_owner_takes_it_first(agents: int) -> None:
    told = Told(agents=agents)
    reserve(told.kube, "launch", "web", nodes={"names": ["n1"]})
    told.settle()
    assert (told.phase("launch"), shown(told.kube)["launch"].node_name) == ("Available", "n1")
    told.pod("filler", cpu="3")
    told.settle()
    assert told.node_of("filler") == "n0"
    told.pod("web-1", "web")
    told.settle()
    assert told.node_of("web-1") == "n1"  # by any score n1 is no better, and kept room decides
    table = told.world.coordinator.core.state.cache.table
    assert int(table.requested[table.column_of["cpu"], table.row_of["n1"]]) == 2000  # counted once, not twice


def test_explain_says_whose_kept_room_a_pod_took_and_believes_no_annotation_alone() -> None:
    told = Told()
    reserve(told.kube, "launch", "web", nodes={"names": ["n1"]})
    told.settle()
    told.pod("web-1", "web")
    told.pod("other")
    told.settle()

    def summary(name: str, **changes: str) -> str:
        found = told.kube.get_pod("default", name)
        assert found is not None
        pod = replace_field(pod_from_api(found), **changes)
        return str(explain(told.world.coordinator.core, pod, {}, told.world.now)["summary"])

    assert "why here: room was kept for it by reservation default/launch" in summary("web-1")
    assert "why here" not in summary("other")
    assert "why here" not in summary("other", takes=shown(told.kube)["launch"].uid)
    told.world.replace_coordinator()
    told.settle()
    assert "reservation default/launch" in summary("web-1")
    assert "that is gone by now" in summary("web-1", takes="another")


def test_who_is_not_meant_never_gets_the_room() -> None:
    told = Told(nodes=1)
    reserve(told.kube, "launch", "web", cpu="3")
    told.settle()
    told.pod("other", "shop", cpu="2")
    told.settle()
    assert told.node_of("other") == ""
    told.pod("web-1", "web", cpu="3")
    told.settle()
    assert (told.node_of("web-1"), told.node_of("other")) == ("n0", "")


def test_an_owner_that_waits_is_woken_when_room_is_kept_for_it() -> None:
    told = Told(nodes=1)
    told.pod("there", cpu="4")
    told.settle()
    told.pod("web-1", "web", cpu="3")
    reserve(told.kube, "launch", "web", cpu="3")
    told.settle()
    assert (told.node_of("web-1"), told.phase("launch")) == ("", "Pending")
    told.kube.remove_pod("there")
    told.settle(15)
    assert told.node_of("web-1") == "n0"


def test_a_taken_reservation_is_not_given_twice() -> None:
    told = Told(nodes=1)
    reserve(told.kube, "launch", "web", cpu="2")
    told.settle()
    told.pod("filler", cpu="2")
    told.settle()
    told.pod("web-1", "web")
    told.pod("web-2", "web")
    told.settle()
    assert sorted([told.node_of("web-1"), told.node_of("web-2")]) == ["", "n0"]


def test_a_pod_that_needs_more_takes_the_rest_from_what_is_free_and_less_gives_the_rest_back() -> None:
    told = Told(nodes=1)
    reserve(told.kube, "launch", "web", cpu="2")
    told.settle()
    told.pod("web-1", "web", cpu="3")
    told.settle()
    assert told.node_of("web-1") == "n0"
    less = Told(nodes=1)
    reserve(less.kube, "launch", "web", cpu="4")
    less.settle()
    less.pod("other", cpu="2")
    less.settle()
    assert less.node_of("other") == ""
    less.pod("web-1", "web", cpu="1")
    less.settle(15)
    assert (less.node_of("web-1"), less.node_of("other")) == ("n0", "n0")


def test_shared_room_is_taken_by_several_and_comes_back() -> None:
    told = Told(nodes=1)
    reserve(told.kube, "pool", "web", cpu="4", allocateOnce=False)
    told.settle()
    for name in ("web-1", "web-2", "web-3"):
        told.pod(name, "web")
    told.settle()
    assert sorted(told.node_of(f"web-{n}") for n in (1, 2, 3)) == ["", "n0", "n0"]
    gone = "web-1" if told.node_of("web-1") else "web-2"
    told.pod("other", cpu="2", priority=0)
    told.kube.remove_pod(gone)
    told.settle(15)
    assert told.node_of("other") == ""  # what it left is the pool's
    assert told.node_of("web-3") == "n0"


def test_deleting_a_reservation_gives_its_room_back() -> None:
    told = Told(nodes=1)
    reserve(told.kube, "launch", "web", cpu="4")
    told.settle()
    told.pod("other", cpu="4")
    told.settle()
    assert told.node_of("other") == ""
    told.kube.delete_reservation("default/launch", "")
    told.settle(15)
    assert told.node_of("other") == "n0"


def test_a_higher_priority_takes_the_room_of_a_lower_reservation_and_it_is_told() -> None:
    told = Told(nodes=1)
    reserve(told.kube, "launch", "web", cpu="4", priority=5)
    told.settle()
    told.pod("low", cpu="4", priority=5)
    told.settle()
    assert (told.node_of("low"), told.phase("launch")) == ("", "Available")
    told.pod("high", cpu="4", priority=10)
    told.settle(15)
    assert (told.node_of("high"), told.phase("launch")) == ("n0", "Failed")
    terms = shown(told.kube)["launch"].reserves
    assert terms is not None
    assert terms.reason == "Preempted"


def test_a_reservation_evicts_nobody() -> None:
    told = Told(nodes=1)
    told.pod("low", cpu="4", priority=0)
    told.settle()
    reserve(told.kube, "launch", "web", cpu="4", priority=100)
    told.settle()
    assert (told.node_of("low"), told.phase("launch")) == ("n0", "Pending")


def test_a_reservation_that_no_node_takes_says_why() -> None:
    told = Told(nodes=1)
    reserve(told.kube, "huge", "web", cpu="400")
    reserve(told.kube, "zero", "web", ttlSeconds=0)
    told.settle()
    huge, zero = (shown(told.kube)[name].reserves for name in ("huge", "zero"))
    assert huge is not None
    assert zero is not None
    assert "Insufficient cpu" in huge.message
    assert "spec.ttlSeconds: 0" in zero.message


def test_who_writes_the_annotation_by_hand_takes_nothing() -> None:
    told = Told(nodes=1)
    uid = reserve(told.kube, "launch", "web", cpu="3")
    told.settle()
    told.kube.add_pod(make_pod("thief").cpu("1").set(annotations={"conclave.io/reservation": uid}))
    told.settle()
    assert told.node_of("thief") == "n0"
    told.pod("other", cpu="2")
    told.settle()
    assert told.node_of("other") == ""
    told.pod("web-1", "web", cpu="3")
    told.settle()
    assert told.node_of("web-1") == "n0"


def test_explain_names_the_reservation_that_keeps_a_pod_from_a_node() -> None:
    told = Told(nodes=1)
    reserve(told.kube, "launch", "web", cpu="3")
    told.settle()
    told.pod("other", cpu="2")
    told.pod("large", cpu="9")
    told.settle()
    core = told.world.coordinator.core
    pods = {entry.pod.name: entry.pod for entry in core.state.queue.entries.values()}
    assert kept_from(core, pods["other"]) == "room for it is kept for others by reservation default/launch on n0"
    assert kept_from(core, pods["large"]) == ""
    assert "kept for others by reservation" in explain(core, pods["other"], {}, told.world.now)["summary"]
    [shown_one] = reservations_shown(core, 0.0)
    assert (shown_one.name, shown_one.phase, shown_one.node, shown_one.left) == (
        "launch",
        "Available",
        "n0",
        {"cpu": "3"},
    )
