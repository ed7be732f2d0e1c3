"""What waiting pods show on a real control plane, and what autoscalers would make of it by their own rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.autoscalers import cluster_autoscaler_acts, condition, karpenter_acts
from tests.real.conftest import RunningPlane, mesh_of
from tests.real.scene import Scene

AGENTS = ("0", "1", "4")


@pytest.fixture(scope="module", params=AGENTS)
def agents(
    plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    """A mesh with so many agents."""
    count = str(request.param)
    with mesh_of(plane, tmp_path_factory.mktemp("mesh"), "--agents", count):
        yield count


@pytest.fixture
async def scene(plane: RunningPlane, agents: str) -> AsyncIterator[Scene]:
    async with Scene(plane, f"buys-{agents}") as found:
        yield found


def acts(scene: Scene, name: str, *nodes: str) -> set[bool]:
    pod = scene.pods[name]
    return {cluster_autoscaler_acts(pod, nodes=nodes), karpenter_acts(pod)}


async def test_waiting_pods_buy_nodes_only_where_one_more_would_help(scene: Scene) -> None:
    node = await scene.node("a", slots=2)
    await scene.pod("low", slots=2, held=True)
    await scene.until_bound("low")
    await scene.pod("high", slots=2, priority=300)
    await scene.pod("large", slots=9)
    for name, minimum, count in (("whole", 2, 2), ("short", 3, 2)):
        await scene.group(name, minimum)
        for number in range(count):
            await scene.pod(f"{name}-{number}", slots=2, group=name)
    await scene.pod("orphan", group="none")
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "none"}}
    await scene.pod("unclaimed", volumes=[volume])
    await scene.pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    wanted = {
        "high": "Unschedulable", "large": "Unschedulable", "whole-0": "Unschedulable", "whole-1": "Unschedulable",
        "short-0": "NotReadyForScheduling", "short-1": "NotReadyForScheduling", "orphan": "NotReadyForScheduling",
        "unclaimed": "NotReadyForScheduling", "gated": "SchedulingGated",
    }  # fmt: skip

    def told() -> bool:
        return {name: condition(scene.pods.get(name, {})).get("reason") for name in wanted} == wanted

    await scene.until(lambda: told() and scene.nominated_of("high") == node)
    bought = {name for name in wanted if acts(scene, name, node) == {True}}
    assert bought == {"large", "whole-0", "whole-1"}
    assert all(acts(scene, name, node) == {False} for name in wanted.keys() - bought)


@pytest.mark.parametrize("key", ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"])
async def test_a_nomination_ends_when_an_autoscaler_removes_its_node(
    plane: RunningPlane, agents: str, key: str
) -> None:
    async with Scene(plane, f"removed-{key[:4].lower().strip('.')}-{agents}") as scene:
        node = await scene.node("a", slots=2)
        await scene.pod("low", slots=2, held=True)
        await scene.until_bound("low")
        await scene.pod("high", slots=2, priority=300)
        await scene.until(lambda: scene.nominated_of("high") == node)
        taint = {"key": key, "effect": "NoSchedule"}
        await scene.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})
        await scene.end("low")
        await scene.until(lambda: not scene.nominated_of("high") and scene.refused("high"))
        assert acts(scene, "high", node) == {True}
        other = await scene.node("b", slots=2)
        await scene.until_bound("high")
        assert scene.node_of("high") == other
