"""What pods ask for is counted as typical pods, taken over by and by, and bounded."""

from __future__ import annotations

import msgspec
import pytest

from services.coordinator.rollout import demand as standing_demand
from shared.model.gpu_shares import DEFAULT, GpuShares
from shared.model.pod import Pod
from shared.policy import demand
from shared.policy.demand import DemandCount
from shared.policy.frag.view import GpuView
from shared.scheduling.state.cache import ClusterCache
from shared.scheduling.state.node_table import NodeTable
from shared.wire.demand import Demand
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene


def asking(cpu: int, milli: int = 0):
    return make_pod().cpu(str(cpu)).gpu_milli(milli).pod().pod_class


def test_it_is_due_with_the_first_pod_and_each_time_it_has_grown_by_a_quarter() -> None:
    count, due, table = DemandCount(), [], NodeTable(1)
    assert not count.due(table, DEFAULT)
    for number in range(40):
        count.add(asking(1), 1, DEFAULT)
        if count.due(table, DEFAULT):
            due.append(number + 1)
            count.take_over(table, DEFAULT)
    assert due == [1, 2, 3, 4, 5, 7, 9, 12, 15, 19, 24, 30, 38]


def test_the_most_frequent_requests_until_95_percent_of_the_pods_are_told() -> None:
    count = DemandCount()
    for cpu, pods in ((1, 60), (2, 34), (3, 4), (4, 2)):
        count.add(asking(cpu, 500), pods, DEFAULT)
    told = count.take_over(NodeTable(1), DEFAULT)
    assert [(one.cpu_millis, one.devices, one.milli, one.pods) for one in told.typical] == [
        (1000, 1, 500, 60), (2000, 1, 500, 34), (3000, 1, 500, 4),
    ]  # fmt: skip


def test_whatever_a_pod_asks_for_the_wire_takes_what_is_told() -> None:
    count = DemandCount()
    asks = make_pod().cpu("9" * 18).gpu_milli(10**17).select(**{"conclave.io/gpu-model": "x" * 400}).pod().pod_class
    count.add(asks, 1, DEFAULT)
    told = count.take_over(NodeTable(1), DEFAULT)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=Demand) == told


def test_however_many_requests_come_so_many_are_remembered_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "MOST_KNOWN", 50)
    monkeypatch.setattr(demand, "MAX_TYPICAL", 20)
    count = DemandCount()
    count.add(asking(1000), 100, DEFAULT)
    for cpu in range(1, 200):
        count.add(asking(cpu), 1, DEFAULT)
    assert len(count._counts) <= 50
    told = count.take_over(NodeTable(1), DEFAULT)
    assert len(told.typical) <= 20
    assert told.typical[0].cpu_millis == 1_000_000


def test_the_most_frequent_stay_where_all_came_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "MOST_KNOWN", 8)
    count = DemandCount()
    for cpu in range(1, 9):
        count.add(asking(cpu), 1, DEFAULT)
    count.take_over(NodeTable(1), DEFAULT)
    count.add(asking(9), 3, DEFAULT)
    assert count.pods == 3 + 3
    assert count.take_over(NodeTable(1), DEFAULT).typical[0].cpu_millis == 9000


def gpu_node(name: str, model: str, gpus: int = 0, **amounts: str):
    made = make_node(name).label(**{"conclave.io/gpu-model": model}).allocatable(cpu="8", **amounts)
    return (made.gpus(gpus) if gpus else made).node()


PLUGIN = "nvidia.com/gpu"


