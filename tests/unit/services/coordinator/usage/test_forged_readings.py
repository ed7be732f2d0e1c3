"""What nobody may tell moves no pod: readings in another agent's name, from its last life, or of another's node."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from services.coordinator.core.events import AgentsChanged, PointerSeen
from services.coordinator.usage.desk import ReadingsDesk, ReadingsRefused
from shared.kube.nodes.latency_targets import LatencyTarget
from shared.model.cluster_events import ObjectChanged
from shared.policy.registry import make_policy, ref_of
from shared.wire.messages import VERSION, Readings
from shared.wire.readings import NodeReading, TargetLatency
from shared.wire.records import PolicyPointer
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

TRUE_MS = {"n0": 50, "n1": 10, "n2": 60}


class Told:
    """A mesh that decides by el, with an agent on each node, and the desk that takes what they tell."""

    def __init__(self) -> None:
        self.scene = Scene(agents=0)
        for number, name in enumerate(TRUE_MS):
            self.scene.join(f"a{number}", node=name, tell=False)
            self.scene.add_node(make_node(name).allocatable(cpu="4", memory="8Gi", pods="110").node())
        self.scene.inbox.append(AgentsChanged(tuple(self.scene.records.values())))
        self.scene.begin()
        self.scene.run()
        for agent in self.scene.agents.values():
            agent.lanes.use(ref_of("el"), make_policy("el"))
        self.scene.inbox.append(PointerSeen(PolicyPointer(active=ref_of("el"), number=1)))
        self.scene.run()
        self.desk = ReadingsDesk(b"s" * 32, Random(1), term=7, region_of=lambda _: "")
        self.desk.changed([ObjectChanged("latencytargets", "shop", LatencyTarget("shop", "shop.example", 443))])
        for number, ms in enumerate(TRUE_MS.values()):
            self.tell(number, ms)

    def tell(self, number: int, ms: float, **changes: Any) -> None:
        """Raises ``ReadingsRefused``."""
        record = self.scene.records[f"a{number}"]
        message = Readings(
            VERSION, 1, 0, 7, record.id, record.incarnation, [NodeReading(record.node, 0, 100, 1 << 20)], None,
            [TargetLatency("shop", round(ms * 1000), 100, 5)],
        )  # fmt: skip
        self.scene.now += 1.0
        self.desk.heard(replace(message, **changes), self.scene.core.registry.views, self.scene.now)
        event = self.desk.flush(self.scene.now)
        assert event is not None
        self.scene.deliver(event)

    def placed(self, name: str) -> str:
        pod = make_pod(name).cpu("100m").memory("64Mi").pod()
        limits = {"latency_soft_us": 20_000, "latency_hard_us": 30_000, "latency_target": "shop"}
        self.scene.add_pod(replace(pod, pod_class=replace(pod.pod_class, **limits)))
        self.scene.run()
        return self.scene.bindings[-1][1]


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"agent": "nobody"}, id="an agent that nobody registered"),
        pytest.param({"incarnation": "before"}, id="another life of the agent"),
        pytest.param({"readings": [NodeReading("n1", 0, 100, 1 << 20)]}, id="another agent's node"),
    ],
)
def test_a_reading_that_is_refused_moves_no_pod(forged: dict[str, Any]) -> None:
    told = Told()
    assert told.placed("before") == "n1"
    with pytest.raises(ReadingsRefused):
        told.tell(0, 1.0, **forged)
    assert told.desk.flush(told.scene.now + 1.0) is None
    assert told.placed("after") == "n1"


def test_without_the_refusal_it_would_move_one() -> None:
    """The safeguard switched off: the agent itself says the same."""
    told = Told()
    told.tell(0, 1.0)
    told.tell(1, 90.0)
    assert told.placed("after") == "n0"
