"""The other ways to run compose/: three etcd members and every service; a cluster outside instead of the twin.

The second kind of docker compose is used where both are here, so that both have started every kind of file.
"""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tests.e2e.engine import ROOT, build_images, call, composes, inspect, missing
from tests.e2e.stack import MAIN, Stack, joined
from tests.e2e.test_kubernetes_pods import logged

TOKEN = "token-of-the-cluster-outside"
BOUND_S = 60.0


@pytest_asyncio.fixture(autouse=True)
async def images() -> None:
    if missing():
        pytest.skip(missing())
    assert composes(), "an engine but no docker compose: install docker-compose"
    await build_images()


async def members(stack: Stack, service: str) -> set[str]:
    """The names of the etcd cluster's members, by one of them."""
    url = f"http://{await stack.address(service)}:2379/v3/cluster/member/list"
    async with aiohttp.ClientSession() as session, session.post(url, json={}) as response:
        return {member["name"] for member in (await response.json())["members"]}


async def test_three_members_and_every_service_outlive_the_loss_of_one_member() -> None:
    variant = Stack(
        composes()[-1],
        files=(MAIN, "etcd-cluster.yaml"),
        profiles=("autoscale", "jobs", "learn", "sense"),
        environ={"CONCLAVE_POLICY": "marl-dqn", "SENSOR_NODE": "n0"},
    )
    async with variant as stack:
        await stack.healthy()
        assert {"autoscaler", "jobs", "learner", "sensor"} <= stack.containers.keys()
        assert await members(stack, "etcd-3") == {"etcd", "etcd-2", "etcd-3"}
        async with stack.joined() as cluster:
            await cluster.add_node("n0")
            await logged(stack, "sensor", "readings_taken")
            pods = await cluster.add_pods(f"before-{number}" for number in range(10))
            await cluster.until(lambda c: c.bound(*pods), within_s=BOUND_S, what="pods are bound with three members")
            await call("docker", "kill", stack.containers["etcd"].id)
            more = await cluster.add_pods(f"after-{number}" for number in range(10))
            await cluster.until(lambda c: c.bound(*more), within_s=BOUND_S, what="pods are bound with two members")


@pytest_asyncio.fixture
async def outside(tmp_path: Path) -> AsyncIterator[tuple[Path, str]]:
    """Kubeconfig and URL of an API server on this machine, at an address that containers reach."""
    (bridge,) = (await inspect("network", "bridge"))["IPAM"]["Config"]
    host = bridge.get("Gateway") or str(next(ipaddress.ip_network(bridge["Subnet"]).hosts()))
    kubeconfig = tmp_path / "outside"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "twin", "serve", "--host", host, "--token", TOKEN,
        "--kubeconfig-out", str(kubeconfig), "--simulate", cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(BOUND_S):
            serving, url = (await process.stdout.readline()).decode().split()
        assert serving == "serving"
        kubeconfig.chmod(0o644)  # for the containers' user
        yield kubeconfig, url.replace("https://", "http://")
    finally:
        process.terminate()
        await process.wait()


async def test_an_outside_cluster_is_scheduled_on(outside: tuple[Path, str]) -> None:
    kubeconfig, url = outside
    variant = Stack(composes()[0], files=(MAIN, "outside-cluster.yaml"), environ={"KUBECONFIG_FILE": str(kubeconfig)})
    async with joined(url, TOKEN) as cluster, variant as stack:
        await stack.healthy()
        await cluster.add_node("theirs")
        await cluster.add_pod("theirs")
        await cluster.until(lambda c: c.bound("theirs"), within_s=BOUND_S, what="a pod of the outside cluster is bound")
