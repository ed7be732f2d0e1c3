"""A mixture through a live roll-out by the command line and REST: shadow, canary, active, other weights, back."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.model.pod import POLICY_ANNOTATION
from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT, Mesh, bindings_per_uid

pytestmark = [pytest.mark.process, pytest.mark.etcd]

SECRET = "a-token-for-this-test"
MIXTURE, OTHER = "kube-default=0.7,frag=0.3", "kube-default=0.4,frag=0.6"


class Operator:
    """Who asks the leader, by either way."""

    def __init__(self, mesh: Mesh, token: Path) -> None:
        self.mesh = mesh
        self.url = mesh.services["coordinator-0"].admin_url
        self._flags = ["--server", self.url, "--token-file", str(token)]
        self.pods: set[str] = set()

    async def cli(self, *arguments: str) -> tuple[int, str, str]:
        """(exit code, stdout, stderr) of ``conclave``."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.cli", *arguments, *self._flags,
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(PATIENCE_S):
            out, error = await process.communicate()
        return process.returncode or 0, out.decode(), error.decode()

    async def pointer(self, *arguments: str) -> Any:
        """What ``conclave policy`` made of the pointer."""
        code, out, error = await self.cli("policy", *arguments, "-o", "json")
        assert code == 0, error
        return json.loads(out)["pointer"]

    async def rest(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """(status, JSON) of a POST."""
        headers = {"Authorization": f"Bearer {SECRET}"}
        async with self.mesh.session.post(self.url + path, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def placed_by(self, name: str, count: int = 4) -> set[str]:
        """Create pods; the policies that placed them."""
        names = {f"{name}-{number}" for number in range(count)}
        for one in sorted(names):
            await self.mesh.add_pod(one)
        await self.mesh.wait_bound(names)
        self.pods |= names
        return {
            pod["metadata"]["annotations"][POLICY_ANNOTATION]
            for pod in await self.mesh.pods()
            if pod["metadata"]["name"] in names
        }


async def test_a_mixture_goes_from_shadow_over_canary_to_active_and_is_explained_and_changed(tmp_path: Path) -> None:
    token = tmp_path / "admin-token"
    token.touch(mode=0o600)
    token.write_text(f"{SECRET} admin ann\n")
    flags = {"coordinator": ["--admin-listen", "127.0.0.1:0", "--admin-token-file", str(token)]}
    async with Mesh(tmp_path, coordinators=1, agents=2, binders=1, flags=flags) as mesh:
        await mesh.add_nodes(4)
        await mesh.leader()
        operator = Operator(mesh, token)
        assert await operator.placed_by("before") == {"kube-default@1"}

        pointer = await operator.pointer("try", MIXTURE)
        assert (pointer["stage"], pointer["candidate"]["name"], pointer["candidate"]["version"]) == (
            "shadow",
            "hybrid",
            1,
        )
        assert await operator.placed_by("shadow") == {"kube-default@1"}, "in shadow it places nothing"

        pointer = await operator.pointer("promote", "hybrid@1", "--to", "canary", "--percent", "100", "--force")
        assert (pointer["stage"], pointer["percent"], pointer["active"]["name"]) == ("canary", 100, "kube-default")
        assert await operator.placed_by("canary") == {"hybrid@1"}

        status, answer = await operator.rest("/v1/policies/promote", {"name": "hybrid", "to": "active", "force": True})
        assert status == 200, answer
        assert (answer["pointer"]["active"]["name"], answer["pointer"]["candidate"]) == ("hybrid", None)
        assert await operator.placed_by("active") == {"hybrid@1"}

        code, out, error = await operator.cli("explain", "default/active-0")
        assert code == 0, error
        assert "hybrid@1 gives" in out
        for member, share in (("kube-default", "0.7"), ("frag", "0.3")):
            assert any(member in line and f"x {share} =" in line for line in out.splitlines()), out

        for name in ("kube-default=0,frag=0", "kube-default=nan,frag=1", "kube-default=-1,frag=1"):
            status, answer = await operator.rest("/v1/policies/activate", {"name": name, "stage": "active"})
            assert status == 422, (name, answer)
        assert await operator.placed_by("unharmed") == {"hybrid@1"}

        pointer = await operator.pointer("activate", OTHER, "--stage", "canary")
        assert (pointer["candidate"]["version"], pointer["active"]["version"]) == (2, 1)
        assert await operator.placed_by("other") == {"hybrid@2"}
        pointer = await operator.pointer("back", "--reason", "the old weights were better")
        assert (pointer["active"]["version"], pointer["candidate"]) == (1, None)
        assert await operator.placed_by("back") == {"hybrid@1"}

        nodes = bindings_per_uid(await mesh.audit_until_now())
        assert len(nodes) == len(operator.pods)
        assert all(len(given) == 1 for given in nodes.values())
