"""Strict limits of latency through a whole mesh, the binder's core too: what is bound was within its limit then."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from msgspec.structs import replace

from lab.mesh.world import Agents, MeshWorld
from services.coordinator.core.events import NodeSample, NodesMeasured
from shared.model.pod import Pod
from shared.policy.registry import make_policy, ref_of
from tests.builders import make_node, make_pod

NODES = [f"n{number}" for number in range(8)]
WINDOW_S = 120.0


def limited(name: str, limit_ms: int) -> Pod:
    pod = make_pod(name).cpu("200m").memory("64Mi").pod()
    limits = {"latency_hard_us": limit_ms * 1000, "latency_target": "shop", "latency_strict": True}
    return replace(pod, pod_class=replace(pod.pod_class, **limits))


@pytest.mark.parametrize("agents", ["1", "4", "per-node"])
@pytest.mark.parametrize("policy", ["kube-default", "marl-dqn"])
def test_what_is_bound_was_known_to_be_within_its_limit_and_who_could_go_has_gone(policy: str, agents: str) -> None:
    """Latencies are drawn anew each half a minute, some nodes fall silent, and pods of four limits come and go."""
    nodes = [make_node(name).allocatable(cpu="2", memory="8Gi", pods="110").node() for name in NODES]
    world = MeshWorld(nodes, Agents.parse(agents), partial(make_policy, policy), ref_of(policy), seed=1)
    rng, limit_of, told = Random(7), dict[str, int](), dict[str, tuple[float, int]]()
    checked = 0
    for step in range(35):
        if step % 5 == 0:
            for name in NODES:
                if rng.random() < 0.8:
                    told[name] = world.now, rng.randrange(1000, 60_000)
            news = [(name, latency) for name, (at, latency) in told.items() if at == world.now]
            world.tell(
                NodesMeasured(
                    tuple(
                        NodeSample(name, 0.0, 100, 1, source="agent", latencies={"shop": (latency, 0)})
                        for name, latency in news
                    )
                )
            )
        if step % 3 and limit_of:
            world.remove(gone := rng.choice(sorted(limit_of)))
            del limit_of[gone]
        pods = [limited(f"p{step}-{number}", rng.choice([5, 12, 30, 50])) for number in range(2)]
        limit_of.update((pod.uid, pod.pod_class.latency_hard_us) for pod in pods)
        before = len(world.bindings)
        world.add(pods)
        world.rest(for_s=6.0)
        for uid, node in world.bindings[before:]:
            at, latency = told[node]
            assert world.now - at <= WINDOW_S + 6.0
            assert latency <= limit_of[uid]
            checked += 1
    assert checked > 20
    world.rest(for_s=15.0)
    known = [latency for at, latency in told.values() if world.now - at < WINDOW_S]
    stands = dict.fromkeys(NODES, 0)
    for uid in limit_of:
        stands[world.node_of(uid) or NODES[0]] += bool(world.node_of(uid))
    for uid, limit in limit_of.items():
        if not world.node_of(uid):
            open_ = [
                n for n, (at, lat) in told.items() if world.now - at < WINDOW_S and lat <= limit and stands[n] < 10
            ]
            assert not open_, (uid, known)


def test_a_reading_that_goes_up_after_the_binding_moves_nobody_and_is_counted() -> None:
    nodes = [make_node(name).node() for name in NODES[:2]]
    world = MeshWorld(nodes, Agents.parse("1"), partial(make_policy, "random"), ref_of("random"), seed=1)
    world.tell(NodesMeasured((NodeSample("n0", 0.0, 1, 1, source="agent", latencies={"shop": (5000, 0)}),)))
    world.add([limited("a", 10)])
    world.rest()
    assert world.node_of("uid-a") == "n0"
    world.rest(for_s=1.0)
    world.tell(NodesMeasured((NodeSample("n0", 0.0, 1, 1, source="agent", latencies={"shop": (50_000, 0)}),)))
    world.rest(for_s=5.0)
    assert world.node_of("uid-a") == "n0"
    assert world.core.variants.limits.broken == 1
