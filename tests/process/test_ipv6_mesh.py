"""A whole mesh of real processes on a machine that has IPv6 alone, as far as they can tell: everything is on ::1.

Pods of such a cluster know their address without brackets (``status.podIP``), the API server's is bare in the
environment, and etcd's endpoints have none either where somebody put them together by a template.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from tests.process.mesh import TOKEN, Mesh, bindings_per_uid
from tests.process.test_mutual_tls_mesh import Certificates

pytestmark = [
    pytest.mark.process,
    pytest.mark.etcd,
    pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this kernel has no IPv6"),
]

AUTOSCALERS = Path(__file__).parents[2] / "k8s/components/autoscaler/resilientautoscalers-crd.yaml"
ADMIN = "admin-token-for-tests"


def ipv4_sockets(pid: int) -> list[str]:
    """TCP and UDP sockets of IPv4 that a process holds, as the kernel writes them."""
    held = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(file.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            held.add(target[8:-1])
    rows = [
        line.split()
        for table in ("tcp", "udp")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return [" ".join(row[1:4]) for row in rows if row[9] in held]


async def places_pods(mesh: Mesh, count: int = 12) -> None:
    await mesh.leader()
    await mesh.leader("binder")
    await mesh.add_nodes(4)
    names = {f"p-{number}" for number in range(count)}
    await asyncio.gather(*(mesh.add_pod(name) for name in names))
    await mesh.wait_bound(names)
    bound = bindings_per_uid(await mesh.audit_until_now())
    assert len(bound) == count
    assert all(len(nodes) == 1 for nodes in bound.values())


async def test_pods_are_placed_where_there_is_nothing_but_ipv6(tmp_path: Path) -> None:
    tokens, admin = tmp_path / "tokens", tmp_path / "admin"
    tokens.write_text(f"{TOKEN}\n")
    admin.write_text(f"{ADMIN} admin\n")
    # as in a pod: every address is listened on, and the pod's own, without brackets, is told to the others
    pod = ["--token-file", str(tokens), "--listen", ":0", "--advertise", "::1", "--live-listen", ":0"]
    flags = {
        "coordinator": [*pod, "--admin-listen", ":0", "--admin-token-file", str(admin)],
        "agent": [*pod, "--node", "node-0", "--probe-listen", ":0", "--sensor-network", "none"],
        "binder": pod,
        "autoscaler": pod,
    }
    async with Mesh(tmp_path, flags=flags, host="::1", agents=1, kinds=(AUTOSCALERS,)) as mesh:
        assert mesh.api_url.startswith("http://[::1]:")
        await mesh.add("autoscaler", 0)
        await places_pods(mesh)
        assert all(one.url.startswith("http://[::1]:") for one in mesh.services.values())
        coordinator = mesh.services[await mesh.leader()]
        assert coordinator.admin_url.startswith("http://[::1]:")
        for pid in (*(one.pid for one in mesh.services.values()), mesh.etcd.pid):
            assert ipv4_sockets(pid) == []
        key = tmp_path / "key"
        key.write_text(f"{ADMIN}\n")
        command = [sys.executable, "-m", "services.cli", "status", "--server", coordinator.admin_url]
        asked = await asyncio.create_subprocess_exec(*command, "--token-file", str(key), stdout=asyncio.subprocess.PIPE)
        output, _ = await asked.communicate()
        assert asked.returncode == 0
        assert b"agent-0" in output


async def test_services_trust_each_other_by_certificate_over_ipv6(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "pki")
    roles = ("coordinator", "agent", "binder")
    for role in roles:
        for number in range(2):
            certificates.make(role, f"{role}-{number}")
    reader = certificates.context("viewer", "test")
    reader.check_hostname = False
    flags = {role: [*certificates.flags, "--listen", "[::1]:0", "--advertise", "::1"] for role in roles}
    async with Mesh(tmp_path, flags=flags, tls=reader, host="::1") as mesh:
        await places_pods(mesh)
        assert all(mesh.services[f"{role}-0"].url.startswith("https://[::1]:") for role in roles)


async def test_an_etcd_endpoint_and_an_address_without_brackets_are_read(tmp_path: Path) -> None:
    """What ``http://$(POD_IP):PORT`` becomes: such a pod ended with code 2."""
    async with Mesh(tmp_path, host="::1", coordinators=1, agents=0, binders=1) as mesh:
        port = mesh.etcd.endpoint.rpartition(":")[2]
        flags = ["--etcd", f"http://::1:{port}", "--id", "agent-0", "--listen", "::1:0", "--advertise", "http://::1:1"]
        running = await mesh.start("agent-0", "agent", flags)
        assert running.url == "http://[::1]:1"
