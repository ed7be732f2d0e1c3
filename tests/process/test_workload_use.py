"""marl-dqn in a real mesh learns what workloads use from what the metrics API tells of nodes."""

from __future__ import annotations

import asyncio
import itertools
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from lab.traces.workload import node_json, pod_json
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh
from twin.model.usage import USAGE_ANNOTATION, UsageNow, UsageProfile

pytestmark = [pytest.mark.process, pytest.mark.etcd]

NODES = 2
USE = {"busy": 400, "idle": 20}
LEARNS = ["--policy", "marl-dqn", "--workload-speed", "10"]


def pod(app: str, number: int) -> dict[str, Any]:
    """100m requested whatever the application uses; it runs for 60 s, 6 of ours."""
    use = UsageProfile(((0, UsageNow(cpu_millis=USE[app], memory_bytes=2**25)),), 60.0)
    return pod_json(
        f"{app}-{number}", {"cpu": "100m", "memory": "64Mi"}, labels={"app": app},
        annotations={USAGE_ANNOTATION: use.to_json()},
    )  # fmt: skip


def digest(app: str) -> str:
    return blake2b(f"default/app:{app}".encode(), digest_size=8).hexdigest()


async def test_an_agents_estimates_of_equal_requests_drift_apart(tmp_path: Path) -> None:
    """More pods come until the agent tells the two applications apart; both began as their requests, 100m."""
    flags = {"agent": LEARNS, "coordinator": [*LEARNS, "--metrics-every-s", "0.5"]}
    twin_flags = ["--simulate", "--speed", "10"]
    async with Mesh(tmp_path, coordinators=1, agents=1, binders=1, flags=flags, twin_flags=twin_flags) as mesh:
        for number in range(NODES):
            await mesh.create("/api/v1/nodes", node_json(f"node-{number}", {"cpu": "8", "memory": "8G", "pods": "110"}))
        async with asyncio.timeout(PATIENCE_S):
            for number in itertools.count():
                app = "idle" if number % 3 else "busy"
                await mesh.create("/api/v1/namespaces/default/pods", pod(app, number))
                await mesh.wait_bound({f"{app}-{number}"})
                use = (await mesh.get("agent-0", "/v1/stats"))["agent"]["workload_use"]
                cpu = {app: use[digest(app)][0] * 4000 for app in USE if digest(app) in use}
                if len(cpu) == len(USE) and cpu["busy"] > 300 and cpu["idle"] < 60:
                    break
