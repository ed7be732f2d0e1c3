"""What a leader shows of a node's zones, and how people read it."""

from __future__ import annotations

import msgspec

from services.cli.operate.nodes import zone_lines
from services.coordinator.inspect.node_zones import numa_shown
from shared.model.cluster_events import ObjectChanged
from shared.model.node_topology import TopologySource
from shared.scheduling.state.zones_port import ZONE_KINDS
from tests.builders import make_node
from tests.unit.services.coordinator.scene import Scene
from tests.unit.shared.scheduling.numa.make import GI, dedicated, katalyst, pod, topology

KIND_OF = {source: kind for kind, source in ZONE_KINDS.items()}


def begun() -> Scene:
    scene = Scene()
    scene.add_node(make_node("n0").allocatable(cpu="16", memory="64Gi").node())
    item = katalyst(gpus=2, held={"a": {0: 3}}, sockets=2)
    scene.inbox.append(ObjectChanged(KIND_OF[TopologySource.KATALYST], "n0", item))
    scene.begin()
    scene.run()
    return scene


def test_what_is_free_and_what_is_assumed_stand_apart() -> None:
    scene = begun()
    core = scene.core
    core.state.cluster.observe(pod("a", dedicated(3), node_name="n0"))
    core.state.cluster.assume(pod("b", dedicated(8, 2 * GI, gpus=1)), "n0", 0.0)
    shown = numa_shown(core, "n0", core.state.now + 5.0)
    assert shown is not None
    assert (shown.source, shown.policy, shown.scope) == ("CustomNodeResource", "numeric", "container")
    assert shown.age_s >= 5.0
    first, second = shown.zones
    assert first.free == {"cpu_millis": 5000, "memory_bytes": 31 * GI, "nvidia.com/gpu": 2}
    assert first.assumed == {}
    assert second.free == {"cpu_millis": 0, "memory_bytes": 30 * GI, "nvidia.com/gpu": 1}
    assert second.assumed == {"cpu_millis": 8000, "memory_bytes": 2 * GI, "nvidia.com/gpu": 1}
    assert second.capacity == {"cpu_millis": 8000, "memory_bytes": 32 * GI, "nvidia.com/gpu": 2}
    lines = zone_lines(msgspec.to_builtins(shown))
    assert lines[0].startswith("  zones      by CustomNodeResource, numeric by container, told ")
    assert lines[2] == (
        "    zone 1, socket 1: cpu 0 of 8 free, memory 30Gi of 32Gi free, nvidia.com/gpu 1 of 2 free; "
        "assumed: cpu 8, memory 2Gi, nvidia.com/gpu 1"
    )


def test_a_node_with_two_objects_is_doubted_and_one_without_shows_nothing() -> None:
    scene = begun()
    assert numa_shown(scene.core, "other", 0.0) is None
    assert zone_lines({}) == []
    scene.inbox.append(ObjectChanged(KIND_OF[TopologySource.KUBELET], "n0", topology()))
    scene.run()
    shown = numa_shown(scene.core, "n0", scene.core.state.now)
    assert shown is not None
    assert shown.doubts == ["it has a NodeResourceTopology too; its CustomNodeResource counts"]
    assert zone_lines(msgspec.to_builtins(shown))[-1] == f"    doubted: {shown.doubts[0]}"
