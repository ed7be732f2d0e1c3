"""What becomes of reservations: time, owners, nodes, and whatever another leader finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_field

from services.coordinator.core.takeover import Takeover
from services.coordinator.io.reservation_writes import marks_of
from services.coordinator.reservations.keeper import ReservationKeeper
from services.coordinator.reservations.leaving import kept_room
from shared.kube.pods.convert import pod_from_api
from shared.kube.reservations import seconds_since_1970
from shared.kube.scheduling_kinds import RESERVATION_KIND
from shared.model.node import NOT_REMOVED
from shared.model.units.reservation import RESERVED_ANNOTATIONS
from tests.builders import make_pod
from tests.fake_kube import at_once
from tests.sim.reservations import MADE, of_deployment, reserve, shown, takers
from tests.sim.test_mesh_reservations import Told

NOW = seconds_since_1970(MADE) + 1.0


class Kept(Told):
    """With the writes of the leader's keeper, at a time that the test says."""

    wall = NOW

    def keep(self, seconds: float = 5.0) -> None:
        """Everything that is due is written, until nothing is."""
        self.settle(seconds)
        for _ in range(6):
            work = ReservationKeeper(self.world.coordinator.core.state).due(self.wall)
            for one in work:
                self.world.api.faults = {}
                at_once(_written(self.world.reservations.write(one)))
            self.settle(1.0)
            if not work:
                return
        raise AssertionError(f"never done: {work}")

    def annotations(self, node: str) -> dict[str, str]:
        return dict(self.kube.nodes[node]["metadata"].get("annotations") or {})


async def _written(call: Any) -> None:
    assert await call


def test_time_over_gives_the_room_back_also_by_another_leader() -> None:
    told = Kept(nodes=1)
    reserve(told.kube, "launch", "web", cpu="4", ttlSeconds=60)
    told.pod("other", cpu="4")
    told.world.kube.terminate_pod("other")
    told.kube.remove_pod("other")
    told.keep()
    assert told.phase("launch") == "Available"
    told.pod("other", cpu="4")
    told.world.replace_coordinator()
    told.wall = NOW + 60
    told.keep(15)
    assert (told.phase("launch"), told.node_of("other")) == ("Expired", "n0")
    told.wall = seconds_since_1970("2100-01-01T00:00:00Z")
    told.keep()
    assert shown(told.kube) == {}


def test_one_that_never_found_room_expires_too() -> None:
    told = Kept(nodes=1)
    reserve(told.kube, "huge", "web", cpu="400", ttlSeconds=60)
    reserve(told.kube, "zero", "web", ttlSeconds=0)
    reserve(told.kube, "past", "web", expirationTime="1999-12-31T23:59:59Z")
    told.settle()
    assert (told.phase("zero"), told.phase("past")) == ("Pending", "Pending")  # neither is placed
    told.wall = NOW + 4000
    told.keep()
    assert (told.phase("huge"), told.phase("zero"), told.phase("past")) == ("Expired", "Expired", "Expired")
    terms = shown(told.kube)["past"].reserves
    assert terms is not None
    assert "was over when it was made" in terms.message
    assert told.world.coordinator.core.state.cluster.reserved.on == {}


def test_two_reservations_for_one_owner_are_two_rooms_and_the_older_is_taken_first() -> None:
    told = Kept(nodes=2)
    reserve(told.kube, "second", "web", nodes={"names": ["n1"]})
    old = reserve(told.kube, "first", "web", nodes={"names": ["n0"]})
    told.kube.objects[RESERVATION_KIND.name]["default/first"]["metadata"]["creationTimestamp"] = "2000-01-01T04:59:59Z"
    told.keep()
    assert (told.phase("first"), told.phase("second")) == ("Available", "Available")
    told.pod("web-1", "web")
    told.keep()
    assert (told.phase("first"), told.phase("second")) == ("Succeeded", "Available")
    assert takers(told.kube, old) != []
    told.pod("web-2", "web")
    told.keep()
    assert (told.phase("first"), told.phase("second")) == ("Succeeded", "Succeeded")


def test_a_taken_one_succeeds_and_names_who_took_it() -> None:
    told = Kept(nodes=1)
    reserve(told.kube, "launch", "web")
    reserve(told.kube, "pool", "shop", allocateOnce=False)
    told.keep()
    told.pod("web-1", "web")
    told.pod("shop-1", "shop", cpu="1")
    told.keep()
    launch, pool = shown(told.kube)["launch"].reserves, shown(told.kube)["pool"].reserves
    assert launch is not None
    assert pool is not None
    assert (launch.phase.value, launch.taken_by) == ("Succeeded", ("web-1",))
    assert (pool.phase.value, pool.taken_by) == ("Available", ("shop-1",))


def test_a_node_is_spared_while_room_is_kept_on_it_and_what_others_wrote_stays() -> None:
    told = Kept(nodes=2)
    told.kube.nodes["n1"]["metadata"]["annotations"] = {NOT_REMOVED[0]: "true"}
    told.kube.change_node("n1")
    reserve(told.kube, "one", "web", nodes={"names": ["n0"]})
    reserve(told.kube, "two", "web", nodes={"names": ["n1"]})
    told.keep()
    for node in ("n0", "n1"):
        assert {told.annotations(node).get(key) for key in NOT_REMOVED} == {"true"}
    told.kube.delete_reservation("default/one", "")
    told.world.replace_coordinator()  # who comes after knows by the node itself
    told.kube.delete_reservation("default/two", "")
    told.keep()
    assert told.annotations("n0") == {}
    assert told.annotations("n1") == {NOT_REMOVED[0]: "true"}


