"""The whole mesh as processes: pods get bound once, and so are those that come after the leader is killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT, Mesh, bindings_per_uid

pytestmark = [pytest.mark.process, pytest.mark.etcd]


async def test_every_pod_is_bound_once_and_the_standby_takes_over_after_a_kill(tmp_path: Path) -> None:
    async with Mesh(tmp_path) as mesh:
        leader = await mesh.leader()
        await mesh.add_nodes(4)
        names = {f"before-{number}" for number in range(20)}
        for name in sorted(names):
            await mesh.add_pod(name)
        await mesh.wait_bound(names)

        mesh.kill(leader)
        after = {f"after-{number}" for number in range(10)}
        for name in sorted(after):
            await mesh.add_pod(name)
        await mesh.wait_bound(after)
        successor = await mesh.leader()
        assert successor != leader or mesh.services[leader].starts > 1

        # told to end, a leader resigns, and the one that was killed and is back succeeds it
        async with asyncio.timeout(PATIENCE_S):
            await mesh.services[leader].ready.wait()
        mesh.kill(successor, signal.SIGTERM)
        await mesh.add_pod("last")
        await mesh.wait_bound({"last"})
    bound = bindings_per_uid(mesh.audit_entries())
    assert len(bound) == 31
    assert all(len(nodes) == 1 for nodes in bound.values())


async def test_a_paused_leader_ends_itself_and_binds_nothing_twice(tmp_path: Path) -> None:
    async with Mesh(tmp_path, binders=1) as mesh:
        leader = await mesh.leader()
        await mesh.add_nodes(2)
        await mesh.add_pod("first")
        await mesh.wait_bound({"first"})
        mesh.kill(leader, signal.SIGSTOP)
        await mesh.add_pod("second")
        await mesh.wait_bound({"second"})
        running = mesh.services[leader]
        mesh.kill(leader, signal.SIGCONT)
        async with asyncio.timeout(PATIENCE_S):
            await running.ended.wait()
        assert running.codes[0] == 3
    bound = bindings_per_uid(mesh.audit_entries())
    assert all(len(nodes) == 1 for nodes in bound.values())


async def test_an_agents_nodes_are_dealt_to_the_others_when_it_dies(tmp_path: Path) -> None:
    async with Mesh(tmp_path, coordinators=1, binders=1) as mesh:
        await mesh.leader()
        await mesh.add_nodes(4)
        running = mesh.services["agent-0"]
        running.wanted = False
        mesh.kill("agent-0")
        names = {f"p{number}" for number in range(8)}
        for name in sorted(names):
            await mesh.add_pod(name, cpu="2")  # only all four nodes together hold them
        await mesh.wait_bound(names)


async def test_a_leader_that_hangs_before_publishing_is_fenced_and_its_successor_goes_on(tmp_path: Path) -> None:
    async with Mesh(tmp_path, coordinators=0, binders=1) as mesh:
        # longer than its lease: when it wakes, its transaction compares a term that is over
        hung = await mesh.add(
            "coordinator", 0, {"CONCLAVE_FAILPOINT": "before_publish=pause:7", "CONCLAVE_HUNG_AFTER_S": "2"}
        )
        await mesh.add("coordinator", 1)
        await mesh.add_nodes(2)
        await mesh.add_pod("a")
        await mesh.wait_bound({"a"})
        async with asyncio.timeout(PATIENCE_S):
            await hung.ended.wait()
        assert hung.codes[0] == 3
        assert (await mesh.get("coordinator-1", "/v1/status"))["leading"]


async def test_wrong_flags_and_files_end_in_one_line_and_code_2(tmp_path: Path) -> None:
    broken = tmp_path / "kubeconfig"
    broken.write_text("nonsense")
    for flags, expected in (
        (["--polcy", "x"], "did you mean --policy"),
        (["--policy", "x"], "choose one of"),
        (["--kubeconfig", str(tmp_path / "none")], "kubeconfig does not exist"),
        (["--kubeconfig", str(broken)], "not a kubeconfig"),
    ):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.coordinator", *flags, cwd=ROOT, stderr=asyncio.subprocess.PIPE
        )
        _, told = await process.communicate()
        assert process.returncode == 2
        (line,) = told.decode().strip().splitlines()
        assert expected in line
