"""Room that is kept on GPUs: on which of them, and what of it is left as pods come and go."""

from __future__ import annotations

import pytest

from services.coordinator.reservations.keeper import ReservationKeeper
from shared.model.pod import DEVICES_ANNOTATION, Pod
from shared.model.resources import GPU_MILLI
from tests.builders import PodBuilder, make_node, make_pod
from tests.sim.reservations import of_deployment, reserve
from tests.sim.test_mesh_reservations import Told


class _OfGpus(Told):
    """One node of two GPUs."""

    def __init__(self) -> None:
        super().__init__(nodes=0)
        self.kube.add_node(make_node("n0").allocatable(cpu="8").gpus(2))

    def pool(self, milli: int) -> str:
        """A shared reservation for the Deployment web."""
        uid = reserve(self.kube, "pool", "web", resources={"cpu": "1", GPU_MILLI: str(milli)}, allocateOnce=False)
        self.settle()
        return uid

    def share(self, name: str, milli: int, owner: str = "") -> None:
        builder = make_pod(name).cpu("100m").gpu_milli(milli)
        self.kube.add_pod(of_deployment(builder, owner) if owner else builder)
        self.settle()

    def free(self) -> list[list[int]]:
        """Of each GPU, as coordinator and binder count it."""
        tables = [core.state.cluster.table for core in (self.world.coordinator.core, self.world.binder.core)]
        return [list(table.device_free[table.row_of["n0"]]) for table in tables]


def _web(milli: int) -> Pod:
    return of_deployment(make_pod("web-9").cpu("100m").gpu_milli(milli), "web").pod()


def _by_hand(name: str, milli: int, device: int) -> PodBuilder:
    builder = make_pod(name).cpu("100m").gpu_milli(milli).on("n0")
    builder.json["metadata"]["annotations"] = {DEVICES_ANNOTATION: str(device)}
    return builder


def test_what_is_left_of_shared_room_stays_on_its_own_gpu_and_comes_back_there() -> None:
    told = _OfGpus()
    told.pool(1000)
    told.share("x", 300)
    told.share("web-1", 300, "web")
    assert told.free() == [[0, 700], [0, 700]]  # the pod has of the pool's GPU, though x's is the fuller one
    told.share("y", 700)
    assert told.free() == [[0, 0], [0, 0]]
    told.kube.remove_pod("web-1")
    told.settle()
    assert told.free() == [[0, 0], [0, 0]]
    told.share("web-2", 1000, "web")
    assert (told.node_of("web-2"), told.free()) == ("n0", [[0, 0], [0, 0]])


@pytest.mark.parametrize(("milli", "left"), [(300, {0: 700, 1: 1000}), (2000, {}), (1000, {1: 1000})])
def test_several_gpus_are_kept_each_less_what_is_taken_of_it(milli: int, left: dict[int, int]) -> None:
    told = _OfGpus()
    uid = told.pool(2000)
    cluster = told.world.coordinator.core.state.cluster
    pod = _web(milli)
    assert cluster.take_room(uid, pod) is not None
    counted = cluster.reserved.counted(uid)
    assert counted is not None
    amount = dict(counted.pod_class.requests).get(GPU_MILLI, 0)
    each = amount // len(counted.devices) if counted.devices else 0
    assert {device: each * counted.devices.count(device) for device in counted.devices} == left
    cluster.assume(pod, "n0", 0.0)
    assert (list(cluster.table.device_free[cluster.table.row_of["n0"]]), [*cluster.validate()]) == ([0, 0], [])
    cluster.forget(pod.uid)
    assert cluster.cache.accounts[uid].devices == (0, 1)
    assert [*cluster.validate()] == []


def test_room_on_a_gpu_that_another_took_is_kept_no_more() -> None:
    told = _OfGpus()
    uid = told.pool(1000)
    core = told.world.coordinator.core
    core.state.cluster.observe(_by_hand("beside", 500, 1).pod())
    assert [*ReservationKeeper(core.state)._lost()] == []
    core.state.cluster.observe(_by_hand("over", 500, 0).pod())
    assert [(work.pod.uid, work.reason) for work in ReservationKeeper(core.state)._lost()] == [(uid, "RoomLost")]


def test_the_check_sees_room_that_is_counted_on_another_gpu() -> None:
    told = _OfGpus()
    uid = told.pool(1000)
    cluster = told.world.coordinator.core.state.cluster
    account = cluster.cache.accounts[uid]
    cluster.cache.forget(uid)
    cluster.cache.assume(uid, "n0", account.pod_class, 0.0, devices=(1,))
    assert any("is not counted as what is left of it" in one for one in cluster.validate())
