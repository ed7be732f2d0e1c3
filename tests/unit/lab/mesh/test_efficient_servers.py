"""``ee`` takes the servers that draw less per core into use first, however many agents decide."""

from __future__ import annotations

from random import Random

import pytest

from lab.mesh.placement import NamedPolicy
from lab.mesh.world import PER_NODE, Agents, MeshWorld
from shared.model.node import Node
from shared.model.power import CURVE_LABEL, PUBLISHED, PowerCurves, parse_power_curves
from shared.policy.deepsets import policy as deepsets
from tests.builders import make_node, make_pod

AGENTS = ("1", "4", PER_NODE)
NODES, PODS = 12, 40
OWN = parse_power_curves(
    "[nodes.old]\nwatts = [90, 250]\n[nodes.new]\nwatts = [50, 150]\n[nodes.newest]\nwatts = [40, 110]\n"
)


def nodes(*curves: str) -> list[Node]:
    """In turn of these kinds, otherwise alike."""
    made = []
    for number in range(NODES):
        node = make_node(f"n{number:02}").allocatable(cpu="8", memory="16Gi", pods="110")
        made.append(node.label(**{CURVE_LABEL: curves[number % len(curves)]}).node())
    return made


def filled(agents: str, *curves: str, power: PowerCurves = OWN, seed: int = 1) -> tuple[MeshWorld, dict[str, int]]:
    """A mesh that ``ee`` gave some 40 % of its cores to pods that come and go; pods by kind of node."""
    world = NamedPolicy("ee").world(nodes(*curves), Agents.parse(agents), seed, power=power)
    rng, alive = Random(seed), list[str]()
    for number in range(PODS + 40):
        pod = make_pod(f"p{number}").cpu("1").memory("1Gi").pod()
        world.add([pod])
        world.rest(for_s=1.0)
        alive.append(pod.uid)
        if number >= PODS:
            world.remove(alive.pop(rng.randrange(len(alive))))
            world.rest(for_s=1.0)
    found: dict[str, int] = {}
    for uid in alive:
        assert world.node_of(uid)
        kind = world.nodes[world.node_of(uid)].labels[CURVE_LABEL]
        found[kind] = found.get(kind, 0) + 1
    return world, found


def in_use(world: MeshWorld) -> int:
    return len({pod.node_name for pod in world.pods.values()})


@pytest.mark.parametrize("agents", AGENTS)
def test_the_efficient_half_is_filled_first(agents):
    _, found = filled(agents, "old", "new")
    assert found["new"] >= 0.9 * PODS


@pytest.mark.parametrize("agents", AGENTS)
def test_of_three_kinds_the_best_is_full_before_the_next_and_the_worst_stays_empty(agents):
    _, found = filled(agents, "old", "new", "newest")
    assert found["newest"] > found.get("new", 0) > found.get("old", 0) == 0


def test_ablation_without_it_both_halves_are_used(monkeypatch):
    monkeypatch.setattr(deepsets, "EFFICIENCY", 0.0)
    _, found = filled(PER_NODE, "old", "new")
    assert found["new"] < 0.9 * PODS


@pytest.mark.parametrize("agents", AGENTS)
def test_no_more_nodes_are_in_use_than_where_all_are_alike(agents):
    unlike, _ = filled(agents, "old", "new")
    alike, _ = filled(agents, "new")
    assert in_use(unlike) <= in_use(alike) + 1


def test_where_all_nodes_are_alike_curves_change_no_placement():
    said, _ = filled("4", "new")
    unsaid, _ = filled("4", "new", power=PUBLISHED)
    assert said.bindings == unsaid.bindings
