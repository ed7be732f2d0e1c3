"""The freshest source of each part counts; what nobody measures is masked; each agent hears each sample once."""

from __future__ import annotations

import numpy as np
import pytest

from services.coordinator.core.events import NodeSample
from services.coordinator.usage.measured import GONE_S, STALE_S, MeasuredNodes, Telling
from shared.model.node import Node
from shared.policy.usage.class_usage import BASE
from shared.policy.usage.node_use import NodeMeasurement
from shared.policy.usage.utilisation import UtilisationStore
from shared.scheduling.state.node_table import NodeTable
from shared.wire.readings import LATENCY_STALE_S

GIB = 1 << 30


def table() -> NodeTable:
    found = NodeTable()
    found.upsert(Node("n", allocatable={"cpu": 4000, "memory": 8 * GIB, "pods": 110}))
    return found


def told(nodes: MeasuredNodes) -> tuple[list[float], int, float]:
    found = nodes.sample("n", table(), 0)
    assert found is not None
    return found.shares, found.unmeasured, found.at_s


def test_the_metrics_api_alone_leaves_disk_and_network_masked() -> None:
    nodes = MeasuredNodes()
    assert nodes.take([NodeSample("n", 10.0, 1000, 2 * GIB)], 100.0) == ["n"]
    assert told(nodes) == ([0.25, 0.25, 0.0, 0.0], 0b1100, 90.0)
    assert nodes.nodes["n"].masked(100.0) == ["disk: nobody measures it", "network: nobody measures it"]


def test_each_part_is_of_whoever_measured_it_last() -> None:
    nodes = MeasuredNodes()
    nodes.take([NodeSample("n", 0.0, 400, GIB, 0.5, 0.25, "agent", latencies={})], 100.0)
    nodes.take([NodeSample("n", 10.0, 4000, 8 * GIB)], 105.0)  # of 95: older than the agent's
    assert told(nodes) == ([0.1, 0.125, 0.5, 0.25], 0, 100.0)
    nodes.take([NodeSample("n", 1.0, 2000, None)], 111.0)
    assert told(nodes) == ([0.5, 0.125, 0.5, 0.25], 0, 100.0), "as of its oldest part"
    assert [part.source for part in nodes.nodes["n"].fresh() if part is not None] == ["metrics", *["agent"] * 3]


def test_a_part_that_grew_stale_beside_the_others_is_masked_and_named() -> None:
    nodes = MeasuredNodes()
    nodes.take([NodeSample("n", 0.0, 400, GIB, 0.5, 0.25, "agent")], 100.0)
    later = 100.0 + STALE_S + 5
    nodes.take([NodeSample("n", 0.0, 400, GIB, None, 0.25, "agent")], later)
    shares, unmeasured, at_s = told(nodes)
    assert (shares[2], unmeasured, at_s) == (0.0, 0b0100, later)
    assert nodes.nodes["n"].masked(later) == ["disk: last measured 65 s ago (agent)"]


def test_without_the_mask_a_disk_that_nobody_measures_would_look_idle() -> None:
    """The safeguard switched off: the same sample as a measured 0 says that the node's disk is free."""
    masked, believed = UtilisationStore(), UtilisationStore()
    for store, unmeasured in ((masked, 0b0100), (believed, 0)):
        store.usage.teach(BASE, np.array([0.0, 0.0, 0.3, 0.0]), 1.0)
        store.measure_some([NodeMeasurement("n", [0.1, 0.1, 0.0, 0.1], 1.0, None, 0, unmeasured)])
    now = [store.look(np.array([0])).parts[0, 0, 2] for store in (masked, believed)]
    assert now == [pytest.approx(0.3), 0.0]


def test_nothing_is_learned_from_a_part_that_was_not_measured() -> None:
    measured, masked = UtilisationStore(), UtilisationStore()
    for store in (measured, masked):
        store.bound("p", "n", "app", now_s=0.0)
    for number in range(1, 60):
        measured.measure_some([NodeMeasurement("n", [0.2, 0.2, 0.4, 0.0], float(number), None)])
        masked.measure_some([NodeMeasurement("n", [0.2, 0.2, 0.0, 0.0], float(number), None, None, 0b0100)])
    column = masked.column("app")
    assert measured.usage.use[column][2] > 0.1
    assert masked.usage.use[column][2] == 0.0
    assert masked.usage.use[column][0] == pytest.approx(measured.usage.use[column][0])


@pytest.mark.parametrize("amount", [-1, None])
def test_an_amount_that_cannot_be_is_no_measurement(amount: int | None) -> None:
    nodes = MeasuredNodes()
    assert nodes.take([NodeSample("n", 0.0, amount, amount)], 1.0) == []
    assert nodes.sample("n", table(), 0) is None


def test_nodes_that_left_and_those_of_which_nobody_tells_are_forgotten() -> None:
    nodes = MeasuredNodes()
    nodes.take([NodeSample("n", 0.0, 1, 1), NodeSample("gone", 0.0, 1, 1)], 100.0)
    nodes.forget({"n": 0}, 101.0)
    assert list(nodes.nodes) == ["n"]
    nodes.forget({"n": 0}, 101.0 + GONE_S)
    assert not nodes.nodes


