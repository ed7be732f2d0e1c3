"""compose/ with the profile sense: a sensor in a container tells the leader of its node, and the next one after it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.e2e.engine import build_images, call, composes, missing
from tests.e2e.stack import START_S, Stack

NODE = "measured"


@pytest_asyncio.fixture(autouse=True)
async def images() -> None:
    if missing():
        pytest.skip(missing())
    assert composes(), "an engine but no docker compose: install docker-compose"
    await build_images()


async def told(stack: Stack, port: str) -> dict[str, Any]:
    """What the mesh shows of the node's use, by this coordinator's admin API, once its sensor has told of it."""
    tokens = (await stack.inside("sensor", "cat", "/secrets/admin-tokens")).splitlines()
    viewer = next(line.split()[0] for line in tokens if line.split()[1] == "viewer")
    url = f"http://127.0.0.1:{stack.port(port)}/v1/nodes/{NODE}"
    async with asyncio.timeout(START_S), aiohttp.ClientSession(headers={"Authorization": f"Bearer {viewer}"}) as asking:
        while True:  # what is measured is no object that could be watched
            with contextlib.suppress(aiohttp.ClientError):  # a coordinator that takes over is not there yet
                async with asking.get(url) as response:
                    shown: dict[str, Any] = await response.json() if response.status == 200 else {}
                    used = shown.get("used")
                    if used is not None and "sensor" in used["sources"].values():
                        return dict(used)
            await asyncio.sleep(0.5)


async def test_a_sensor_in_a_container_tells_each_leader_of_its_node_and_may_do_nothing_else() -> None:
    async with Stack(composes()[0], profiles=("sense",), environ={"SENSOR_NODE": NODE}) as stack:
        await stack.healthy()
        async with stack.joined() as cluster:
            await cluster.add_node(NODE, cpu="64", memory="256Gi")
            used = await told(stack, "ADMIN_PORT")
            assert used["sources"]["cpu"] == used["sources"]["memory"] == "sensor"
            assert used["memory_bytes"] > 0
            assert used["network"] is None  # a container's interfaces are not the node's

            status = await stack.inside("sensor", "cat", "/proc/1/status")
            facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            assert (set(facts["Uid"].split()), facts["CapBnd"]) == ({"65532"}, "0" * 16)
            with pytest.raises(AssertionError, match="Read-only file system"):
                await stack.inside("sensor", "touch", "/opt/conclave/x")

            leader = await stack.leader()
            await call("docker", "kill", stack.containers[leader].id)
            other = "ADMIN_PORT_2" if leader == "coordinator-1" else "ADMIN_PORT"
            assert (await told(stack, other))["age_s"] < START_S
            await cluster.add_pod("placed")
            await cluster.until(lambda c: c.bound("placed"), within_s=START_S, what="a pod is bound by the next leader")
