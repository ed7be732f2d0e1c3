"""Measured latencies reach agents, and el, with the next offer; a limit that breaks after placement is told once."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from services.coordinator.core.events import NodeSample, NodesMeasured, PointerSeen
from services.coordinator.core.instructions import EmitEvent, SendOffer
from services.coordinator.inspect.explain import explain
from shared.model.pod import Pod
from shared.policy.registry import make_policy, ref_of
from shared.wire.codec import decode, encode
from shared.wire.messages import Offer
from shared.wire.readings import LATENCY_STALE_S
from shared.wire.records import PolicyPointer
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

NAMES = [f"n{number}" for number in range(3)]


def scene(policy: str = "el") -> Scene:
    made = Scene(agents=2)
    for name in NAMES:
        made.add_node(make_node(name).allocatable(cpu="4", memory="8Gi", pods="110").node())
    made.begin()
    made.run()
    for agent in made.agents.values():
        agent.lanes.use(ref_of(policy), make_policy(policy))
    made.inbox.append(PointerSeen(PolicyPointer(active=ref_of(policy), number=1)))
    made.run()
    return made


def serving(name: str, *, hard_ms: int = 30, target: str = "shop") -> Pod:
    pod = make_pod(name).cpu("100m").memory("128Mi").pod()
    limits = {"latency_soft_us": 20_000, "latency_hard_us": hard_ms * 1000, "latency_target": target}
    return replace(pod, pod_class=replace(pod.pod_class, **limits))


def measure(made: Scene, **latency_ms: float) -> None:
    samples = [
        NodeSample(name, 0.0, 100, 1 << 20, source="agent", latencies={"shop": (round(ms * 1000), 100)})
        for name, ms in latency_ms.items()
    ]
    made.now += 1.0
    made.deliver(NodesMeasured(tuple(samples)))


def placed(made: Scene, pod: Pod) -> str:
    made.add_pod(pod)
    made.run()
    index = made.core.state.cluster.index
    return next(name for name in NAMES if pod.uid in index.uids_on(name))


def test_el_takes_the_near_node_and_moves_at_the_first_decision_after_a_change() -> None:
    made = scene()
    measure(made, n0=50, n1=10, n2=60)
    assert placed(made, serving("a")) == "n1"
    measure(made, n0=50, n1=70, n2=12)
    assert placed(made, serving("b")) == "n2"


def test_a_target_that_nobody_measures_keeps_no_limit_and_explain_says_why() -> None:
    made = scene()
    measure(made, n0=50, n1=10, n2=60)
    pod = serving("a", target="other")
    node = placed(made, pod)
    told = explain(made.core, replace(pod, node_name=node), {}, made.now)
    assert (told["latency"]["nodes_known"], told["latency"]["node_ms"]) == (0, None)
    assert "is there a LatencyTarget of that name" in told["summary"]


def test_explain_says_what_is_known_of_the_target() -> None:
    made = scene()
    measure(made, n0=50, n1=10, n2=25)
    pod = serving("a")
    node = placed(made, pod)
    told = explain(made.core, replace(pod, node_name=node), {}, made.now)["latency"]
    assert (told["node_ms"], told["nodes_within_soft"], told["nodes_within_hard"]) == (10.0, 1, 2)
    assert (told["least_ms"], told["problem"]) == (10.0, "")
    assert explain(made.core, make_pod("free").pod(), {}, made.now)["latency"] is None


def test_a_limit_that_breaks_after_placement_is_told_once_and_so_is_its_end() -> None:
    made = scene()
    measure(made, n0=50, n1=10, n2=60)
    pod = serving("a")
    assert placed(made, pod) == "n1"
    made.trace.clear()
    for far in (40, 41, 90):
        measure(made, n0=50, n1=far, n2=60)
    assert [event.reason for event in made.of(EmitEvent)] == ["LatencyLimitBroken"]
    assert made.of(EmitEvent)[0].note == "n1 is now 40 ms from shop, beyond the hard limit of 30 ms"
    assert made.core.variants.limits.broken == 1
    measure(made, n0=50, n1=9, n2=60)
    assert [event.reason for event in made.of(EmitEvent)] == ["LatencyLimitBroken", "LatencyLimitKept"]
    assert made.core.variants.limits.broken == 0


@pytest.mark.parametrize("about_ms", [0.01, 0.1, 0.5])
def test_a_median_that_wavers_about_the_limit_breaks_it_once(about_ms: float) -> None:
    made = scene()
    measure(made, n0=50, n1=10, n2=60)
    pod = serving("a")
    placed(made, replace(pod, pod_class=replace(pod.pod_class, latency_strict=True)))
    made.trace.clear()
    for _ in range(20):
        for n1 in (30 - about_ms, 30 + about_ms):
            measure(made, n0=50, n1=n1, n2=60)
    assert [event.reason for event in made.of(EmitEvent)] == ["LatencyLimitBroken"]


def test_a_pod_that_left_breaks_no_limit_any_more() -> None:
    made = scene()
    measure(made, n0=50, n1=10, n2=60)
    placed(made, serving("a"))
    measure(made, n0=50, n1=40, n2=60)
    assert made.core.variants.limits.broken == 1
    made.delete_pod("uid-a")
    made.run()
    assert made.core.variants.limits.broken == 0


def test_a_median_that_wavers_wakes_nobody() -> None:
    made = scene()
    measure(made, n0=50, n1=10, n2=60)
    stamp = made.core.state.cache.table.clock
    measure(made, n0=50.1, n1=10.2, n2=61)
    assert made.core.state.cache.table.clock == stamp


def test_a_policy_that_looks_at_nothing_hears_of_no_use_and_of_latencies_only_where_somebody_named_a_target() -> None:
    made = scene("kube-default")
    made.deliver(NodesMeasured(tuple(NodeSample(name, 0.0, 100, 1, source="agent", latencies={}) for name in NAMES)))
    made.trace.clear()
    placed(made, serving("a"))
    assert all(send.offer.samples == [] for send in made.of(SendOffer))
    measure(made, n0=50, n1=10, n2=60)
    made.trace.clear()
    placed(made, serving("b"))
    samples = [use for send in made.of(SendOffer) for use in send.offer.samples]
    assert sorted(use.latencies["shop"] for use in samples) == [10_000, 50_000, 60_000]
    assert all(use.shares == [] for use in samples)


def test_latencies_of_an_agent_that_fell_silent_are_not_known_any_more_at_the_leader_and_at_agents() -> None:
    made = scene()
    measure(made, n0=50, n1=10, n2=60)
    assert placed(made, serving("a")) == "n1"
    made.now += LATENCY_STALE_S + 1
    made.deliver(NodesMeasured(()))
    rows = np.array([made.core.state.cache.table.row_of[name] for name in NAMES])
    assert made.core.state.cache.table.latency_to("shop", rows).tolist() == [-1] * 3
    placed(made, serving("b"))
    for agent in made.agents.values():
        assert not agent.replica.table.latencies


def test_a_node_that_no_sensor_tells_of_stops_no_offer_when_no_policy_looks_at_use_any_more() -> None:
    """n2 is known by the metrics API alone, from when a policy looked: an age since never is no number of the wire."""
    made = scene("kube-default")
    made.deliver(NodesMeasured((NodeSample("n2", 0.0, 100, 1),)))
    measure(made, n0=50, n1=10)
    made.trace.clear()
    placed(made, serving("a"))
    offers = [send.offer for send in made.of(SendOffer)]
    assert offers
    for offer in offers:
        assert decode(encode(offer), Offer) == offer
    assert sorted(use.latencies["shop"] for offer in offers for use in offer.samples) == [10_000, 50_000]
