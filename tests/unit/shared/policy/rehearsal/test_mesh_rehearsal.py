"""A mesh rehearses its own demand on its own nodes: what it hands over, when it is another one, what is refused."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from shared.errors import ConfigError
from shared.model.constraints import PodClass
from shared.model.gpu import ANY_MODEL
from shared.policy.rehearsal import mesh_rehearsal
from shared.policy.rehearsal.mesh_rehearsal import trace_of, verdict_on
from shared.policy.rehearsal.situation import FEWEST_GPU_PODS, RehearsalOrder, RehearsalVerdict, situation_of
from shared.policy.weights import shipped_bytes
from shared.scheduling.state.cache import ClusterCache
from tests.builders import make_node, make_pod
from tests.gpu_demand import BULK, machines, openb_demand, pod_of

MODEL = "conclave.io/gpu-model"


def cluster(*nodes) -> ClusterCache:
    cache = ClusterCache()
    for node in nodes:
        cache.upsert_node(node)
    return cache


def gpu_node(name: str, gpus: int, model: str = "T4", cpu: str = "8"):
    return make_node(name).allocatable(cpu=cpu, memory="32Gi", pods="110").gpus(gpus).label(**{MODEL: model}).node()


def share(milli: int = 500):
    return make_pod().cpu("1").memory("1Gi").gpu_milli(milli).pod().pod_class


def test_nodes_count_by_kind_with_all_they_offer_whatever_stands_there():
    cache = cluster(gpu_node("a", 2), gpu_node("b", 2), gpu_node("c", 1, "V100"), make_node("d").node())
    before = situation_of(cache.table, {})
    row = cache.table.row_of["a"]
    cache.table.add_usage(row, share(), cache.table.pick_devices(row, 500))
    assert situation_of(cache.table, {}) == before
    assert sorted((kind.devices, kind.model, count) for kind, count in before.nodes) == [
        (0, 2, 1),
        (1, 1, 1),
        (2, 0, 2),
    ]
    assert before.gpus == 5


def test_pods_count_by_what_they_ask_for_and_the_models_they_name():
    named = make_pod().cpu("1").gpu_milli(1000).select(**{MODEL: "V100"}).pod().pod_class
    found = situation_of(cluster(gpu_node("a", 2), gpu_node("b", 2, "V100")).table, {share(): 3, named: 2})
    assert {(ask.devices, ask.milli, ask.models): count for ask, count in found.pods} == {
        (1, 500, ANY_MODEL): 3,
        (1, 1000, 1 << 1): 2,
    }
    assert found.gpu_pods == 5


def test_it_is_the_same_demand_at_twice_the_number_and_another_one_once_a_tenth_differs():
    table, one, other = cluster(gpu_node("a", 8)).table, share(500), share(250)
    before = situation_of(table, {one: 50, other: 50})
    assert not situation_of(table, {one: 100, other: 100}).moved(before)
    assert not situation_of(table, {one: 59, other: 41}).moved(before)
    assert situation_of(table, {one: 61, other: 39}).moved(before)
    assert situation_of(cluster(gpu_node("a", 8), gpu_node("b", 4)).table, {one: 50, other: 50}).moved(before)


@pytest.mark.parametrize(("gpus", "pods", "enough"), [(2, FEWEST_GPU_PODS, True), (2, 49, False), (0, 500, False)])
def test_few_pods_or_no_gpu_are_not_rehearsed(gpus, pods, enough):
    assert situation_of(cluster(gpu_node("a", gpus)).table, {share(): pods}).enough is enough


def test_a_larger_cluster_is_rehearsed_in_part_with_every_kind_at_its_share(monkeypatch):
    monkeypatch.setattr(mesh_rehearsal, "MOST_NODES", 30)
    monkeypatch.setattr(mesh_rehearsal, "MOST_PODS", 40)
    one, two = share(500), share(250)
    nodes = [gpu_node(f"a{number}", 8) for number in range(60)] + [gpu_node(f"b{number}", 2) for number in range(30)]
    trace = trace_of(situation_of(cluster(*nodes).table, {one: 300, two: 100}))
    assert Counter(trace.nodes.states.devices.tolist()) == {8: 20, 2: 10}
    assert trace.pods.counts.tolist() == [30, 10]


def test_a_demand_that_hardly_asks_for_gpus_is_refused_by_name():
    plain = make_pod().cpu("1").pod().pod_class
    nodes = [gpu_node(f"n{number}", 8) for number in range(100)]
    situation = situation_of(cluster(*nodes).table, {share(10): 50, plain: 5_000})
    with pytest.raises(ConfigError, match="they ask for too little beside so many GPUs"):
        trace_of(situation)
    told = verdict_on(RehearsalOrder("frag", shipped_bytes("frag"), situation))
    assert not told.places
    assert "they ask for too little beside so many GPUs" in told.problem


def test_weights_that_are_none_are_a_problem_and_no_verdict():
    situation = situation_of(cluster(gpu_node("a", 8)).table, {share(): 60})
    told = verdict_on(RehearsalOrder("frag", b"no weights", situation))
    assert (told.places, bool(told.problem)) == ("", True)


def verdict(demand: dict[PodClass, int]) -> RehearsalVerdict:
    found = verdict_on(RehearsalOrder("frag", shipped_bytes("frag"), situation_of(machines(60).table, demand)))
    assert not found.problem
    return found


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param([(22, 90, 2000, 1), (44, 180, 4000, 1), (88, 360, 8000, 1)], id="two, four and eight devices"),
        pytest.param([*((*kind, 1) for kind in BULK), (8, 30, 500, 1), (12, 48, 2000, 1)], id="seven kinds in bulk"),
        pytest.param([(4, 16, 0, 8), (8, 32, 1000, 1), (4, 16, 500, 1)], id="four in five pods without GPU"),
    ],
)
def test_fgd_places_a_demand_that_the_learned_value_places_worse(kinds: list[tuple[int, int, int, int]]):
    demand = {pod_of(cpu, memory, milli).pod().pod_class: 100 * share for cpu, memory, milli, share in kinds}
    found = verdict(demand)
    assert found.places == "fgd"
    assert "FGD places, since in 12 rehearsals on other orders the learned value allocated -" in found.told


def test_the_learned_value_places_a_demand_like_openbs():
    assert verdict(openb_demand()).places == "frag"


def test_an_order_comes_through_the_wire_unchanged():
    order = RehearsalOrder("frag", b"\x00\x01", situation_of(cluster(gpu_node("a", 8)).table, {share(): 60}))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(order), type=RehearsalOrder) == order
