"""Policies of GPUs judge a pod that kubelets align by the zone that it gets, on agents as in the leader."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from services.coordinator.agents.views import usage_of
from shared.agent.replica import Replica
from shared.model.constraints import PodClass
from shared.model.gpu import GpuRequest
from shared.model.gpu_shares import DEFAULT
from shared.model.node import Node
from shared.model.node_topology import NodeTopology, PodNeeds, TopologyPolicy, Zone
from shared.policy.attribution import lens_of
from shared.policy.frag.policy import BestFitPolicy, FgdPolicy, FragPolicy, GpuPolicy
from shared.policy.frag.power_policy import PowerPolicy
from shared.policy.frag.view import zone_state
from shared.policy.observation import Observation, Supplies, supply
from shared.scheduling.numa.inside import LATE_S
from shared.scheduling.numa.zones import NodeZones
from shared.scheduling.state.cluster_state import ClusterState
from shared.wire.codec import decode, encode
from shared.wire.messages import VERSION, NodeRow, View, ViewUpdate
from tests.unit.shared.policy.frag.test_policy import some_weights
from tests.unit.shared.scheduling.numa.make import GI, dedicated, needs, topology

GPU = "nvidia.com/gpu"
ASKED = needs(4, GI, gpus=1)
ALIGNED = PodClass(requests=(("cpu", 4000), ("memory", GI), (GPU, 1)), needs=ASKED)


def machine(
    name: str, *zones: tuple[int, int], policy: TopologyPolicy = TopologyPolicy.SINGLE_NUMA_NODE
) -> NodeTopology:
    """Zones of (CPUs, GPUs), all of it free."""
    made = []
    for number, (cpus, gpus) in enumerate(zones):
        there = {"cpu": cpus, "memory": 32 * GI, **({GPU: gpus} if gpus else {})}
        made.append(Zone(number, there, there, there))
    return replace_zones(topology(name, policy=policy), made)


def replace_zones(one: NodeTopology, zones: list[Zone]) -> NodeTopology:
    return NodeTopology(one.node, one.policy, one.scope, tuple(zones), resource_version="1")


def cluster(*machines: NodeTopology) -> tuple[ClusterState, NodeZones]:
    state = ClusterState()
    zones = state.cache.zones = NodeZones(state.cache, gpus=DEFAULT.unit)
    for one in machines:
        totals = {
            name: sum(zone.allocatable.get(name, 0) for zone in one.zones) for name in ("cpu", "memory", GPU)
        }  # fmt: skip
        state.upsert_node(Node(one.node, allocatable={**totals, "cpu": 1000 * totals["cpu"], "pods": 110}))
        zones.put(one.node, one)
    return state, zones


def scores(policy: GpuPolicy, state: ClusterState, pod_class: PodClass = ALIGNED) -> list[float]:
    table = state.cache.table
    supply(policy, Supplies())
    return policy.decide(Observation(table, pod_class, table.live_rows()), np.random.default_rng(0)).score.tolist()


STRANDS, KEEPS = machine("strands", (4, 2), (12, 0)), machine("keeps", (8, 2), (8, 0))
"""Of either 16 CPUs and two GPUs of one zone are free; in the first a pod of 4 CPUs leaves a GPU without a CPU."""


def test_a_gpu_that_is_left_without_cpus_in_its_zone_is_a_fragment() -> None:
    state, zones = cluster(STRANDS, KEEPS)
    zones.mask(ASKED)
    strands, keeps = scores(FgdPolicy(), state)
    assert keeps - strands >= 1.0
    state.cache.table.zones_free.clear()
    strands, keeps = scores(FgdPolicy(), state)
    assert abs(keeps - strands) < 1.0, "as a whole they are alike"


@pytest.mark.parametrize(
    "make", [FgdPolicy, BestFitPolicy, lambda: FragPolicy(some_weights()), PowerPolicy],
    ids=["fgd", "best-fit", "frag", "power"],
)  # fmt: skip
def test_a_zone_is_judged_as_a_node_of_its_own(make: type[GpuPolicy]) -> None:
    state, zones = cluster(STRANDS, KEEPS)
    zones.mask(ASKED)
    single, _ = cluster(machine("strands", (4, 2)), machine("keeps", (8, 2)))
    plain = replace(ALIGNED, needs=None)
    found, alone = scores(make(), state), scores(make(), single, plain)
    if make is not PowerPolicy:  # what a node draws is of all of it
        assert found == alone
    assert scores(make(), state, plain) != found, "nobody aligns that one"


def test_what_explains_a_choice_is_what_was_judged() -> None:
    state, zones = cluster(STRANDS, KEEPS)
    zones.mask(ASKED)
    policy = FragPolicy(some_weights())
    scores(policy, state)
    lens = lens_of(policy)
    assert lens is not None
    table = state.cache.table
    seen = Observation(table, ALIGNED, table.live_rows())
    before = lens.features(seen)[:, -1]
    table.zones_free.clear()
    assert before.tolist() != lens.features(seen)[:, -1].tolist()


def test_zones_are_told_of_strict_kubelets_with_gpus_alone() -> None:
    state, zones = cluster(
        STRANDS, machine("loose", (8, 2), (8, 0), policy=TopologyPolicy.BEST_EFFORT), machine("bare", (8, 0), (8, 0))
    )
    zones.mask(ASKED)
    assert state.cache.table.zones_free == {0: [[4000, 32 * GI, 2000, 2000, 0], [12000, 32 * GI, 0, 0, 0]]}
    state.cache.assume("a", "strands", ALIGNED, 0.0)
    zones.mask(ASKED)
    assert state.cache.table.zones_free[0][0] == [0, 31 * GI, 1000, 2000, 0]
    zones.put("strands", machine("strands", (4, 0), (12, 0)))
    zones.mask(ASKED)
    assert state.cache.table.zones_free == {}
    zones.put("strands", STRANDS)
    zones.mask(ASKED)
    zones.drop("strands")
    zones.drop("loose")
    zones.advance(LATE_S)
    assert state.cache.table.zones_free == {}, "the last one with GPUs in zones"
    zones.put("strands", STRANDS)
    zones.mask(ASKED)
    state.remove_node("strands")
    assert state.cache.table.zones_free == {}


@pytest.mark.parametrize(
    ("zones", "found"),
    [
        ([[4000, GI, 2000, 2000, 0], [8000, GI, 1000, 1000, 0]], (4000, GI, [1000, 1000])),
        ([[3000, GI, 2000, 2000, 0], [8000, GI, 1000, 1000, 0]], (8000, GI, [1000])),
        ([[3000, GI, 2000, 2000, 0], [8000, GI, 0, 1000, 0]], None),
        ([[4000, GI - 1, 1000, 1000, 0]], None),
        ([[4000, -1, 1000, 1000, 0]], (4000, 64 * GI, [1000])),
        ([[-1, GI, 1000, 1000, 0]], (16000, GI, [1000])),
        ([[20000, GI, 1000, 1000, 0]], (16000, GI, [1000])),
        ([[4000, GI, 1000, 1000, 1]], None),
        ([], None),
    ],
)
def test_the_first_zone_with_room_for_all_of_it_counts(zones: list[list[int]], found: object) -> None:
    assert zone_state(zones, GpuRequest(4000, 1024, 1, 1000), ASKED, (16000, 64 * GI)) == found


@pytest.mark.parametrize(
    ("asked", "katalyst", "judged"),
    [
        (ASKED, 0, True), (ASKED, 1, False), (dedicated(4, gpus=1), 0, False), (dedicated(4, gpus=1), 1, True),
        (dedicated(4, gpus=1, exclusive=True), 1, False),
    ],
    ids=["kubelet", "guaranteed by Katalyst", "dedicated by a kubelet", "dedicated", "zones of its own"],
)  # fmt: skip
def test_a_zone_counts_for_those_whom_somebody_aligns_there(asked: PodNeeds, katalyst: int, judged: bool) -> None:
    zones = [[8000, GI, 1000, 1000, katalyst]]
    found = zone_state(zones, GpuRequest(4000, 1024, 1, 1000), asked, (16000, 64 * GI))
    assert (found is not None) is judged


def test_agents_judge_by_the_zones_that_a_view_tells_them_as_the_leader_does() -> None:
    state, zones = cluster(STRANDS, KEEPS)
    zones.mask(ASKED)
    table, replica = state.cache.table, Replica()
    known = sorted(table.column_of, key=lambda name: table.column_of[name])
    rows = [
        NodeRow(node.name, {}, [], False, dict(node.allocatable), usage_of(table, row))
        for row, node in enumerate(table.nodes)
        if node is not None
    ]
    told = decode(encode(ViewUpdate(VERSION, 1, 0, 5, View(1, 0, 1, known, rows))), ViewUpdate)
    assert replica.apply(told.view)
    assert replica.table.zones_free == table.zones_free
    policy = FgdPolicy()
    supply(policy, Supplies())
    seen = Observation(replica.table, ALIGNED, replica.table.live_rows())
    assert policy.decide(seen, np.random.default_rng(0)).score.tolist() == scores(FgdPolicy(), state)
    state.cache.assume("a", "strands", ALIGNED, 0.0)
    zones.mask(ASKED)
    usage = ViewUpdate(VERSION, 2, 0, 5, View(1, 1, 2, known, [], usages=[usage_of(table, 0)]))
    assert replica.apply(decode(encode(usage), ViewUpdate).view)
    assert replica.table.zones_free == table.zones_free
