"""What counts as a change of the nodes, and what of their totals alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from shared.model.cluster_events import NodeDeleted
from shared.model.node import Node
from tests.builders import make_node
from tests.unit.services.coordinator.scene import Scene

LENT = "kubernetes.io/batch-cpu"


def offering(node: Node, **amounts: int) -> Node:
    names = {"lent": LENT, "others": "example.com/batch-memory"}
    return replace(node, allocatable=node.allocatable | {names.get(name, name): of for name, of in amounts.items()})


def unlent(node: Node) -> Node:
    return replace(node, allocatable={name: of for name, of in node.allocatable.items() if name != LENT})


@pytest.mark.parametrize(
    ("change", "nodes", "totals"),
    [
        (lambda node: replace(node, resource_version="9"), 0, 0),
        (lambda node: offering(node, lent=7), 0, 1),
        (lambda node: offering(node, lent=0), 0, 1),
        (lambda node: offering(node, lent=7, cpu=7), 1, 1),
        (lambda node: offering(node, others=7), 1, 1),
        (unlent, 1, 1),
        (lambda node: replace(offering(node, lent=7), labels={"zone": "a"}), 1, 1),
        (lambda node: replace(offering(node, lent=7), unschedulable=True), 1, 1),
        (lambda node: replace(offering(node, lent=7), uid="another"), 1, 1),
    ],
)
def test_how_much_a_node_lends_is_a_change_of_totals_alone(
    change: Callable[[Node], Node], nodes: int, totals: int
) -> None:
    scene = Scene()
    node = make_node("n0").allocatable(**{"cpu": "4", LENT: "8000"}).node()
    scene.add_node(node)
    scene.begin()
    scene.run()
    state = scene.core.state
    before = state.nodes_version, state.totals_version
    scene.add_node(change(node))
    scene.run()
    assert (state.nodes_version - before[0], state.totals_version - before[1]) == (nodes, totals)


def test_a_node_that_goes_is_a_change_of_both() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    scene.run()
    state = scene.core.state
    before = state.nodes_version, state.totals_version
    scene.inbox.append(NodeDeleted("n0"))
    scene.run()
    assert (state.nodes_version, state.totals_version) == (before[0] + 1, before[1] + 1)