def test_what_was_measured_of_the_machine_before_is_not_of_the_one_that_has_its_name_now() -> None:
    nodes = MeasuredNodes()
    nodes.take([NodeSample("n", 0.0, 3000, GIB)], 90.0)
    assert nodes.begin_anew("n", 100.0)
    for now_s, age_s in ((105.0, 10.0), (160.0, 60.0 + 1e-3), (100.0 + GONE_S, GONE_S + 1.0)):
        late = NodeSample("n", age_s, 3000, GIB, latencies={"zone": (500, 10)}, delay_us=500)
        assert nodes.take([late], now_s) == []
        nodes.forget({"n": 0}, now_s)
        assert nodes.sample("n", table(), 0) is None
    assert nodes.take([NodeSample("n", 5.0, 1000, GIB)], 110.0) == ["n"]
    assert told(nodes)[0][0] == 0.25


def test_a_name_that_was_never_measured_may_be_told_of_late_too() -> None:
    nodes = MeasuredNodes()
    assert not nodes.begin_anew("n", 100.0)
    assert nodes.take([NodeSample("n", 30.0, 3000, GIB)], 105.0) == []


def test_names_of_machines_that_went_are_not_kept_for_ever() -> None:
    nodes = MeasuredNodes()
    for number in range(1000):
        nodes.begin_anew(f"n{number}", 10.0 * number)
        nodes.forget({}, 10.0 * number)
    assert len(nodes._since_s) <= GONE_S / 10.0 + 1


def test_an_agent_hears_each_sample_once_and_all_in_a_new_epoch() -> None:
    telling, slots = Telling(), {3: "a", 5: "b"}
    telling.changed(["a", "b", "elsewhere"])
    assert sorted(telling.news("agent", 1, slots)) == [(3, "a"), (5, "b")]
    assert list(telling.news("agent", 1, slots)) == []
    telling.changed(["b"])
    assert list(telling.news("agent", 1, slots)) == [(5, "b")]
    assert sorted(telling.news("agent", 2, slots)) == [(3, "a"), (5, "b")]
    assert sorted(telling.news("agent", 2, {**slots, 7: "elsewhere"})) == [(3, "a"), (5, "b"), (7, "elsewhere")]


def test_of_many_nodes_that_fell_silent_one_after_another_each_ends_in_time_by_few_looks_at_all() -> None:
    nodes, count = MeasuredNodes(), 1000
    for number in range(count):
        sample = NodeSample(f"n{number}", 0.0, 400, GIB, 0.5, 0.25, "agent", latencies={"shop": (10_000, 100)})
        nodes.take([sample], 100.0 + number / 100)  # within ten seconds
    looks, ended = 0, list[str]()
    while len(ended) < count:
        now = nodes.expires_s
        looks += 1
        ended += nodes.expire(now)
        assert all(node.told_s + LATENCY_STALE_S > now for node in nodes.nodes.values() if node.latencies)
    assert ended == [f"n{number}" for number in range(count)]
    assert looks <= 21


@pytest.mark.parametrize(
    ("part", "amount"), [("cpu_millis", 4000 * 11), ("memory_bytes", 8 * GIB * 11), ("disk", 11.0)]
)
def test_more_than_a_node_can_have_is_masked_and_named(part: str, amount: float) -> None:
    nodes = MeasuredNodes()
    fields: dict[str, object] = {"cpu_millis": 400, "memory_bytes": GIB, "disk": 0.5, "network": 0.25, part: amount}
    nodes.take([NodeSample("n", 0.0, **fields)], 100.0)  # type: ignore[arg-type]
    place = list(fields).index(part)
    shares, unmeasured, _ = told(nodes)
    assert (shares[place], unmeasured) == (0.0, 1 << place)
    (line,) = nodes.nodes["n"].masked(100.0)
    assert "times the node's" in line
    fields[part] = 0.5 if part == "disk" else 400
    nodes.take([NodeSample("n", 0.0, **fields)], 101.0 + STALE_S)  # type: ignore[arg-type]
    assert told(nodes)[1] == 0, "it counts again as soon as it can be"


def test_without_that_bound_a_node_would_look_full_to_every_policy() -> None:
    """The safeguard switched off: the part stands as it was told, up to the cap of a share."""
    nodes = MeasuredNodes()
    nodes.take([NodeSample("n", 0.0, 4000 * 1000, GIB)], 100.0)
    assert told(nodes)[0][0] == 0.0
    nodes.nodes["n"].beyond = {}
    known = nodes.nodes["n"].fresh()[0]
    assert known is not None
    assert known.amount == 4_000_000


def test_memory_that_jumps_a_hundredfold_counts_when_it_is_told_again() -> None:
    nodes = MeasuredNodes()
    nodes.take([NodeSample("n", 0.0, 400, 4 * GIB)], 100.0)
    nodes.take([NodeSample("n", 0.0, 410, 4 * GIB // 1000)], 105.0)
    assert told(nodes)[0][:2] == [0.1025, 0.5], "as it was"
    assert any("memory: jumped from" in line for line in nodes.nodes["n"].masked(105.0))
    nodes.take([NodeSample("n", 0.0, 410, 4 * GIB)], 110.0)
    assert not any("jumped" in line for line in nodes.nodes["n"].masked(110.0)), "one stray reading is forgotten"
    for now in (115.0, 120.0):
        nodes.take([NodeSample("n", 0.0, 410, 4 * GIB // 1000)], now)
    assert told(nodes)[0][1] == pytest.approx(0.0005)


def test_cpu_and_disks_may_rise_a_thousandfold() -> None:
    nodes = MeasuredNodes()
    nodes.take([NodeSample("n", 0.0, 4, GIB, 0.001)], 100.0)
    nodes.take([NodeSample("n", 0.0, 4000, GIB, 1.0)], 105.0)
    assert told(nodes)[0][:3] == [1.0, 0.125, 1.0]
