"""Nodes lend in a real mesh: what online pods leave is written and used, and who leads next goes on with it.

The twin plays the pods and says what they use; nobody writes what is lent but the leading coordinator.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.audit.audit import audit
from lab.audit.log import LogEntry
from lab.traces.workload import node_json, pod_json
from shared.model.resources import parse_quantity
from tests.node_loans import CPU, MANAGER, MEMORY, NAMES, both
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh
from twin.model.usage import USAGE_ANNOTATION, UsageNow, UsageProfile

pytestmark = [pytest.mark.process, pytest.mark.etcd]

LENDS = [
    "--metrics-every-s", "0.5", "--lend", "on", "--lend-window-s", "3", "--lend-rewrite-s", "3",
    "--lend-degrade-s", "3600",
]  # fmt: skip
GIB = 2**30
Json = dict[str, Any]


def pod(name: str, cpu_millis: int, requests: dict[str, str], **spec: Any) -> Json:
    """It uses so much of CPU and 1 GiB, for an hour."""
    use = UsageProfile(((0, UsageNow(cpu_millis=cpu_millis, memory_bytes=GIB)),), 3600.0)
    return pod_json(name, requests, annotations={USAGE_ANNOTATION: use.to_json()}) | spec


async def patch(mesh: Mesh, node: str, status: Json, manager: str) -> None:
    async with mesh.session.patch(
        f"{mesh.api_url}/api/v1/nodes/{node}/status", params={"fieldManager": manager}, json={"status": status},
        headers={"Content-Type": "application/merge-patch+json"},
    ) as response:  # fmt: skip
        assert response.status == 200, await response.text()


Lent = dict[str, tuple[int, ...]]


async def lent_by(mesh: Mesh) -> Lent:
    """CPU and memory that each node lends; -1 where it says nothing of it."""
    async with mesh.session.get(f"{mesh.api_url}/api/v1/nodes") as response:
        nodes = (await response.json())["items"]
    return {
        one["metadata"]["name"]: tuple(parse_quantity(one["status"]["allocatable"].get(name, "-1")) for name in NAMES)
        for one in nodes
    }


async def until_lent(mesh: Mesh, true: Callable[[Lent], bool]) -> Lent:
    """What nodes lend, once it is ``true``."""
    found: Lent = {}
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not true(found := await lent_by(mesh)):  # noqa: ASYNC110  another process changes it
                await asyncio.sleep(0.2)
    except TimeoutError:
        pytest.fail(f"not within {PATIENCE_S:g} s: {found}")
    return found


async def test_what_online_pods_leave_is_lent_and_used(tmp_path: Path) -> None:
    flags = {"coordinator": LENDS}
    async with Mesh(
        tmp_path, coordinators=2, agents=1, binders=1, flags=flags, twin_flags=["--simulate", "--speed", "1"]
    ) as mesh:
        for name in ("ours", "theirs"):
            await mesh.create("/api/v1/nodes", node_json(name, {"cpu": "10", "memory": f"{100 * GIB}", "pods": "110"}))
        await patch(mesh, "theirs", both("1234", "5"), "koord-manager")
        web = pod("web", 2000, {"cpu": "9", "memory": "90Gi"})
        web["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "ours"}
        await mesh.create("/api/v1/namespaces/default/pods", web)
        await mesh.wait_bound({"web"})
        # 60 % of 10 less 2, 65 % of 100 GiB less 1
        lent = await until_lent(mesh, lambda found: found["ours"] == (4000, 64 * GIB))
        assert lent["theirs"] == (1234, 5)

        job = pod("job", 1000, {CPU: "3000", MEMORY: str(GIB)})
        job["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "ours"}
        await mesh.create("/api/v1/namespaces/default/pods", job)
        await mesh.wait_bound({"job"})

        mesh.kill(await mesh.leader())
        other = pod("more", 2500, {"cpu": "100m", "memory": "1Gi"})
        other["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "ours"}
        await mesh.create("/api/v1/namespaces/default/pods", other)
        await mesh.wait_bound({"more"})
        lent = await until_lent(mesh, lambda found: found["ours"] == (1500, 63 * GIB))
        assert lent["theirs"] == (1234, 5)

        entries = await mesh.audit_until_now()
        report = audit([msgspec.convert(one, LogEntry) for one in entries])
        assert (report.lent_wrong, report.overcommitted_nodes, report.double_bound) == (0, 0, 0), report.examples
        said = [
            (one["name"], one["object"]["status"]["allocatable"].get(CPU)) for one in entries if one["kind"] == "Node"
        ]
        assert {amount for name, amount in said if name == "theirs"} == {None, "1234"}
        ours = [parse_quantity(amount) for name, amount in said if name == "ours" and amount is not None]
        # 60 % before anything runs; what a new leader wrote is never more than what it found: its window is empty
        assert max(ours) <= 6000, ours
        assert max(ours[ours.index(4000) :]) == 4000, ours
        assert ours[-1] == 1500, ours
        assert MANAGER in json.dumps(await _managed(mesh, "ours"))


async def _managed(mesh: Mesh, node: str) -> Json:
    async with mesh.session.get(f"{mesh.api_url}/api/v1/nodes/{node}") as response:
        found: Json = await response.json()
        return found["metadata"]["managedFields"]  # type: ignore[no-any-return]
