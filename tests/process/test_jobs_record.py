"""A live cluster's decisions, recorded while they are taken and imitated afterwards: the whole way, by the commands."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from shared.jobs.history import parse_history
from tests.ports import free_port
from tests.process.mesh import ROOT, Mesh

pytest.importorskip("torch", reason="torch is not installed: nothing is trained")

from tests.patience import PATIENCE_S
from tests.process.test_training_jobs import CRD, FAST, JOBS, Cluster, training_job

pytestmark = [pytest.mark.process, pytest.mark.etcd]

GPU = "nvidia.com/gpu"
NAMES = "abcde"


async def gpu_node(mesh: Mesh, name: str, gpus: int) -> None:
    await mesh.add_nodes(1, named=name, cpu="16")
    patch = {"status": {kind: {GPU: str(gpus)} for kind in ("capacity", "allocatable")}}
    headers = {"Content-Type": "application/merge-patch+json"}
    async with mesh.session.patch(f"{mesh.api_url}/api/v1/nodes/{name}-0/status", json=patch, headers=headers) as told:
        assert told.status == 200, await told.text()


async def lines(path: Path, count: int) -> None:
    """Until so many are written. (A file of another process: there is nothing to await but time.)"""

    def written() -> int:
        return path.read_text().count("\n") if path.exists() else 0

    async with asyncio.timeout(PATIENCE_S):
        while written() < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_what_a_cluster_decided_is_recorded_and_a_policy_learns_to_decide_so(tmp_path: Path):
    port, record, out = free_port(), tmp_path / "history.jsonl", tmp_path / "out"
    flags = {"jobs": [flag.replace("{port}", str(port)) for flag in FAST], "coordinator": ["--embedded-agent"]}
    twin = ["--simulate", "--kubernetes", "1.37"]
    async with Mesh(tmp_path, coordinators=1, agents=0, binders=1, flags=flags, twin_flags=twin, kinds=[CRD]) as mesh:
        for name in ("left", "right"):
            await gpu_node(mesh, name, 4)
        await mesh.add("jobs", 0)
        command = ["jobs", "record", str(record), "--kubeconfig", str(mesh.kubeconfig)]
        recorder = await asyncio.create_subprocess_exec(sys.executable, "-m", "services.cli", *command, cwd=ROOT)
        try:
            await train(mesh, record)
        finally:
            recorder.send_signal(signal.SIGINT)
            ended = await recorder.wait()
    assert ended == 0
    history = parse_history(record.read_text(), record.name)
    assert {job.name for job in history[-1].jobs} == {f"default/{name}" for name in NAMES}
    assert all(sum(job.workers for job in one.jobs) <= one.gpus == 8 for one in history)
    await learns(record, out)


async def train(mesh: Mesh, record: Path) -> None:
    """Jobs that come one after the other, each decided for before the next one is there."""
    cluster = Cluster(mesh)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(cluster.follow())
        for number, name in enumerate(NAMES, 1):
            container = {"name": "c", "image": "i", "resources": {"requests": {GPU: "1"}, "limits": {GPU: "1"}}}
            workers = {"minimum": 1, "maximum": 4, "requested": 4}
            await mesh.create(JOBS, training_job(name, container, workers=workers, checkpoint={"path": "/c"}))
            await cluster.until(name, lambda status: status.get("targetWorkers"), "decided for")
            await lines(record, number)
        following.cancel()


async def learns(record: Path, out: Path) -> None:
    command = ["train", "jobs-dl2", "--warm-up", str(record), "--out", str(out)]
    trainer = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lab.learner", *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await trainer.communicate()
    assert trainer.returncode == 0, told.decode()
    assert "of the increments held back as history.jsonl does" in told.decode()
    assert (out / "jobs-dl2.npz").exists()