def test_a_reservation_whose_node_goes_fails() -> None:
    told = Kept(nodes=2)
    reserve(told.kube, "launch", "web", nodes={"names": ["n1"]})
    told.keep()
    told.kube.remove_node("n1")
    told.keep()
    terms = shown(told.kube)["launch"].reserves
    assert terms is not None
    assert (terms.phase.value, terms.reason) == ("Failed", "NodeGone")


def test_room_that_another_scheduler_took_is_kept_no_more() -> None:
    told = Kept(nodes=1)
    reserve(told.kube, "low", "web", cpu="2", priority=1)
    reserve(told.kube, "high", "web", cpu="2", priority=2)
    told.keep()
    uid = told.kube.add_pod(make_pod("theirs").cpu("2").on("n0"))
    assert uid
    told.walk.drain()
    core = told.world.coordinator.core
    [work] = ReservationKeeper(core.state)._lost()
    at_once(_written(told.world.reservations.write(work)))
    told.keep()
    assert (told.phase("low"), told.phase("high")) == ("Failed", "Available")


def test_room_that_a_pod_took_without_saying_so_is_lost_by_that_reservation() -> None:
    told = Kept(nodes=1)
    reserve(told.kube, "low", "shop", cpu="2", priority=1)
    mine = reserve(told.kube, "mine", "web", cpu="2", priority=2)
    told.keep()
    core = told.world.coordinator.core
    pod = of_deployment(make_pod("web-1").cpu("2"), "web").pod()
    assert core.state.cluster.take_room(mine, pod) is not None
    core.state.cluster.observe(of_deployment(make_pod("web-1").cpu("2").on("n0"), "web").pod())
    assert [(work.pod.uid, work.reason) for work in ReservationKeeper(core.state)._lost()] == [(mine, "RoomLost")]


def test_what_a_rolling_update_frees_is_kept_for_its_replacement() -> None:
    told = Kept(nodes=1)
    told.world.coordinator_settings = replace(told.world.coordinator_settings, keep_room=True)
    told.world.replace_coordinator()
    old = of_deployment(make_pod("web-1").cpu("3"), "web")
    old.json["metadata"]["annotations"] = {"conclave.io/keep-room": "60s"}
    told.kube.add_pod(old)
    told.keep()
    assert told.node_of("web-1") == "n0"
    told.pod("other", cpu="3")
    told.keep()
    told.kube.terminate_pod("web-1")
    told.settle()
    told.kube.remove_pod("web-1")
    told.keep(15)
    assert told.node_of("other") == ""
    [kept] = shown(told.kube).values()
    assert kept.node_name == "n0"
    told.pod("web-2", "web", cpu="3")
    told.keep(15)
    assert (told.node_of("web-2"), told.node_of("other")) == ("n0", "")


@pytest.mark.parametrize("shown_before", [{}, {NOT_REMOVED[0]: "true"}, {NOT_REMOVED[1]: "false"}])
def test_marks_are_taken_away_exactly_as_they_were_put(shown_before: dict[str, str]) -> None:
    put = {key: value for key, value in marks_of(shown_before, keep=True).items() if value is not None}
    there = {**shown_before, **put}
    assert marks_of(there, keep=True) == {}
    gone = marks_of(there, keep=False)
    assert {key: value for key, value in there.items() if gone.get(key, "stays") is not None} == shown_before
    assert marks_of(shown_before, keep=False) == {}
    assert RESERVED_ANNOTATIONS in put


def taken_over_a_change_of_leader() -> None:
    """One for once, whose pod goes before it is told as taken, and a new leader."""
    told = Kept(nodes=1)
    uid = reserve(told.kube, "launch", "web", cpu="4")
    told.settle()
    told.pod("web-1", "web", cpu="4")
    told.settle()
    assert takers(told.kube, uid) != []
    assert told.phase("launch") == "Available"
    told.kube.remove_pod("web-1")
    told.settle(0.5)
    of_web = [entry for entry in told.kube.history if "web-1" in str(entry[2].object.metadata.name)]
    told.kube.history[:] = [entry for entry in told.kube.history if entry not in of_web]  # who lists does not see it
    told.world.replace_binder()
    told.world.replace_coordinator()
    told.pod("web-2", "web", cpu="4")
    told.keep(15)
    told.keep(60)  # the binder learns of it by the status, and the pod waits for its backoff
    assert (told.node_of("web-2"), told.phase("launch")) == ("n0", "Succeeded")


def test_what_was_used_once_is_not_used_again_by_another_leader() -> None:
    taken_over_a_change_of_leader()


def test_ablation_without_what_the_object_says_it_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Takeover, "_spend", lambda _: None)
    with pytest.raises(AssertionError, match="pods took it"):
        taken_over_a_change_of_leader()


def test_room_that_is_kept_goes_with_the_pods_controller_and_members_of_gangs_keep_none() -> None:
    told = Kept(nodes=1)
    told.world.coordinator_settings = replace(told.world.coordinator_settings, keep_room=True)
    told.world.replace_coordinator()
    old = of_deployment(make_pod("web-1").cpu("3"), "web")
    old.json["metadata"]["annotations"] = {"conclave.io/keep-room": "60s"}
    told.kube.add_pod(old)
    told.keep()
    pod = told.kube.get_pod("default", "web-1")
    assert pod is not None
    member = replace_field(pod_from_api(pod), terminating=True)
    assert kept_room(member) is not None
    assert kept_room(replace_field(member, group="default/gang")) is None
    told.kube.terminate_pod("web-1")
    told.settle()
    [kept] = told.kube.objects[RESERVATION_KIND.name].values()
    assert [(one["kind"], one["uid"]) for one in kept["metadata"]["ownerReferences"]] == [("ReplicaSet", "rs")]