@pytest.mark.parametrize(("name", "times"), [("kubernetes.io/batch-cpu", 0), ("example.com/fpga", 1)])
def test_gpus_are_not_counted_again_where_a_node_lends_another_amount(
    name: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, cache, counted = DemandCount(), ClusterCache(), 0
    count.add(asking(1), 1000, DEFAULT)
    cache.upsert_node(gpu_node("a", "A", 4, **{name: "1"}))
    count.take_over(cache.table, DEFAULT)
    devices_by_model = demand.devices_by_model

    def counting(table: NodeTable, shares: GpuShares) -> tuple[dict[str, int], int]:
        nonlocal counted
        counted += 1
        return devices_by_model(table, shares)

    monkeypatch.setattr(demand, "devices_by_model", counting)
    cache.upsert_node(gpu_node("a", "A", 4, **{name: "2"}))
    assert not count.due(cache.table, DEFAULT)
    assert counted == times


def test_it_is_due_at_once_when_gpus_of_a_model_come_or_go_and_not_when_other_nodes_do() -> None:
    count, cache = DemandCount(), ClusterCache()
    count.add(asking(1), 1000, DEFAULT)

    def due() -> bool:
        return count.due(cache.table, DEFAULT)

    def devices() -> dict[str, int]:
        return count.take_over(cache.table, DEFAULT).devices

    cache.upsert_node(gpu_node("a", "A", 4))
    assert devices() == {"A": 4}
    assert not due()
    cache.upsert_node(make_node("plain").allocatable(cpu="8").node())
    cache.upsert_node(gpu_node("a", "A", 4, memory="1Gi"))
    assert not due()
    cache.upsert_node(gpu_node("b", "B", 2))
    assert due()
    assert devices() == {"A": 4, "B": 2}
    cache.upsert_node(gpu_node("c", "A"))
    assert not due()
    cache.upsert_node(gpu_node("c", "A", **{PLUGIN: "8"}))  # its device plugin came up after the node
    assert due()
    assert devices() == {"A": 12, "B": 2}
    cache.upsert_node(gpu_node("a", "B", 4))
    assert due()
    assert devices() == {"A": 8, "B": 6}
    cache.remove_node("b")
    assert due()
    assert devices() == {"A": 8, "B": 4}
    assert not due()
    cache.upsert_node(gpu_node("d", "B"))
    assert not due()
    cache.table.set_claimed(cache.table.row_of["d"], [1000, 300])  # somebody tells of its devices
    assert due()
    assert devices() == {"A": 8, "B": 6}


@pytest.mark.parametrize("kind", ["own", "claimed", "units", "none"])
def test_a_node_has_as_many_devices_as_are_told_of(kind: str) -> None:
    cache = ClusterCache()
    units = {PLUGIN: "3", "nvidia.com/mig-3g.40gb": "4"} if kind != "none" else {}
    cache.upsert_node(make_node("a").allocatable(cpu="8", **units).gpus(5 if kind == "own" else 0).node())
    cache.upsert_node(make_node("b").allocatable(cpu="8").node())
    if kind == "claimed":
        cache.table.set_claimed(0, [1000, 500])
    view = GpuView(cache.table, DEFAULT)
    assert view.devices().tolist() == [len(view.free(0)), len(view.free(1))]
    assert len(view.free(0)) == {"own": 5, "claimed": 2, "units": 5, "none": 0}[kind]


def standing(name: str, cpu: str, *, by: str) -> Pod:
    made = make_pod(name).cpu(cpu).on("n0")
    made.json["spec"]["schedulerName"] = by
    return made.pod()


def test_a_term_begins_with_what_stands_of_ours_however_many_others_stand_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standing_demand, "MOST_STANDING", 2)
    scene = Scene(agents=1, policy="fgd")
    scene.add_node(make_node("n0").allocatable(cpu="64", memory="64Gi", pods="110").node())
    for number in range(3):
        scene.add_pod(standing(f"other{number}", "1", by="default-scheduler"))
    for number in range(3):
        scene.add_pod(standing(f"ours{number}", "2", by="conclave"))
    scene.begin()
    scene.run()
    scene.add_pod(make_pod("new").cpu("3").pod())
    scene.run()
    told = scene.core.variants.demand.told.demand
    assert told is not None
    assert [(one.cpu_millis, one.pods) for one in told.typical] == [(2000, 2), (3000, 1)]
