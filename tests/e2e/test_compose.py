"""compose/ on a real engine: a stack comes up, places pods, survives kills and crashes, keeps its secrets, goes down.

One stack for most of it, in the order of the file; each test leaves it healthy. Where no engine answers, each test says
so in one line; what can be said of the files without one is said in ``tests/manifests/test_compose.py``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tests.e2e.engine import BASE, ROOT, build_images, call, composes, inspect, missing
from tests.e2e.stack import Stack
from tests.scenarios.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND_S = 60.0
OURS = ("etcd", "twin", "coordinator-1", "coordinator-2", "binder-1", "binder-2", *(f"agent-{n}" for n in range(1, 5)))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[Stack]:
    if missing():
        pytest.skip(missing())
    assert composes(), "an engine but no docker compose: install docker-compose"
    await build_images()
    async with Stack(composes()[0]) as stack:
        await stack.healthy()
        yield stack


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(stack: Stack) -> AsyncIterator[World]:
    async with stack.joined() as world:
        yield world


async def test_a_cold_stack_is_healthy_and_binds_pods(stack: Stack, cluster: World) -> None:
    assert stack.services == set(OURS) == stack.containers.keys() - {"secrets"}
    assert stack.containers["secrets"].exit_code == 0
    for number in range(3):
        await cluster.add_node(f"n{number}")
    await cluster.add_pods(f"first-{number}" for number in range(12))
    await cluster.until(lambda c: len(c.bound_names("first-")) == 12, within_s=BOUND_S, what="twelve pods are bound")
    assert {cluster.node(name) for name in cluster.bound_names("first-")} == {"n0", "n1", "n2"}


@pytest.mark.parametrize("service", OURS)
async def test_a_container_runs_as_nobody_on_a_root_it_cannot_write(stack: Stack, service: str) -> None:
    told = await inspect("container", stack.containers[service].id)
    assert told["HostConfig"]["ReadonlyRootfs"] is True
    assert told["HostConfig"]["Privileged"] is False
    status = await stack.inside(service, "cat", "/proc/1/status")
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert set(facts["Uid"].split()) == {"65532"}
    assert {facts["CapEff"], facts["CapBnd"]} == {"0" * 16}
    assert facts["NoNewPrivs"] == "1"
    with pytest.raises(AssertionError, match="Read-only file system"):
        await stack.inside(service, "touch", "/opt/conclave/x")


async def test_secrets_are_made_at_first_start_and_each_has_one_reader(stack: Stack) -> None:
    readers = {
        "peer-token": 65532,
        "twin-token": 65532,
        "admin-tokens": 65532,
        "metrics-token": 65534,
        "grafana-password": 472,
    }
    found = set()
    for name, reader in readers.items():
        text = await stack.inside("agent-1", "cat", f"/secrets/{name}", user=reader)
        assert re.fullmatch(r"[0-9a-f]{32,64}", text.split()[0]), name
        found.add(text.split()[0])
        with pytest.raises(AssertionError, match="Permission denied"):
            await stack.inside("agent-1", "cat", f"/secrets/{name}", user=1000)
    assert len(found) == len(readers)


async def test_a_service_lets_nobody_in_without_a_token(stack: Stack) -> None:
    address = await stack.address("agent-1")
    token = (await stack.inside("agent-1", "cat", "/secrets/metrics-token", user=65534)).strip()
    async with aiohttp.ClientSession() as session:
        for headers, status in (({}, 401), ({"Authorization": f"Bearer {token}"}, 200)):
            async with session.get(f"http://{address}:8700/metrics", headers=headers) as response:
                assert response.status == status
        async with session.get(f"http://127.0.0.1:{stack.port('TWIN_PORT')}/api/v1/pods") as response:
            assert response.status in (401, 403)


async def test_both_coordinators_answer_the_admin_api_to_who_has_a_token(stack: Stack) -> None:
    text = await stack.inside("coordinator-1", "cat", "/secrets/admin-tokens")
    tokens = {line.split()[1]: line.split()[0] for line in text.splitlines()}
    assert tokens.keys() == {"admin", "operator", "viewer"}
    leaders = set()
    async with aiohttp.ClientSession() as session:
        for port in ("ADMIN_PORT", "ADMIN_PORT_2"):
            url = f"http://127.0.0.1:{stack.port(port)}/v1"
            async with session.get(f"{url}/leader") as response:
                assert response.status == 401
            viewer = {"Authorization": f"Bearer {tokens['viewer']}"}
            async with session.get(f"{url}/leader", headers=viewer) as response:
                assert response.status == 200, await response.text()
                leaders.add((await response.json())["id"])
            async with session.post(f"{url}/scheduling/pause", headers=viewer, json={"reason": "mine"}) as response:
                assert response.status == 403
    assert leaders == {await stack.leader()}


async def test_pods_go_on_being_bound_when_the_leader_is_killed(stack: Stack, cluster: World) -> None:
    leader = await stack.leader()
    assert leader in ("coordinator-1", "coordinator-2")
    await cluster.add_pods(f"before-{number}" for number in range(20))
    await call("docker", "kill", stack.containers[leader].id)
    await cluster.add_pods(f"after-{number}" for number in range(20))
    await cluster.until(
        lambda c: len(c.bound_names("before-") | c.bound_names("after-")) == 40,
        within_s=BOUND_S, what="pods from before and after the kill are bound",
    )  # fmt: skip
    assert await stack.leader() not in ("", leader)
    # the engine takes `docker kill` for an operator's wish and leaves it dead; so it is started as an operator would
    await stack.compose("up", "-d")
    await stack.healthy()


@pytest.mark.parametrize("role", ["coordinator", "binder"])
async def test_a_leader_that_crashes_is_started_again_by_the_engine(stack: Stack, cluster: World, role: str) -> None:
    leader = await stack.leader(role)
    container = stack.containers[leader]
    pid, starts = (await inspect("container", container.id))["State"]["Pid"], container.starts
    # from outside, as the kernel does when memory ends: the engine did not do it, and nobody asked it to
    killer = ("docker", "run", "--rm", "--pid", "host", "--cap-add", "KILL", "--user", "0", BASE)
    await call(*killer, "python3", "-c", f"import os; os.kill({pid}, 9)")
    pods = await cluster.add_pods(f"crash-{role}-{number}" for number in range(10))
    await stack.until(lambda: container.starts > starts, what=f"{leader} is started again")
    await stack.healthy(leader)
    await cluster.until(lambda c: c.bound(*pods), within_s=BOUND_S, what="pods after the crash are bound")


async def test_a_new_twin_is_found_and_scheduled_on(stack: Stack) -> None:
    """Its cluster is in memory and gone, its certificate another; the mesh must take it as it is."""
    twin = stack.containers["twin"]
    await call("docker", "restart", twin.id)
    await stack.healthy("twin")
    async with stack.joined() as cluster:
        await cluster.add_node("anew")
        await cluster.add_pod("anew")
        await cluster.until(lambda c: c.bound("anew"), within_s=BOUND_S, what="a pod of the new cluster is bound")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
async def test_the_documented_steps_schedule_the_sample(stack: Stack, tmp_path: Path) -> None:
    page = (ROOT / "docs/operations/compose.md").read_text()
    steps = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(steps) >= 3
    said = await stack.typed("\n".join(steps), folder=tmp_path)
    assert len(re.findall(r"^sample-[a-f] +1/1 +Running", said, re.MULTILINE)) == 6, said


async def test_what_was_stopped_goes_on_with_its_secrets_and_its_etcd(stack: Stack) -> None:
    secrets, before = await stack.inside("agent-1", "cat", "/secrets/peer-token"), await stack.revision()
    await stack.compose("down")
    assert not any(container.running for container in stack.containers.values())
    await stack.compose("up", "-d")
    await stack.healthy()
    assert await stack.inside("agent-1", "cat", "/secrets/peer-token") == secrets
    assert await stack.revision() > before
    async with stack.joined() as cluster:
        await cluster.add_node("again")
        await cluster.add_pod("again")
        await cluster.until(lambda c: c.bound("again"), within_s=BOUND_S, what="a pod is bound after down and up")


async def test_nothing_is_left_when_a_stack_is_taken_down_with_its_volumes() -> None:
    if missing():
        pytest.skip(missing())
    # the least that has a network, volumes and a one-shot
    stack = Stack(composes()[-1], start=("etcd",))
    async with stack:
        await stack.healthy("etcd")
        assert await stack.left() != []
    assert await stack.left() == []
