"""Offline pods give way on a real control plane where somebody lends less, within budgets; and they come back."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.real.conftest import RunningPlane, running
from tests.real.scene import Scene
from tests.real.test_preemption_kills import of_these

CPU = "kubernetes.io/batch-cpu"


@pytest.fixture(scope="module", params=["1", "4"])
def mesh(
    plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[str, int]]:
    """A mesh with so many agents, whose offline pods give way; its process id."""
    conclave = str(Path(sys.executable).with_name("conclave"))
    command = (conclave, "up", "--kubeconfig", str(plane.kubeconfig), "--agents", request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONCLAVE_COORDINATOR_OFFLINE_EVICTION", "on")
        with running(
            tmp_path_factory.mktemp("mesh"), "mesh", *command, ready=lambda line: line.startswith("ready")
        ) as (up, _):
            yield request.param, up.pid


@pytest.fixture
async def scene(plane: RunningPlane, mesh: tuple[str, int], request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    async with Scene(plane, f"{request.node.originalname[5:35].replace('_', '-').strip('-')}-{mesh[0]}") as found:
        yield found


async def lend(scene: Scene, node: str, cores: int | None) -> None:
    """As Koordinator's manager writes it; None: it knows nothing, and takes it away."""
    lent = {CPU: None if cores is None else str(1000 * cores)}
    await scene.call("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"capacity": lent, "allocatable": lent}})


async def deployment(scene: Scene, count: int, *, grace_s: int = 0) -> None:
    wanted = {CPU: "1000"}
    spec = {
        "schedulerName": scene.scheduler,
        "nodeSelector": {"scene": scene.name},
        "terminationGracePeriodSeconds": grace_s,
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


async def killed_amid_it(scene: Scene, mesh: int, once: Callable[[], bool]) -> None:
    """All who lead are killed once it holds, while six of eight are to leave; the next ones go on."""
    node = await scene.node("a", slots=1)
    await lend(scene, node, 8)
    await deployment(scene, 8, grace_s=20)
    await scene.until(lambda: bound(scene) == 8)
    killed = of_these(mesh)
    assert len(killed) == 4
    await lend(scene, node, 2)
    await scene.until(once)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    await scene.until(lambda: bound(scene) == 2)
    await scene.rounds_go_by()
    assert len(scene.stopped) == 6


async def test_as_many_leave_as_must_though_all_who_lead_are_killed(scene: Scene, mesh: tuple[str, int]) -> None:
    """Once somebody has been asked to."""
    await killed_amid_it(scene, mesh[1], lambda: bound(scene) < 8)


async def test_who_was_marked_leaves_though_his_binder_was_killed(scene: Scene, mesh: tuple[str, int]) -> None:
    """Between the mark and the eviction: kube-controller-manager would take the mark back after two minutes."""
    await killed_amid_it(scene, mesh[1], lambda: any(scene.condition(pod, "DisruptionTarget") for pod in scene.pods))
