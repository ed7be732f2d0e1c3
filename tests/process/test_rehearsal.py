"""A mesh whose demand frag's learned value places badly: the leader rehearses, FGD places, and a new leader goes on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.policy.registry import ref_of
from shared.policy.rollout.rollout import rehearsed_of
from shared.runtime.records.policies import follow_pointer
from shared.wire.keys import Keys
from shared.wire.records import PolicyPointer
from tests.gpu_demand import bulk_pod, machine
from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT, Mesh

pytestmark = [pytest.mark.process, pytest.mark.etcd]

NODES, PODS = 60, 80
FRAG = ref_of("frag")


@asynccontextmanager
async def opened(mesh: Mesh) -> AsyncIterator[EtcdStore]:
    store = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,)))
    try:
        yield store
    finally:
        await store.close()


async def pointer_said(store: EtcdStore) -> PolicyPointer:
    """The first pointer with a verdict on ``frag``."""
    async with asyncio.timeout(PATIENCE_S), aclosing(follow_pointer(store, Keys())) as pointers:
        async for stored in pointers:
            if stored.pointer is not None and rehearsed_of(stored.pointer, FRAG) is not None:
                return stored.pointer
    raise AssertionError("unreachable")


async def placed_by(mesh: Mesh, wanted: str) -> None:
    """Return once every agent's policy places so."""
    async with asyncio.timeout(PATIENCE_S):
        for name in ("agent-0", "agent-1"):
            while True:
                if (await mesh.get(name, "/v1/stats"))["agent"]["policy_placed_by"] == wanted:
                    break
                await asyncio.sleep(0.05)


def new(body: dict[str, Any]) -> dict[str, Any]:
    """Without what the server gives."""
    del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
    return body


async def conclave(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", *arguments, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_fgd_places_once_a_rehearsal_said_so_and_a_new_leader_holds_to_it(tmp_path: Path):
    token = tmp_path / "admin-token"
    token.touch(mode=0o600)
    token.write_text("a-token-for-this-test viewer ann\n")
    admin = ["--admin-listen", "127.0.0.1:0", "--admin-token-file", str(token)]
    flags = {
        "coordinator": ["--policy", "frag", "--rehearse-every-s", "0.2", *admin],
        "agent": ["--policy", "frag"],
    }
    async with Mesh(tmp_path, binders=1, flags=flags) as mesh:
        for number in range(NODES):
            await mesh.create("/api/v1/nodes", new(machine(number).json))
            url = f"{mesh.api_url}/api/v1/nodes/n{number}"
            headers = {"Content-Type": "application/merge-patch+json"}
            async with mesh.session.patch(url, json={"spec": {"taints": None}}, headers=headers) as response:
                assert response.status == 200
        await placed_by(mesh, "frag")
        for number in range(PODS):
            await mesh.create("/api/v1/namespaces/default/pods", new(bulk_pod(number).json))
        async with opened(mesh) as store:
            pointer = await pointer_said(store)
            said = rehearsed_of(pointer, FRAG)
            assert said is not None
            assert (said.places, pointer.active, pointer.by) == ("fgd", FRAG, "rehearsal")
            await placed_by(mesh, "fgd")

            leader = await mesh.leader()
            asked = ["--server", mesh.services[leader].admin_url, "--token-file", str(token)]
            line = f"fgd places for {FRAG.title}: {said.told}"
            assert f"rehearsed  {line}" in await conclave("policy", "show", *asked)
            bound = next(pod["metadata"]["name"] for pod in await mesh.pods() if pod["spec"].get("nodeName"))
            assert f"  fgd places for {FRAG.title} now: {said.told}" in await conclave(
                "explain", f"default/{bound}", *asked
            )

            mesh.kill(leader)
            await mesh.services[leader].ended.wait()
            await mesh.leader()
            assert (await pointer_said(store)).rehearsed == pointer.rehearsed
            await placed_by(mesh, "fgd")
