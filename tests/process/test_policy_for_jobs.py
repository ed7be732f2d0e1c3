"""A policy for training jobs through a live roll-out by ``conclave policy --for jobs``, over the end of its service."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT, Mesh
from tests.process.test_hybrid_rollout import SECRET, Operator

pytestmark = [pytest.mark.process, pytest.mark.etcd]

CRD = ROOT / "k8s/components/jobs/training-jobs-crd.yaml"
JOBS = "/apis/conclave.io/v1alpha1/namespaces/default/trainingjobs"
JOB = {
    "apiVersion": "conclave.io/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "still", "namespace": "default"},
    "spec": {
        "workers": {"minimum": 2, "maximum": 4, "requested": 2},
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}  # fmt: skip


class JobsOperator(Operator):
    """Who asks about training jobs."""

    async def policy(self, *arguments: str) -> dict[str, object]:
        """What became of the roll-out."""
        code, out, error = await self.cli("policy", *arguments, "--for", "jobs", "-o", "json")
        assert code == 0, error
        found: dict[str, object] = json.loads(out)
        return found

    async def decided_by_candidate(self, wanted: bool) -> None:
        """Until the leading jobs service says so of its one job. (It is asked: there is nothing to await but time.)"""
        headers = {"Authorization": f"Bearer {SECRET}"}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                async with self.mesh.session.get(f"{self.url}/v1/jobs", headers=headers) as answer:
                    board = await answer.json()
                if board.get("leading") and [one["candidate"] for one in board["jobs"]] == [wanted]:
                    return
                await asyncio.sleep(0.1)


async def test_it_is_tried_promoted_and_taken_back_and_the_next_leader_goes_on_with_it(tmp_path: Path) -> None:
    token = tmp_path / "admin-token"
    token.touch(mode=0o600)
    token.write_text(f"{SECRET} admin ann\n")
    flags = {
        "coordinator": ["--embedded-agent", "--admin-listen", "127.0.0.1:0", "--admin-token-file", str(token)],
        "jobs": ["--decide-every-s", "2", "--decide-least-s", "0.2", "--validate", "true"],
    }
    twin = ["--simulate", "--kubernetes", "1.37"]
    async with Mesh(
        tmp_path, coordinators=1, agents=0, binders=1, flags=flags, twin_flags=twin, kinds=[CRD]
    ) as mesh:  # fmt: skip
        await mesh.add_nodes(2, cpu="8")
        for number in range(2):
            await mesh.add("jobs", number)
        await mesh.create(JOBS, JOB)
        operator = JobsOperator(mesh, token)
        await operator.decided_by_candidate(False)

        assert (await operator.policy("try", "fifo"))["stage"] == "shadow"
        code, _, error = await operator.cli("policy", "promote", "--for", "jobs")
        assert (code, "fifo has 0 of 1 good windows" in error) == (2, True), error
        told = await operator.policy("promote", "fifo", "--force", "--percent", "40", "--reason", "a test")
        assert (told["stage"], told["percent"], told["forced"]) == ("canary", 40, True)
        assert (await operator.policy("promote", "--force", "--percent", "60"))["percent"] == 60
        assert (await operator.policy("promote", "--force"))["stage"] == "active"
        await operator.decided_by_candidate(True)

        leader = await mesh.leader("jobs")
        mesh.services[leader].ready.clear()
        mesh.kill(leader)
        await operator.decided_by_candidate(True)

        code, out, error = await operator.cli("policy", "list", "--for", "jobs")
        assert code == 0, error
        assert {"elastic settings", "fifo active"} <= {" ".join(line.split()[0:4:3]) for line in out.splitlines()}
        assert (await operator.policy("back"))["stage"] == "none"
        await operator.decided_by_candidate(False)
        code, out, error = await operator.cli("jobs", "policy", "show")
        assert (code, "none: it was taken back" in out) == (0, True), error
