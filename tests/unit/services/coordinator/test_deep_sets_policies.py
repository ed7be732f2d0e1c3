"""ee, lb and el decide through a whole mesh: coordinator, two agents that own half of the nodes each, and a binder."""

from __future__ import annotations

from collections import Counter

import pytest

from shared.model.node import Node
from shared.policy.registry import make_policy
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_bound_once, check_overcommit

NEAR, BETWEEN, FAR = "12", "25", "60"
LIMITS = {"latencySoftConstraint": "20", "latencyHardConstraint": "30"}


def node(name: str, latency: str) -> Node:
    builder = make_node(name).allocatable(cpu="8", memory="16Gi")
    builder.json["metadata"]["annotations"] = {"conclave.io/latency-ms": latency}
    return builder.node()


def placed(policy: str, *latencies: str, pods: int = 20, **limits: str) -> Counter[str]:
    """How many pods each node got, placed one after the other."""
    scene = Scene(policy=policy)
    for number, latency in enumerate(latencies):
        scene.add_node(node(f"n{number}", latency))
    scene.begin()
    for number in range(pods):
        scene.add_pod(make_pod(f"p{number}").cpu("250m").memory("64Mi").set(annotations=limits).pod())
        scene.run()
    assert len(scene.bindings) == pods
    assert not check_bound_once(scene)
    assert not check_overcommit(scene)
    return Counter(name for _, name in scene.bindings)


@pytest.mark.parametrize("name", ["ee", "lb", "el"])
def test_the_policies_are_made_by_name(name):
    policy = make_policy(name)
    assert (policy.name, policy.version) == (name, 2)


def test_ee_fills_one_node_whoever_owns_it():
    assert len(placed("ee", NEAR, NEAR, NEAR, NEAR, pods=30)) == 1


def test_lb_spreads_evenly():
    counts = placed("lb", NEAR, NEAR, NEAR, NEAR).values()
    assert len(counts) == 4
    assert max(counts) - min(counts) <= 1


def test_el_keeps_the_soft_limit_where_a_node_offers_it():
    counts = placed("el", FAR, BETWEEN, NEAR, FAR, **LIMITS)
    assert counts == {"n2": 20}


def test_el_places_all_the_same_where_no_node_keeps_the_hard_limit():
    assert placed("el", FAR, FAR, pods=5, **LIMITS).total() == 5
