"""Training jobs as users have them: TrainingJobs in the API server, real ``torchrun`` workers, and services that are
killed.

One mesh, two jobs. The first trains a line with torchrun over gloo, 2 -> 4 -> 2 workers, and is held to the result and
to the steps that it may lose. The second has pods that only run; while both are reshaped the leading jobs service, the
coordinator and the binder are killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.ports import free_port
from tests.process.little_kubelet import FOR_EVER, MERGE, LittleKubelet
from tests.process.mesh import ROOT, Mesh

torch = pytest.importorskip("torch", reason="torch is not installed: no torchrun to test with")

pytestmark = [pytest.mark.process, pytest.mark.etcd]

CRD = ROOT / "k8s/components/jobs/training-jobs-crd.yaml"
SCRIPT = Path(__file__).with_name("torch_worker.py")
JOBS = "/apis/conclave.io/v1alpha1/namespaces/default/trainingjobs"
CONF = "last_call_timeout=3,join_timeout=60,keep_alive_interval=1,keep_alive_max_attempt=5,read_timeout=30"
STEPS, RATE, POINTS = 60, 0.05, 32
FAST = [
    "--decide-every-s", "2", "--decide-least-s", "0.2", "--status-every-s", "1", "--retry-first-s", "1", "--validate",
    "true", "--report-listen", "127.0.0.1:{port}", "--report-url", "http://127.0.0.1:{port}",
]  # fmt: skip

Json = dict[str, Any]


def expected() -> list[float]:
    """What the workers must end with, by plain arithmetic."""
    slope = offset = 0.0
    points = [-1 + 2 * number / (POINTS - 1) for number in range(POINTS)]
    for _ in range(STEPS):
        errors = [(slope * x + offset - (3 * x - 1), x) for x in points]
        slope, offset = (
            slope - RATE * 2 / POINTS * sum(error * x for error, x in errors),
            offset - RATE * 2 / POINTS * sum(error for error, _ in errors),
        )
    return [slope, offset]


class Cluster:
    """The test's own look at the cluster: watches, no polling of objects."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.jobs: dict[str, Json] = {}
        self.changed = asyncio.Condition()

    async def follow(self) -> None:
        async with self.mesh.session.get(f"{self.mesh.api_url}{JOBS}?watch=1", timeout=FOR_EVER) as stream:
            async for line in stream.content:
                event = json.loads(line)
                async with self.changed:
                    self.jobs[event["object"]["metadata"]["name"]] = event["object"]
                    self.changed.notify_all()
        raise AssertionError("the watch of TrainingJobs has ended")

    async def until(self, name: str, reached: Callable[[Json], Any], what: str) -> Json:
        """The job's status, once it is as ``reached`` wants it."""
        try:
            async with asyncio.timeout(PATIENCE_S), self.changed:
                await self.changed.wait_for(lambda: reached(self.jobs.get(name, {}).get("status", {})))
        except TimeoutError:
            raise AssertionError(f"{name}: not {what}: {self.jobs.get(name, {}).get('status')}") from None
        return self.jobs[name]["status"]

    async def scale(self, name: str, workers: int) -> None:
        patch = {"spec": {"workers": {"requested": workers}}}
        async with self.mesh.session.patch(f"{self.mesh.api_url}{JOBS}/{name}", json=patch, headers=MERGE) as answer:
            assert answer.status == 200, await answer.text()


def training_job(name: str, template: Json, **spec: Any) -> Json:
    workers = {"minimum": 2, "maximum": 4, "requested": 2}
    return {
        "apiVersion": "conclave.io/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"workers": workers, "template": {"spec": {"containers": [template]}}, **spec},
    }  # fmt: skip


async def file_says(path: Path, wanted: str) -> None:
    """Until a worker has written it. (Files of another process: there is nothing to await but time.)"""

    def said() -> str:
        return path.read_text() if path.exists() else ""

    async with asyncio.timeout(PATIENCE_S):
        while said() != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def runs_with(workers: int) -> Callable[[Json], bool]:
    return lambda status: status.get("phase") == "Running" and status.get("runningWorkers") == workers


