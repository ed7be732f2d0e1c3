"""Reservations under random faults by seed, every process dying now and then: what is kept is nobody else's, none is
taken twice, no node is over-committed with them counted, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.room.reserved_room import ReservedRoom
from tests.builders import make_pod
from tests.sim.reservations import Walk, check_reserved, of_deployment, reserve, shown, takers
from tests.sim.test_mesh_random_walk import Violation, violation
from tests.unit.services.binder.binder_checks import check_all

OWNERS = ("web", "shop")


class ReservedWalk(Walk):
    """Reservations come and go beside the pods that they are for, and others."""

    reservations = 0

    def actions(self) -> list[tuple[float, Callable[[], None]]]:
        return [*super().actions(), (1.0, self.reserve), (0.2, self.give_back), (0.6, self.end)]

    def create(self) -> None:
        name = f"p{len(self.names)}"
        self.names.append(name)
        builder = make_pod(name).cpu(self.rng.choice(["500m", "1", "2"]))
        owner = self.rng.choice(["", *OWNERS])
        self.world.kube.add_pod(of_deployment(builder, owner) if owner else builder)

    def reserve(self) -> None:
        self.reservations += 1
        once = self.rng.random() < 0.7
        cpu = self.rng.choice(["500m", "1", "2"])
        reserve(
            self.world.kube, f"r{self.reservations}", self.rng.choice(OWNERS), cpu, allocateOnce=once,
            ttlSeconds=31_536_000,
        )  # fmt: skip

    def give_back(self) -> None:
        if there := list(shown(self.world.kube)):
            self.world.kube.delete_reservation(f"default/{self.rng.choice(there)}", "")

    def end(self) -> None:
        """Somebody, or a leader of before, writes that it is over."""
        if there := list(shown(self.world.kube).values()):
            one = self.rng.choice(there)
            name = one.name.removeprefix("reservation:")
            meta = {"uid": one.uid, "resourceVersion": one.resource_version}
            self.world.kube.patch_reservation(f"default/{name}", {"metadata": meta, "status": {"phase": "Expired"}})

    def at_rest(self) -> bool:
        waiting = [pod for pod in shown(self.world.kube).values() if not pod.node_name and not pod.finished]
        core = self.world.coordinator.core
        return super().at_rest() and all(core.place_of(pod.uid) == ["unschedulable"] for pod in waiting)


def walk(seed: int, steps: int = 300, *, rest: bool = True) -> ReservedWalk:
    """A whole walk and its rest. Raises ``Violation``."""
    walked = ReservedWalk(seed)
    for _ in range(steps):
        walked.step()
        if found := [*check_all(walked.world), *check_reserved(walked.world)]:
            raise violation(walked.world, found)
    if not rest:
        return walked
    walked.rest()
    if found := [*check_all(walked.world), *check_reserved(walked.world)]:
        raise violation(walked.world, found)
    return walked


@pytest.mark.parametrize("seed", range(4))
def test_reservations_keep_their_promises_under_random_faults(
    seed: int, walk_once: Callable[[int], ReservedWalk]
) -> None:
    world = walk_once(seed).world
    for core in (world.coordinator.core, world.binder.core):
        assert core.validate() == []
    standing = {pod.uid for pod in shown(world.kube).values() if pod.node_name and not pod.finished}
    assert set(world.coordinator.core.state.cluster.reserved.standing) == standing
    assert set(world.binder.core.state.cluster.reserved.standing) == standing


def test_the_walk_reaches_what_it_is_for(walk_once: Callable[[int], ReservedWalk]) -> None:
    taken = lost = 0
    for seed in range(4):
        kube = walk_once(seed).world.kube
        taken += sum(len(takers(kube, pod.uid)) for pod in shown(kube).values())
        lost += sum(pod.finished for pod in shown(kube).values())
    assert taken > 3
    assert lost > 1


def found_with(seeds: int = 12) -> str:
    for seed in range(seeds):
        try:
            walk(seed, rest=False)
        except Violation as error:
            return str(error)
    return ""


def test_ablation_without_the_check_for_whom_room_is_kept_it_goes_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept_for(room: ReservedRoom, pod: object) -> list[object]:
        return [one for one in room.standing.values() if room.free(one) and one is not pod]

    monkeypatch.setattr(ReservedRoom, "kept_for", kept_for)
    monkeypatch.setattr("shared.scheduling.state.cluster_state.serves", lambda *_: True)
    monkeypatch.setattr("shared.scheduling.state.room.reserved_room.serves", lambda *_: True)
    assert "reserved" in found_with()


def test_ablation_what_is_not_counted_is_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterState, "_recount", lambda *_: None)
    monkeypatch.setattr("services.coordinator.core.core.validate", lambda _: [])
    monkeypatch.setattr("services.binder.core.core.BinderCore.validate", lambda _: [])
    assert "reserved" in found_with()
