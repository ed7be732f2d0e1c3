"""Offline pods give way on a real control plane where somebody lends less, within budgets; and they come back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.real.conftest import RunningPlane, mesh_of
from tests.real.scene import Scene

CPU = "kubernetes.io/batch-cpu"


@pytest.fixture(scope="module", params=["1", "4"])
def agents(
    plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    """A mesh with so many agents, whose offline pods give way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONCLAVE_COORDINATOR_OFFLINE_EVICTION", "on")
        with mesh_of(plane, tmp_path_factory.mktemp("mesh"), "--agents", request.param):
            yield request.param


@pytest.fixture
async def scene(plane: RunningPlane, agents: str, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    async with Scene(plane, f"{request.node.originalname[5:35].replace('_', '-').strip('-')}-{agents}") as found:
        yield found


async def lend(scene: Scene, node: str, cores: int | None) -> None:
    """As Koordinator's manager writes it; None: it knows nothing, and takes it away."""
    lent = {CPU: None if cores is None else str(1000 * cores)}
    await scene.call("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"capacity": lent, "allocatable": lent}})


async def deployment(scene: Scene, count: int) -> None:
    wanted = {CPU: "1000"}
    spec = {
        "schedulerName": scene.scheduler,
        "nodeSelector": {"scene": scene.name},
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "x", "resources": {"requests": wanted, "limits": wanted}}],
    }
    labels = {"app": "offline", "koordinator.sh/qosClass": "BE"}
    body = {
        "metadata": {"name": "offline"},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": {"app": "offline"}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    await scene.call("POST", f"/apis/apps/v1/namespaces/{scene.name}/deployments", body)


def bound(scene: Scene) -> int:
    standing = (name for name, pod in scene.pods.items() if "deletionTimestamp" not in pod["metadata"])
    return sum(1 for name in standing if scene.node_of(name))


def waiting(scene: Scene) -> int:
    return sum(1 for name in scene.pods if not scene.node_of(name) and f"Insufficient {CPU}" in scene.refused(name))


async def test_a_peak_takes_what_it_must_and_they_come_back(scene: Scene) -> None:
    node = await scene.node("a", slots=1)
    await lend(scene, node, 6)
    await deployment(scene, 6)
    await scene.until(lambda: bound(scene) == 6)
    for lent, gone in ((4, 2), (1, 5)):
        await lend(scene, node, lent)
        await scene.until(lambda lent=lent: bound(scene) == lent and waiting(scene) == 6 - lent)
        assert len(scene.stopped) == gone
    await lend(scene, node, 6)
    await scene.until(lambda: bound(scene) == 6)
    assert len(scene.stopped) == 5


async def test_a_resource_that_is_taken_away_costs_nobody_his_place(scene: Scene) -> None:
    node = await scene.node("a", slots=1)
    await lend(scene, node, 3)
    await deployment(scene, 3)
    await scene.until(lambda: bound(scene) == 3)
    await lend(scene, node, None)
    await scene.rounds_go_by()
    assert scene.stopped == []
    await lend(scene, node, 0)
    await scene.until(lambda: len(scene.stopped) == 3)


async def test_a_disruption_budget_is_kept_and_the_node_says_who_stays(scene: Scene) -> None:
    node = await scene.node("a", slots=1)
    await lend(scene, node, 3)
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "offline"}}}
    path = f"/apis/policy/v1/namespaces/{scene.name}/poddisruptionbudgets"
    await scene.call("POST", path, {"metadata": {"name": "b"}, "spec": spec})
    await deployment(scene, 3)
    await scene.until(lambda: bound(scene) == 3)
    async for event in scene.objects(path):
        if event["object"].get("status", {}).get("disruptionsAllowed") == 1:
            break
    await lend(scene, node, 0)
    events = "/apis/events.k8s.io/v1/namespaces/default/events"
    async for event in scene.objects(events):
        told = event["object"]
        if told.get("reason") == "OfflinePodsStay" and told["regarding"]["name"] == node:
            assert "disruption budget" in told["note"] or "refused" in told["note"]
            break
    assert len(scene.stopped) <= 1
    assert bound(scene) >= 2
