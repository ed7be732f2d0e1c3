"""The admin API of real processes: through a standby, across a killed leader, and what survives it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh

pytestmark = [pytest.mark.process, pytest.mark.etcd]

TOKENS = {role: f"{role}-token-0123456789" for role in ("viewer", "operator", "admin")}


class Asking:
    """Callers of one mesh's admin API."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh

    async def ask(self, name: str, method: str, path: str, role: str = "admin", **options: Any) -> tuple[int, Any]:
        """(status, JSON)."""
        headers = {"Authorization": f"Bearer {TOKENS[role]}"}
        url = self.mesh.services[name].admin_url + path
        async with self.mesh.session.request(method, url, headers=headers, **options) as response:
            return response.status, await response.json()

    async def until(self, name: str, path: str, holds: Any) -> Any:
        """The first answer of ``name`` for which ``holds``; while it restarts or nobody leads, it is asked again."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    status, answer = await self.ask(name, "GET", path)
                    if status == 200 and holds(answer):
                        return answer
                except aiohttp.ClientError:
                    pass  # it is being started again
                await asyncio.sleep(0.05)

    def standby(self, leader: str) -> str:
        return next(name for name in ("coordinator-0", "coordinator-1") if name != leader)


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    kind = ""
    async for line in response.content:
        if line.startswith(b"event: "):
            kind = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            yield kind, json.loads(line[6:])


@pytest.fixture
def flags(tmp_path: Path) -> dict[str, list[str]]:
    file = tmp_path / "admin-tokens"
    file.write_text("".join(f"{token} {role} {role}-1\n" for role, token in TOKENS.items()))
    return {"coordinator": ["--admin-listen", "127.0.0.1:0", "--admin-token-file", str(file)]}


async def test_what_operators_said_holds_after_the_leader_is_killed(
    tmp_path: Path, flags: dict[str, list[str]]
) -> None:
    async with Mesh(tmp_path, flags=flags) as mesh:
        asking = Asking(mesh)
        await mesh.add_nodes(3)
        leader = await mesh.leader()
        standby = asking.standby(leader)
        await asking.until(standby, "/v1/overview", lambda answer: answer["nodes"]["total"] == 3)
        assert (await asking.ask(standby, "POST", "/v1/scheduling/pause", "viewer"))[0] == 403
        status, paused = await asking.ask(standby, "POST", "/v1/scheduling/pause", json={"reason": "works on the rack"})
        assert (status, paused["paused"], paused["by"]) == (200, True, "admin:admin-1")
        assert (await asking.ask(leader, "POST", "/v1/nodes/node-1/drain", "operator"))[0] == 200
        status, changed = await asking.ask(standby, "PATCH", "/v1/settings", json={"values": {"batch_units": 7}})
        assert (status, changed["number"]) == (200, 1)
        await mesh.add_pod("waits")

        headers = {"Authorization": f"Bearer {TOKENS['viewer']}"}
        url = mesh.services[standby].admin_url + "/v1/decisions/stream"
        async with mesh.session.get(url, headers=headers) as response, asyncio.timeout(PATIENCE_S):
            coming = events(response)
            kind, told = await anext(coming)
            assert (kind, told["id"]) == ("leader", leader)
            mesh.services[leader].may_start.clear()  # else it may be back in time to win again
            mesh.kill(leader)
            async for _ in coming:  # ends with the leader it came from
                pass
        after = await asking.until(standby, "/v1/overview", lambda answer: answer["leader"]["id"] == standby)
        mesh.services[leader].may_start.set()
        assert after["scheduling"]["paused"]
        assert after["scheduling"]["reason"] == "works on the rack"
        assert after["nodes"]["drained"] == 1
        _, settings = await asking.ask(standby, "GET", "/v1/settings")
        assert {s["name"]: (s["value"], s["source"]) for s in settings["items"]}["batch_units"] == (7, "runtime")
        _, terms = await asking.ask(standby, "GET", "/v1/terms")
        assert [term["id"] for term in terms["items"]] == [standby, leader]
        assert terms["items"][1]["ended_by"] == standby
        _, queue = await asking.ask(standby, "GET", "/v1/queue")
        assert [item["name"] for item in queue["items"]] == ["waits"]

        # the one that was killed stands by now, and passes on
        await asking.until(leader, "/v1/leader", lambda answer: answer["id"] == standby)
        assert (await asking.ask(leader, "POST", "/v1/scheduling/resume", "operator"))[0] == 200
        await mesh.wait_bound({"waits"})
        for number in range(6):
            await mesh.add_pod(f"p{number}")
        await mesh.wait_bound({f"p{number}" for number in range(6)})
        assert {pod["spec"]["nodeName"] for pod in await mesh.pods()} == {"node-0", "node-2"}
        members = (await asking.ask(leader, "GET", "/v1/members"))[1]["items"]
        found = {(m["service"], m["id"]): m["leading"] for m in members if m["service"] == "coordinator"}
        assert found == {("coordinator", leader): False, ("coordinator", standby): True}
        _, audit = await asking.ask(leader, "GET", "/v1/audit")
        assert [(item["by"], item["target"]) for item in audit["items"]] == [
            ("operator-1", "scheduling"), ("admin-1", "batch_units"), ("operator-1", "node-1"),
            ("admin-1", "scheduling"),
        ]  # fmt: skip
        lines = [json.loads(line) for line in (tmp_path / f"{standby}.log").read_text().splitlines()]
        assert [line["result"] for line in lines if line.get("event") == "admin_change"] == ["ok"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["--admin-listen", "127.0.0.1:0"], "admin_listen: needs credentials", id="no credentials"),
        pytest.param(["--admin-listen", "nowhere"], "admin_listen: 'nowhere' is not HOST:PORT", id="no address"),
        pytest.param(["--admin-token-file", "/dev/null"], "admin_token_file: is for the admin API", id="no listener"),
    ],
)
async def test_a_wrong_setting_is_one_line_and_exit_code_2(arguments: list[str], told: str, tmp_path: Path) -> None:
    import sys

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.coordinator", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 2
    assert out == b""
    assert err.decode().startswith(f"conclave: {told}")
    assert err.count(b"\n") == 1
