"""The shell around the Lease in the cluster, over an API server that keeps one object and compares versions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from services.coordinator.io import cluster_lease
from services.coordinator.io.cluster_lease import ClusterLease, ClusterLeases, alone, lease_name, mesh_id
from shared.errors import ConfigError, KubeRejected, KubeUnknown, LeadershipLost
from shared.kube.leases import Lease
from shared.ports import Put
from shared.runtime.process.service import boottime
from shared.wire.keys import Keys
from tests.fake_kube import AsyncKube, FakeKube
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore
from tests.patience import PATIENCE_S


class LeaseApi(AsyncKube):
    """Serves one Lease. ``refuses``: what the next calls end in."""

    def __init__(self) -> None:
        super().__init__(FakeKube())
        self.scheduler_name = "conclave"
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.refuses: list[Exception] = []
        self.asked = asyncio.Event()

    def _turn(self) -> None:
        self.asked.set()
        if self.refuses:
            raise self.refuses.pop(0)

    async def get(self, resource: Any, *, namespace: str, name: str, timeout_s: float = 5.0) -> Any:
        self._turn()
        assert (namespace, name) == ("kube-system", lease_name(self.scheduler_name))
        return None if self.lease is None else msgspec.convert(self.lease, Lease)

    async def create(self, resource: Any, *, namespace: str, body: Mapping[str, Any], timeout_s: float = 5.0) -> None:
        self._turn()
        if self.lease is not None:
            raise KubeRejected("exists", status=409, reason="AlreadyExists")
        self._store(body["metadata"], body["spec"])

    async def patch(
        self, resource: Any, *, namespace: str, name: str, patch: Mapping[str, Any], subresource: str = "",
        strategy: str = "strategic", timeout_s: float = 5.0,
    ) -> None:  # fmt: skip
        self._turn()
        assert strategy == "merge"
        assert self.lease is not None
        if patch["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise KubeRejected("changed", status=409, reason="Conflict")
        self._store(self.lease["metadata"] | patch["metadata"], self.lease["spec"] | patch["spec"])

    def _store(self, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        self.version += 1
        self.lease = {"metadata": {**metadata, "resourceVersion": str(self.version)}, "spec": dict(spec)}

    @property
    def holder(self) -> str:
        return self.lease["spec"]["holderIdentity"] if self.lease is not None else ""


def candidate(
    api: LeaseApi, mesh: str, process: str = "c-0", *, duration_s: int = 1, name: str = "conclave"
) -> tuple[ClusterLease, list[str]]:
    told: list[str] = []
    api.scheduler_name = name
    made = ClusterLease(
        api, scheduler_name=name, holder=mesh, leader=process, duration_s=duration_s, clock=boottime,
        tell=told.append,
    )  # fmt: skip
    return made, told


async def test_a_second_mesh_stands_by_while_the_first_renews_and_takes_over_when_it_is_gone(monkeypatch) -> None:
    monkeypatch.setattr(cluster_lease, "RETRY_S", 0.1)
    api = LeaseApi()
    first, _ = candidate(api, "mesh-a", "coordinator-7")
    second, told = candidate(api, "mesh-b")
    async with asyncio.timeout(PATIENCE_S):
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        waiting = asyncio.create_task(second.acquire())
        for _ in range(30):  # several durations
            api.asked.clear()
            await api.asked.wait()
        assert not waiting.done()
        assert api.holder == "mesh-a"
        (text,) = told
        assert "another mesh (mesh-a, led by coordinator-7) schedules for conclave in this cluster" in text
        keeping.cancel()
        await waiting
    assert api.holder == "mesh-b"
    assert told[-1] == ""


async def test_a_mesh_of_several_names_asks_for_the_lease_of_each() -> None:
    apis = [LeaseApi(), LeaseApi()]
    leases = [candidate(api, "mesh-a")[0] for api in apis]
    together = ClusterLeases(leases)
    await together.acquire()
    assert [api.holder for api in apis] == ["mesh-a", "mesh-a"]
    for task in (tasks := together.keeping()):
        task.close()
    assert len(tasks) == 2
    await together.leave(last=True)
    assert [api.holder for api in apis] == ["", ""]


async def test_a_name_of_another_mesh_is_left_to_it_and_the_others_are_served(monkeypatch) -> None:
    monkeypatch.setattr(cluster_lease, "RETRY_S", 0.1)
    web, batch = LeaseApi(), LeaseApi()
    other, _ = candidate(web, "mesh-b", name="web")
    stood_by: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        await other.acquire()
        keeping = asyncio.create_task(other.keep())
        (ours, _), (theirs, told) = candidate(batch, "mesh-a", name="batch"), candidate(web, "mesh-a", name="web")
        together = ClusterLeases([ours, theirs], stood_by.append)
        assert await together.acquire() == {"batch"}
        assert stood_by == [""], "it leads"
        assert "another mesh (mesh-b, led by c-0) schedules for web in this cluster" in told[-1]
        renewing, waiting = (asyncio.create_task(task) for task in together.keeping())
        for _ in range(30):  # several durations
            web.asked.clear()
            await web.asked.wait()
        assert (web.holder, batch.holder) == ("mesh-b", "mesh-a")
        assert not waiting.done()
        keeping.cancel()
        with pytest.raises(LeadershipLost, match="scheduler name web is free: the next term serves it too"):
            await waiting
        assert not renewing.done()
        renewing.cancel()
        assert await ClusterLeases([ours, theirs]).acquire() == {"batch", "web"}
    assert told[-1] == ""


async def test_a_mesh_stands_by_while_another_holds_all_names_and_then_takes_all_at_once(monkeypatch) -> None:
    """Its Leases do not end at one moment: whoever serves the first at once begins a term for each."""
    monkeypatch.setattr(cluster_lease, "RETRY_S", 0.05)
    apis = [LeaseApi(), LeaseApi()]
    stood_by: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        first = [candidate(api, "mesh-b", name=name)[0] for api, name in zip(apis, ("a", "b"), strict=True)]
        for lease in first:
            await lease.acquire()
        mine = [candidate(api, "mesh-a", name=name)[0] for api, name in zip(apis, ("a", "b"), strict=True)]
        waiting = asyncio.create_task(ClusterLeases(mine, stood_by.append).acquire())
        later = asyncio.create_task(first[1].keep())
        while apis[0].holder != "mesh-a":
            await apis[0].asked.wait()
            await asyncio.sleep(0)
        assert apis[1].holder == "mesh-b"
        later.cancel()
        assert await waiting == {"a", "b"}
    assert "schedules for a in this cluster" in stood_by[0]
    assert stood_by[-1] == ""


async def test_a_name_that_a_live_mesh_gave_up_is_served_at_once(monkeypatch) -> None:
    """Who renews another name is not gone, and is not waited for."""
    monkeypatch.setattr(cluster_lease, "RETRY_S", 0.05)
    apis = [LeaseApi(), LeaseApi()]
    async with asyncio.timeout(PATIENCE_S):
        for api, name in zip(apis, ("a", "b"), strict=True):
            await candidate(api, "mesh-b", name=name)[0].acquire()
        kept = candidate(apis[1], "mesh-b", name="b")[0]
        await kept.acquire()
        keeping = asyncio.create_task(kept.keep())
        mine = [candidate(api, "mesh-a", name=name, duration_s=3600)[0] for api, name in zip(apis, "ab", strict=True)]
        assert await ClusterLeases(mine).acquire() == {"a"}
        assert not keeping.done()
        keeping.cancel()


async def test_what_a_dead_mesh_left_for_longer_than_our_own_duration_is_not_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(cluster_lease, "RETRY_S", 0.05)
    apis = [LeaseApi(), LeaseApi()]
    async with asyncio.timeout(PATIENCE_S):
        for api, name, duration_s in zip(apis, "ab", (1, 3600), strict=True):
            await candidate(api, "mesh-b", name=name, duration_s=duration_s)[0].acquire()
        mine = [candidate(api, "mesh-a", name=name)[0] for api, name in zip(apis, "ab", strict=True)]
        assert await ClusterLeases(mine).acquire() == {"a"}


async def test_a_leader_ends_once_for_all_names_of_a_mesh_that_died(monkeypatch) -> None:
    monkeypatch.setattr(cluster_lease, "RETRY_S", 0.05)
    apis = [LeaseApi(), LeaseApi(), LeaseApi()]
    async with asyncio.timeout(PATIENCE_S):
        left = [candidate(api, "mesh-b", name=name)[0] for api, name in zip(apis[1:], "bc", strict=True)]
        for lease in left:
            await lease.acquire()
        together = ClusterLeases(
            [candidate(api, "mesh-a", name=name)[0] for api, name in zip(apis, "abc", strict=True)]
        )
        assert await together.acquire() == {"a"}
        renewing, waiting = (asyncio.create_task(task) for task in together.keeping())
        await asyncio.sleep(0)
        assert await left[1].take(), "renewed once more than the other: it ends later"
        with pytest.raises(LeadershipLost, match="scheduler names b, c are free"):
            await waiting
        renewing.cancel()
    assert [api.holder for api in apis] == ["mesh-a"] * 3


async def test_a_name_that_is_lost_while_others_are_asked_for_is_left_to_whom_took_it() -> None:
    first, second = LeaseApi(), LeaseApi()
    leases = [candidate(api, "mesh-a", name=name)[0] for api, name in ((first, "a"), (second, "b"))]
    await leases[0].acquire()
    assert first.lease is not None
    first.lease["spec"]["holderIdentity"] = "mesh-b"
    async with asyncio.timeout(PATIENCE_S):
        assert await ClusterLeases(leases).acquire() == {"b"}
    assert (first.holder, second.holder) == ("mesh-b", "mesh-a")


async def test_a_successor_of_the_same_mesh_does_not_wait(monkeypatch) -> None:
    monkeypatch.setattr(asyncio, "sleep", None)  # any wait at all would fail
    api = LeaseApi()
    await candidate(api, "mesh-a", "c-0", duration_s=3600)[0].acquire()
    successor, told = candidate(api, "mesh-a", "c-1", duration_s=3600)
    await successor.acquire()
    assert successor.ours
    assert told == []


async def test_a_leader_whose_lease_another_mesh_took_meanwhile_ends() -> None:
    api = LeaseApi()
    first, _ = candidate(api, "mesh-a")
    await first.acquire()
    assert api.lease is not None
    api.lease["spec"]["holderIdentity"] = "mesh-b"
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(LeadershipLost, match="another mesh"):
            await first.keep()


async def test_an_orderly_end_leaves_little_to_wait_for_but_the_lease_stays_ours() -> None:
    api = LeaseApi()
    first, _ = candidate(api, "mesh-a", duration_s=3600)
    await first.acquire()
    await first.leave(last=False)
    assert api.lease is not None
    assert (api.holder, api.lease["spec"]["leaseDurationSeconds"]) == ("mesh-a", cluster_lease.LAST_S)


async def test_the_last_of_a_mesh_gives_the_lease_back_and_another_mesh_does_not_wait(monkeypatch) -> None:
    api = LeaseApi()
    first, _ = candidate(api, "mesh-a", duration_s=3600)
    await first.acquire()
    await first.leave(last=True)
    assert api.holder == ""
    monkeypatch.setattr(asyncio, "sleep", None)  # any wait at all would fail
    other, told = candidate(api, "mesh-b", duration_s=3600)
    await other.acquire()
    assert (api.holder, told) == ("mesh-b", [])


async def test_a_coordinator_is_alone_while_no_other_of_its_mesh_is_registered() -> None:
    etcd, keys = MemoryEtcd(), Keys()
    store = MemoryStore(etcd)
    etcd.txn([], [Put(keys.member("coordinator", "c-0"), b"{}"), Put(keys.member("binder", "b-0"), b"{}")])
    assert await alone(store, keys, "c-0")
    etcd.txn([], [Put(keys.member("coordinator", "c-1"), b"{}")])
    assert not await alone(store, keys, "c-0")


async def test_without_the_right_one_line_names_the_rule() -> None:
    api = LeaseApi()
    api.refuses = [KubeRejected("leases is forbidden", status=403, reason="Forbidden")]
    with pytest.raises(ConfigError, match=r"lease kube-system/conclave.conclave: .*get, create and patch of leases"):
        await candidate(api, "mesh-a")[0].acquire()


async def test_an_api_server_that_does_not_answer_is_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(cluster_lease, "RETRY_S", 0.01)
    api = LeaseApi()
    api.refuses = [KubeUnknown("cut"), KubeRejected("busy", status=429), KubeUnknown("cut")]
    async with asyncio.timeout(PATIENCE_S):
        await candidate(api, "mesh-a")[0].acquire()
    assert api.holder == "mesh-a"


async def test_a_mesh_has_one_id_whoever_asks_and_another_mesh_has_another() -> None:
    server = MemoryEtcd()
    one, two = MemoryStore(server), MemoryStore(server)
    ids = {await mesh_id(one, Keys()), await mesh_id(two, Keys())}
    assert len(ids) == 1
    assert await mesh_id(one, Keys.under("/other/")) not in ids


def test_a_long_scheduler_name_gives_a_name_that_an_object_can_have() -> None:
    assert lease_name("conclave") == "conclave.conclave"
    assert len(lease_name("x" * 253)) <= 253
    assert lease_name("x" * 253) != lease_name("x" * 252 + "y")
