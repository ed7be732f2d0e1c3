"""A burst of preemptors on a real control plane while all coordinators and binders are killed: no victim in vain."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.conftest import RunningPlane, plane_of, running
from tests.real.plane import missing
from tests.real.test_preemption import CPU, NODES, add, cluster_of, pod_of

KILLED = ("services.coordinator", "services.binder")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningPlane, int]]:
    """A plane that nobody else schedules, and the process id of a mesh against it."""
    if reason := missing():
        pytest.skip(f"no real control plane: {reason}")
    with plane_of(tmp_path_factory.mktemp("plane"), "--nodes", str(NODES), "--cpu", str(CPU)) as plane:
        conclave = str(Path(sys.executable).with_name("conclave"))
        command = (conclave, "up", "--kubeconfig", str(plane.kubeconfig), "--agents", "1")
        folder = tmp_path_factory.mktemp("mesh")
        with running(folder, "mesh", *command, ready=lambda line: line.startswith("ready")) as (mesh, _):
            yield plane, mesh.pid


def of_these(mesh: int) -> list[int]:
    """Process ids of the mesh's coordinators and binders, those that lead and those that stand by."""
    children = [int(pid) for pid in Path(f"/proc/{mesh}/task/{mesh}/children").read_text().split()]
    said = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in children}
    return [pid for pid, words in said.items() if any(name in words for name in KILLED)]


@pytest.mark.parametrize("asked", [1, 10, 20])
async def test_a_burst_takes_one_victim_each_though_all_who_lead_are_killed(
    alone: tuple[RunningPlane, int], asked: int
) -> None:
    """Once so many victims have been asked to leave."""
    plane, mesh = alone
    count, preemptors, name = NODES * CPU, 25, f"kills-{asked}"
    async with cluster_of(plane, name) as cluster:
        await add(cluster, name, *(pod_of(f"low-{n}", 1, "low", "conclave", stop_s=20) for n in range(count)))
        await cluster.until(lambda: cluster.bound("low-") == count, "the nodes are full")
        await add(cluster, name, *(pod_of(f"pre-{n}", 1, "high", "conclave", stop_s=0) for n in range(preemptors)))
        await cluster.until(lambda: len(cluster.victims) >= asked, "some were asked to leave")
        killed = of_these(mesh)
        assert len(killed) == 4
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        await cluster.until(lambda: cluster.bound("pre-") == preemptors, "all preemptors are bound")
        assert len(cluster.victims) == preemptors
        assert cluster.over == set()
