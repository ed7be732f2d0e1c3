"""A rolling upgrade from the last release: its services and this tree's in one mesh, in every mix, under load.

Left out of `make test` for its time; what is written and read across versions is held there by recorded bytes
(``tests/contract/test_versions.py``). The release is a commit of this repository, unpacked into a folder.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.process.mesh import ROOT, Mesh, Running, bindings_per_uid

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.upgrade]

RELEASED = os.environ.get("RELEASED") or "79cb9237"
"""0.1.0: the commit at which the changelog gave it its number."""
SERVICES = ("coordinator", "agent", "binder")
MIXES = {
    "agents": {"agent-0", "agent-1"},
    "coordinators": {"coordinator-0", "coordinator-1"},
    "binders": {"binder-0", "binder-1"},
    "one-of-each": {"agent-0", "coordinator-0", "binder-0"},
    "all": {f"{service}-{number}" for service in SERVICES for number in (0, 1)},
}
"""Who is of the last release when the mesh begins."""
PODS = 40


class MixedMesh(Mesh):
    """Its processes are started, not forked: what is imported differs."""

    forks = False


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    command = ["git", "archive", "--format=tar", RELEASED, "services", "shared"]
    archived = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if archived.returncode:
        told = f"commit {RELEASED} is not in this clone: give RELEASED, or clone with its history"
        if os.environ.get("RELEASED"):
            pytest.fail(told)  # asked for, and not done
        pytest.skip(told)
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def tree_of(mesh: Mesh, name: str) -> Path:
    """Where the process's code lies."""
    return Path(f"/proc/{mesh.services[name].pid}/cwd").readlink()


async def replace(mesh: Mesh, name: str) -> Running:
    """End a process in order, and start this tree's in its place."""
    old = mesh.services[name]
    await old.ready.wait()
    old.wanted = False
    mesh.kill(name, signal.SIGTERM)
    assert old.process is not None
    await old.process.wait()
    service, _, number = name.partition("-")
    return await mesh.add(service, int(number))


async def add_pods(mesh: Mesh, first: int) -> set[str]:
    names = {f"pod-{number}" for number in range(first, first + PODS)}
    for name in sorted(names):
        await mesh.add_pod(name)
    return names


@pytest.mark.parametrize("mix", MIXES)
async def test_a_mesh_of_two_versions_binds_every_pod_once_and_rolls(mix: str, tmp_path: Path, released: Path) -> None:
    older = MIXES[mix]
    async with MixedMesh(tmp_path, coordinators=0, agents=0, binders=0) as mesh:
        await mesh.add_nodes(6)
        environ = {"PYTHONPATH": str(released)}
        await asyncio.gather(
            *(
                mesh.add(service, number, environ if f"{service}-{number}" in older else None)
                for service in SERVICES
                for number in (0, 1)
            )
        )
        assert {name for name in mesh.services if name != "twin" and tree_of(mesh, name) == released} == older
        names = await add_pods(mesh, 0)
        for service in ("coordinator", "binder"):
            mesh.kill(await mesh.leader(service))
        names |= await add_pods(mesh, PODS)
        await mesh.wait_bound(names)
        arriving = asyncio.create_task(add_pods(mesh, 2 * PODS))
        for name in sorted(older):
            await replace(mesh, name)
        names |= await arriving
        await mesh.wait_bound(names)
        found = bindings_per_uid(await mesh.audit_until_now())
        assert sorted(len(nodes) for nodes in found.values()) == [1] * len(names)
        for name in mesh.services:
            assert 1 not in mesh.services[name].codes, name
