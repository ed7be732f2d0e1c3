"""What nodes are compared with is told to every agent alike; an agent or a coordinator of another release goes on."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from services.coordinator.core.events import PointerSeen
from services.coordinator.core.instructions import SendOffer
from shared.policy.deepsets.features import FEATURES, cluster_loads
from shared.policy.deepsets.policy import DeepSetsPolicy
from shared.policy.networks import mlp_shapes
from shared.policy.usage.views import SUMMARY
from shared.policy.weights import Card, WeightsFile
from shared.scheduling.state.node_table import NodeTable
from shared.wire.records import PolicyPointer, PolicyRef
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

LB = PolicyRef("lb", 9, "b" * 64)


def weights() -> WeightsFile:
    """Of a network whose score is minus the load with the pod."""
    arrays = {name: np.zeros(shape, np.float32) for name, shape in mlp_shapes([len(FEATURES), 1]).items()}
    arrays["l0.w"][FEATURES.index("load_after")] = -1.0
    return WeightsFile(arrays, Card(policy="lb", version=9, features=list(FEATURES)))


def scene(agents: int) -> Scene:
    made = Scene(agents=agents)
    for number in range(8):
        made.add_node(make_node(f"n{number}").allocatable(cpu=str(4 + number), memory="16Gi", pods="110").node())
    made.begin()
    made.run()
    for agent in made.agents.values():
        agent.lanes.use(LB, DeepSetsPolicy(weights()))
    made.inbox.append(PointerSeen(PolicyPointer(active=LB, number=1)))
    made.run()
    return made


def placed(made: Scene, pods: int) -> list[str]:
    for number in range(pods):
        made.add_pod(make_pod(f"p{number}").cpu("500m").memory("1Gi").pod())
        made.run()
    return [node for _, node in made.bindings]


def test_all_agents_of_a_cycle_are_told_the_same_cluster_and_it_is_the_coordinators():
    made = scene(4)
    placed(made, 12)
    offers = [send.offer for send in made.of(SendOffer)]
    assert offers
    told = {tuple(offer.cluster) for offer in offers[-4:]}
    assert len(told) == 1
    assert len(next(iter(told))) == len(SUMMARY)
    made.add_pod(make_pod("last").cpu("500m").memory("1Gi").pod())
    before = cluster_loads(None, made.core.state.cache.table)
    made.run()
    newest = made.of(SendOffer)[-1].offer.cluster
    assert cluster_loads(np.array(newest), NodeTable()) == before


def test_a_policy_that_needs_nothing_of_the_cluster_is_told_nothing():
    made = Scene(agents=2)
    made.add_node(make_node("n0").node())
    made.begin()
    made.run()
    placed(made, 1)
    assert {tuple(send.offer.cluster) for send in made.of(SendOffer)} == {()}


@pytest.mark.parametrize("places", [0, 11], ids=["nothing", "what release 1.9 told"])
def test_an_agent_whose_coordinator_is_older_takes_its_own_nodes_for_the_cluster(places):
    """And places all the same."""
    made = scene(4)
    for agent in made.agents.values():
        judge = agent.decide
        agent.decide = lambda offer, judge=judge: judge(replace(offer, cluster=offer.cluster[:places]))
    assert len(placed(made, 12)) == 12
    agent = made.agents["agent-0"]
    table = agent.replica.table
    assert agent.policy.context(table) == cluster_loads(None, table) != cluster_loads(None, made.core.state.cache.table)


def test_an_agent_of_an_older_release_reads_what_it_knows_by_place():
    assert SUMMARY[:11] == (
        "cpu", "memory", "disk", "network", "highest", "modelled", "young", "younger", "requested", "pods", "spread",
    )  # fmt: skip
