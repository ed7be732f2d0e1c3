"""Two meshes, each with its own etcd, on one cluster and one scheduler name: one schedules, the other stands by."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh, bindings_per_uid

pytestmark = [pytest.mark.process, pytest.mark.etcd]

LEASE = ["--cluster-lease-s", "15"]
"""Longer than a hand-over within a mesh takes, on a loaded machine too."""


def lines_of(log: Path) -> list[str]:
    return log.read_text().splitlines()


async def wait_line(log: Path, word: str) -> str:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = [line for line in lines_of(log) if word in line]
            if found:
                return found[0]
            await asyncio.sleep(0.1)


async def test_a_second_mesh_stays_out_until_the_first_is_gone(tmp_path: Path) -> None:
    other = EmbeddedEtcd(EmbeddedEtcdSettings(data_dir=tmp_path / "other-etcd", fsync=False))
    async with Mesh(tmp_path, coordinators=2, agents=1, binders=1, flags={"coordinator": LEASE}) as mesh, other:
        await mesh.leader()
        await mesh.add_nodes(2)
        kube = ["--kubeconfig", str(mesh.kubeconfig)]
        for service, flags in (("coordinator", [*kube, *LEASE]), ("binder", kube), ("agent", [])):
            await mesh.start(
                f"other-{service}", service, ["--etcd", other.endpoint, "--id", f"other-{service}", *flags]
            )
        log = mesh.services["other-coordinator"].log
        line = await wait_line(log, "cluster_taken")
        assert "kube-system/conclave.conclave" in line
        first = {f"first-{number}" for number in range(6)}
        for name in sorted(first):
            await mesh.add_pod(name)
        await mesh.wait_bound(first)
        # within the first mesh a hand-over does not wait for the Lease
        mesh.kill(await mesh.leader())
        second = {f"second-{number}" for number in range(6)}
        for name in sorted(second):
            await mesh.add_pod(name)
        await mesh.wait_bound(second)
        assert not any("cluster_free" in line for line in lines_of(log))
        # the first mesh goes: its coordinators stay down
        for name in ("coordinator-0", "coordinator-1"):
            mesh.services[name].wanted = False
            mesh.kill(name)
        third = {f"third-{number}" for number in range(6)}
        for name in sorted(third):
            await mesh.add_pod(name)
        await mesh.wait_bound(third)
        assert any("cluster_free" in line for line in lines_of(log))
    bound = bindings_per_uid(mesh.audit_entries())
    assert len(bound) == 18
    assert all(len(nodes) == 1 for nodes in bound.values()), bound