async def kill_leader(mesh: Mesh, service: str) -> None:
    name = await mesh.leader(service)
    mesh.services[name].ready.clear()
    mesh.kill(name)


async def test_torchrun_grows_and_shrinks_while_services_die_and_loses_only_steps_since_its_checkpoint(
    tmp_path: Path,
):
    folder, port = tmp_path / "training", free_port()
    folder.mkdir()
    (folder / "limit").write_text("20")
    flags = {"jobs": [flag.replace("{port}", str(port)) for flag in FAST], "coordinator": ["--embedded-agent"]}
    twin = ["--simulate", "--kubernetes", "1.37"]
    async with (
        Mesh(tmp_path, coordinators=1, agents=0, binders=1, flags=flags, twin_flags=twin, kinds=[CRD]) as mesh,
        LittleKubelet(mesh, tmp_path) as kubelet,
    ):
        await mesh.add_nodes(2, cpu="8")
        await mesh.add("jobs", 0)
        cluster = Cluster(mesh)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(cluster.follow())
            await train(mesh, cluster, kubelet, folder)
            following.cancel()


async def train(mesh: Mesh, cluster: Cluster, kubelet: LittleKubelet, folder: Path) -> None:
    container = {
        "name": "train", "image": "train", "command": [sys.executable, "-m", "torch.distributed.run", str(SCRIPT)],
        "env": [{"name": "PET_RDZV_CONF", "value": CONF}],
    }  # fmt: skip
    line = training_job("line", container, rendezvousPort=free_port(), checkpoint={"path": str(folder)}, backoffLimit=0)
    await mesh.create(JOBS, line)
    await mesh.create(JOBS, training_job("still", {"name": "c", "image": "i"}))
    await cluster.until("line", runs_with(2), "running with 2 workers")
    await file_says(folder / "at", "20 2")
    # 2 -> 4, and all who take part in it die as soon as the decision stands, before the new workers are placed
    for name in ("line", "still"):
        await cluster.scale(name, 4)
    await cluster.until("still", lambda status: status.get("targetWorkers") == 4, "decided for 4 workers")
    for service in ("jobs", "binder", "coordinator"):
        await kill_leader(mesh, service)
    await cluster.until("line", runs_with(4), "running with 4 workers")
    await file_says(folder / "at", "20 4")
    (folder / "limit").write_text("42")
    await file_says(folder / "at", "42 4")
    # 4 -> 2, and those who place pods die
    await kill_leader(mesh, "binder")
    await kill_leader(mesh, "coordinator")
    for name in ("line", "still"):
        await cluster.scale(name, 2)
    await cluster.until("line", runs_with(2), "running with 2 workers again")
    (folder / "limit").write_text("60")
    status = await cluster.until("line", lambda status: status.get("phase") == "Succeeded", "at its end")
    runs = [json.loads(text) for text in (folder / "runs.jsonl").read_text().splitlines()]
    begun = [(run["world"], run["from"]) for run in runs]
    assert (begun[0], begun[-1]) == ((2, 0), (2, 40))
    assert (4, 16) in begun
    # on a machine that is busy torchrun may meet in two steps; no start is from before the newest checkpoint
    assert [start for _, start in begun] == sorted(start for _, start in begun)
    assert {start for _, start in begun} == {0, 16, 40}
    assert json.loads((folder / "result.json").read_text()) == pytest.approx(expected(), abs=1e-9)
    assert (status["restarts"], status["failures"]) == (2, 0)
    assert status["lostSteps"] == 4 + 2 or (len(begun) > 3 and status["lostSteps"] > 6)
    assert status["report"]["steps"] == STEPS
    await cluster.until("still", runs_with(2), "running with 2 workers")
    for job in ("line", "still"):
        counts = kubelet.ran[job]
        reached = counts.index(2)
        until_the_end = counts[reached : -2 if job == "line" else None]
        assert min(until_the_end) >= 2, f"{job} was cut below its minimum: {counts}"
        assert max(counts) == 4
