"""What pods ask for is counted as typical pods, taken over by and by, and bounded."""

from __future__ import annotations

import msgspec
import pytest

from shared.model.gpu_shares import DEFAULT
from shared.policy import demand
from shared.policy.demand import DemandCount
from shared.scheduling.state.node_table import NodeTable
from shared.wire.demand import Demand
from tests.builders import make_pod


def asking(cpu: int, milli: int = 0):
    return make_pod().cpu(str(cpu)).gpu_milli(milli).pod().pod_class


def test_it_is_due_with_the_first_pod_and_each_time_it_has_grown_by_a_quarter() -> None:
    count, due = DemandCount(), []
    assert not count.due
    for number in range(40):
        count.add(asking(1), 1, DEFAULT)
        if count.due:
            due.append(number + 1)
            count.take_over(NodeTable(1), DEFAULT)
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
