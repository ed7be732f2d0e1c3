"""Readings that cannot be: one line each, none of those that are refused or too old to be heard, and the policy in use
goes on by what is left, whoever decides.

By sensors' messages, with one agent (as of the mesh in one process), four, and one on each node, who decide by
``marl-dqn``, which looks at use, and by ``el``, which looks at latencies.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from services.coordinator.core.events import PointerSeen
from services.coordinator.usage.desk import ReadingsDesk, ReadingsRefused
from services.coordinator.usage.still import STILL_READINGS, STILL_S
from shared.kube.nodes.latency_targets import LatencyTarget
from shared.model.cluster_events import ObjectChanged
from shared.policy.registry import make_policy, ref_of
from shared.wire.readings import Boot, NodeReading, TargetLatency
from shared.wire.records import PolicyPointer
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_bound_once, check_overcommit, check_places
from tests.unit.services.coordinator.usage.test_desk import message

NODES = [f"n{number}" for number in range(6)]
GIB = 1 << 30
BAD = NODES[0]


class Mesh:
    """A mesh that decides by the policy, and the desk that takes what sensors tell of its nodes."""

    def __init__(self, agents: str, policy: str) -> None:
        self.scene = Scene(agents=0 if agents == "per-node" else int(agents))
        for name in NODES:
            self.scene.add_node(make_node(name).allocatable(cpu="8", memory="32Gi", pods="110").node())
            if agents == "per-node":
                self.scene.join(f"at-{name}", node=name, tell=False)
        self.scene.begin()
        self.scene.run()
        for agent in self.scene.agents.values():
            agent.lanes.use(ref_of(policy), make_policy(policy))
        self.scene.inbox.append(PointerSeen(PolicyPointer(active=ref_of(policy), number=1)))
        self.scene.run()
        self.desk = ReadingsDesk(b"k" * 32, Random(1), term=7, region_of=lambda _: "")
        self.desk.changed([ObjectChanged("latencytargets", "shop", LatencyTarget("shop", "shop.example", 443))])
        self.boots = dict.fromkeys(NODES, Boot("b1", 1000))
        self._told = self._pods = 0

    def tell(self, node: str, **changes: Any) -> None:
        """A sensor's message, a second later; raises ``ReadingsRefused``."""
        self._told += 1
        reading = {"cpu_millis": 800 + self._told % 7, "memory_bytes": GIB + self._told, "disk": 0.1}
        latency_us, boot = changes.pop("latency_us", 9000), changes.pop("boot", self.boots[node])
        age_ms = changes.pop("age_ms", 200)
        self.scene.now += 1.0
        told = NodeReading(node, age_ms, **{**reading, **changes})
        latencies = [TargetLatency("shop", latency_us, 50, 5)]
        sent = message(0, agent=node, incarnation="", boot=boot, readings=[told], latencies=latencies)
        self.desk.heard(sent, self.scene.core.registry.views, self.scene.now)
        if (event := self.desk.flush(self.scene.now)) is not None:
            self.scene.deliver(event)

    def place(self, count: int = 12) -> None:
        """So many pods, by the policy: each gets a node."""
        for _ in range(count):
            self._pods += 1
            self.scene.add_pod(make_pod(f"p{self._pods}").cpu("100m").memory("64Mi").pod())
            self.scene.run()
        assert len(self.scene.bindings) == self._pods
        assert check_bound_once(self.scene) == check_overcommit(self.scene) == check_places(self.scene) == []
        assert [agent.policy_fallbacks for agent in self.scene.agents.values()] == [0] * len(self.scene.agents)

    def said(self) -> list[str]:
        """Of the node: what is not measured of it, and why."""
        node = self.scene.core.variants.used[BAD]
        return [*node.masked(self.scene.now), *node.missing]


def cpu_jumps(mesh: Mesh) -> str:
    mesh.tell(BAD, cpu_millis=800_000)
    return "cpu: "


def cpu_of_an_idle_node_is_told_in_another_unit(mesh: Mesh) -> str:
    mesh.tell(BAD, cpu_millis=55)
    mesh.tell(BAD, cpu_millis=55_000)
    return "cpu: 5.5e+04 is beyond 2.5 times"


def memory_is_more_than_the_node_has(mesh: Mesh) -> str:
    mesh.tell(BAD, memory_bytes=90 * GIB)
    return "memory: 9.664e+10 is beyond 2.5 times"


def memory_jumps(mesh: Mesh) -> str:
    mesh.tell(BAD, memory_bytes=1000 * GIB)
    return "memory: "


def latency_jumps(mesh: Mesh) -> str:
    mesh.tell(BAD, latency_us=9_000_000)
    return "shop"


def everything_stands_still(mesh: Mesh) -> str:
    for _ in range(int(STILL_S) + STILL_READINGS):
        mesh.tell(BAD, cpu_millis=800, memory_bytes=GIB)
    return "the same for"


def a_past_boot_speaks(mesh: Mesh) -> str:
    mesh.scene.now += 60.0
    past, mesh.boots[BAD] = mesh.boots[BAD], Boot("b2", 5)
    mesh.tell(BAD)
    with pytest.raises(ReadingsRefused) as refused:
        mesh.tell(BAD, cpu_millis=1, boot=past)
    assert refused.value.code == "past_boot"
    return ""


def a_clock_is_an_hour_behind(mesh: Mesh) -> str:
    """What it measured now it says to be an hour old: beside what others told since it counts for nothing."""
    mesh.tell(BAD, cpu_millis=7000, age_ms=3_600_000)
    return ""


CASES = [
    cpu_jumps, cpu_of_an_idle_node_is_told_in_another_unit, memory_is_more_than_the_node_has, memory_jumps,
    latency_jumps, everything_stands_still, a_past_boot_speaks, a_clock_is_an_hour_behind,
]  # fmt: skip


@pytest.mark.parametrize("agents", ["1", "4", "per-node"])
@pytest.mark.parametrize("policy", ["marl-dqn", "el"])
@pytest.mark.parametrize("spoil", CASES)
def test_the_policy_in_use_goes_on_and_one_line_says_why_of_what_was_heard_and_cannot_be(
    spoil: Callable[[Mesh], str], policy: str, agents: str
) -> None:
    mesh = Mesh(agents, policy)
    for _ in range(3):
        for node in NODES:
            mesh.tell(node)
    mesh.place()
    before = mesh.said()
    words = spoil(mesh)
    lines = [line for line in mesh.said() if line not in before]
    assert len([line for line in lines if words in line]) == (1 if words else 0), lines
    mesh.place()
    used = mesh.scene.core.variants.used[BAD]
    cpu, memory = used.fresh()[:2]
    assert cpu is None or cpu.amount <= 8000
    assert memory is None or memory.amount <= 32 * GIB
    for node in NODES:
        mesh.tell(node)
        mesh.tell(node)
    mesh.place()
