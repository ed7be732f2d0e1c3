"""Sensors on nodes whose agents measure nothing: what they read reaches whoever decides, and lives through restarts."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from services.sensor.app import run
from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.wire.keys import Keys
from tests.process.changing_proc import STEADY
from tests.process.mesh import Mesh
from tests.process.sensors import at, flags_of, sensing, start
from tests.process.test_mutual_tls_mesh import Certificates
from tests.process.test_sensors import CRD, TARGETS, target, until
from tests.process.test_single_process import ROLES, coordinating, listed

pytestmark = [pytest.mark.process, pytest.mark.etcd]

BUSY = {"node-0": 0.9, "node-1": 0.0}
POLICY = ["--policy", "marl-dqn"]
"""It keeps clear of a busy disk; nobody but a sensor tells of disks here."""
OF_DISKS = ["--policy", "lb", "--load-parts", "disk"]
"""So does this one."""
BOTH = pytest.mark.parametrize("policy", [POLICY, OF_DISKS], ids=["marl-dqn", "lb"])


async def measured(mesh: Mesh, leader: str) -> dict[str, Any]:
    found: dict[str, Any] = (await mesh.get(leader, "/v1/stats"))["coordinator"].get("measured", {})
    return found


async def disks_known(mesh: Mesh, leader: str) -> None:
    async def look() -> list[float]:
        found = await measured(mesh, leader)
        return [found.get(node, {}).get("disk", -1.0) for node in BUSY]

    await until(look, lambda found: found[0] > 0.5 and 0 <= found[1] < 0.1)


async def pods_keep_clear(mesh: Mesh, prefix: str) -> None:
    names = [f"{prefix}{number}" for number in range(3)]
    for name in names:
        await mesh.add_pod(name)
        await mesh.wait_bound({name})
    nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in await mesh.pods()}
    assert [nodes[name] for name in names] == ["node-1"] * 3, nodes


async def both_stand_by_or_lead(mesh: Mesh) -> None:
    """In each role."""
    store = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,)))
    try:
        for role in ROLES:
            await listed(store, {Keys().member(role, f"single-{n}") for n in (0, 1)}, Keys().members_prefix(role))
    finally:
        await store.close()


@BOTH
@pytest.mark.parametrize("agents", [0, 1, 2])
async def test_a_sensors_readings_reach_whoever_decides_for_its_node(
    tmp_path: Path, agents: int, policy: list[str]
) -> None:
    """Agents of any share of the nodes, and the leader itself where there are none."""
    embedded = [] if agents else ["--embedded-agent"]
    flags = {"agent": [*policy, *STEADY], "coordinator": [*policy, *STEADY, "--metrics-every-s", "3600", *embedded]}
    async with Mesh(tmp_path, coordinators=1, agents=agents, binders=1, flags=flags) as mesh:
        await mesh.add_nodes(2, named="node")
        async with sensing(tmp_path, BUSY, [at(mesh.services["coordinator-0"].url)]):
            await disks_known(mesh, "coordinator-0")
            await pods_keep_clear(mesh, "p")


@BOTH
async def test_sensors_are_heard_by_the_mesh_in_one_process_and_by_the_one_that_follows_it(
    tmp_path: Path, policy: list[str]
) -> None:
    async with Mesh(tmp_path, coordinators=0, agents=0, binders=0) as mesh:
        await mesh.add_nodes(2, named="node")
        common = ["--etcd", mesh.etcd.endpoint, "--kubeconfig", str(mesh.kubeconfig), *policy, *STEADY]
        for name in ("single-0", "single-1"):
            await mesh.start(name, "single", [*common, "--metrics-every-s", "3600", "--id", name])
        leader = await coordinating(mesh, ("single-0", "single-1"))
        both = [at(mesh.services[name].url) for name in ("single-0", "single-1")]
        async with sensing(tmp_path, BUSY, both):
            await disks_known(mesh, leader)
            await pods_keep_clear(mesh, "before")
            await both_stand_by_or_lead(mesh)  # who dies after that is missed at once
            mesh.services[leader].wanted = False
            mesh.kill(leader)
            other = ({"single-0", "single-1"} - {leader}).pop()

            async def leads() -> bool:
                told: dict[str, Any] = (await mesh.get(other, "/v1/stats"))["coordinator"]
                return bool(told["leading"])

            await until(leads, bool)
            await disks_known(mesh, other)
            await pods_keep_clear(mesh, "after")


async def test_under_mutual_tls_a_sensor_is_known_by_its_certificate_and_probes_others_and_targets(
    tmp_path: Path,
) -> None:
    certificates = Certificates(tmp_path / "pki")
    for name in ("coordinator-0", "binder-0", "agent-0"):
        certificates.make(name.partition("-")[0], name)
    for node in BUSY:
        certificates.make("sensor", node)
    reader = certificates.context("viewer", "test")
    reader.check_hostname = False
    flags = {service: [*certificates.flags, *STEADY] for service in ("coordinator", "binder", "agent")}
    flags["agent"] += POLICY
    flags["coordinator"] += [*POLICY, "--metrics-every-s", "3600"]
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    mesh = Mesh(tmp_path, coordinators=1, agents=1, binders=1, flags=flags, tls=reader, kinds=[CRD])
    async with server, mesh:
        await mesh.add_nodes(2, named="node")
        await mesh.create(TARGETS, target("shop", server.sockets[0].getsockname()[1]))
        leader = [at(mesh.services["coordinator-0"].url)]
        async with sensing(tmp_path, BUSY, leader, *certificates.flags) as sensors:
            for one in sensors.values():
                await one.told("readings_taken")
            await disks_known(mesh, "coordinator-0")

            async def status() -> dict[str, Any]:
                async with mesh.session.get(f"{mesh.api_url}{TARGETS}/shop") as response:
                    found: dict[str, Any] = (await response.json()).get("status") or {}
                return found

            told = await until(status, lambda found: found.get("nodesMeasuring") == 2)
            assert told["nodesWithSensors"] == 2
            await pods_keep_clear(mesh, "p")
            # who shows another node's certificate, or none of a sensor, is told so in a line, and nothing else changes
            certificates.make("sensor", "node-9")
            wrong = flags_of("node-1", tmp_path / "proc-node-1", leader)
            for holder, code in (("node-9", "foreign_agent"), ("agent-0", "forbidden")):
                files = [word.replace("{name}", holder) for word in certificates.flags]
                one = await start(*wrong, *files)
                line = await one.told("readings_refused", code=code)
                assert line["remedy"]
                assert await one.end() == 0
            await disks_known(mesh, "coordinator-0")


async def test_a_sensor_that_began_earlier_or_on_another_boot_is_refused_and_the_one_in_use_goes_on(
    tmp_path: Path,
) -> None:
    flags = {"coordinator": [*POLICY, *STEADY, "--metrics-every-s", "3600"], "agent": [*POLICY, *STEADY]}
    async with Mesh(tmp_path, coordinators=1, agents=1, binders=1, flags=flags) as mesh:
        await mesh.add_nodes(2, named="node")
        leader = [at(mesh.services["coordinator-0"].url)]
        async with sensing(tmp_path, BUSY, leader):
            await disks_known(mesh, "coordinator-0")
            proc = tmp_path / "proc-of-another"
            (proc / "sys/kernel/random").mkdir(parents=True)
            (proc / "sys/kernel/random/boot_id").write_text("another-boot\n")
            (proc / "stat").write_text("cpu  9 0 0 9 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0\n")
            stray = await start(*flags_of("node-0", proc, leader))
            nobody = await start(*flags_of("node-77", proc, leader))
            assert "give --node" in (await nobody.told("readings_refused", code="node_unknown"))["remedy"]
            await stray.told("readings_refused", code="superseded")
            assert [await one.end() for one in (stray, nobody)] == [0, 0]
            await disks_known(mesh, "coordinator-0")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "node: not set"),
        (["--node", "", "--coordinators", "c:1"], "node: is empty"),
        (["--node", "n", "--coordinators", "c"], "coordinators: 'c' is not HOST:PORT"),
        (["--node", "n", "--coordinators", ":8700"], "coordinators: ':8700' leads nowhere"),
        (["--node", "n", "--coordinators", "c:1", "--host-proc", "/nowhere"], "host_proc: /nowhere is no directory"),
        (["--node", "n", "--coordinators", "c:1", "--tls-ca", "/nowhere"], "tls_ca: give all three"),
        (["--node", "n", "--coordinators", "c:1", "--token-file", "/nowhere"], "token_file: /nowhere cannot be read"),
        (["--node", "n", "--coordinators", "c:1", "--probe-listen", "here:1"], "probe_listen: 'here' is no IP address"),
        (["--node", "n", "--coordinators", "c:1", "--probe-listen", "192.0.2.1:1"], "192.0.2.1:1 cannot be bound"),
        (["--node", "n", "--coordinators", "c:1", "--sensor-every-s", "0"], "--sensor-every-s: '0' cannot be used"),
        (["--nodes", "n"], "--nodes: unknown flag; did you mean --node?"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_one_line_and_code_2(arguments: list[str], line: str) -> None:
    lines: list[str] = []
    thresholds = gc.get_threshold()
    try:
        assert run(arguments, complain=lines.append) == 2
    finally:
        gc.set_threshold(*thresholds)
    (text,) = lines
    assert line in text
    assert text.startswith("conclave sensor: ")
    assert text.count("\n") == 1


async def test_that_line_and_code_are_the_processs() -> None:
    one = await start("--node", "n", "--coordinators", "c")
    assert await one.end_of_itself() == 2
    (told,) = one.lines
    assert told["text"].startswith("conclave sensor: coordinators: 'c' is not HOST:PORT")
