"""A node is drained with kubectl while the twin plays its kubelet: evicted pods really end, the others go on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from lab.traces.workload import node_json, pod_json
from tests.patience import PATIENCE_S
from tests.process.twin_process import running_twin

pytestmark = pytest.mark.process

KUBECTL = shutil.which("kubectl")
if KUBECTL is None:
    pytest.skip("no kubectl on PATH", allow_module_level=True)


def test_a_drained_node_is_cordoned_and_its_pods_end(tmp_path):
    with running_twin(tmp_path, "--simulate", "--speed", "50", scheme="https") as twin:

        def kubectl(*arguments: str, body: Any = None) -> str:
            done = subprocess.run(
                [str(KUBECTL), "--kubeconfig", str(twin.kubeconfig), "--cache-dir", str(tmp_path / "c"), *arguments],
                input=None if body is None else json.dumps(body),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                env={**os.environ, "HOME": str(tmp_path)},
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        for name in ("n1", "n2"):
            kubectl("create", "-f", "-", body=node_json(name, {"cpu": "4", "memory": "8Gi", "pods": "110"}))
        kubectl("wait", "--for=condition=Ready", "node", "--all", f"--timeout={PATIENCE_S:.0f}s")
        for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2")):
            pod = pod_json(name, {"cpu": "100m"})
            pod["spec"]["nodeName"] = node
            kubectl("create", "-f", "-", body=pod)
        kubectl("wait", "--for=condition=Ready", "pod", "--all", f"--timeout={PATIENCE_S:.0f}s")
        kubectl("drain", "n1", "--force", f"--timeout={PATIENCE_S:.0f}s")
        left = json.loads(kubectl("get", "pods", "-o", "json"))["items"]
        assert [pod["metadata"]["name"] for pod in left] == ["c"]
        assert left[0]["status"]["phase"] == "Running"
        assert json.loads(kubectl("get", "node", "n1", "-o", "json"))["spec"]["unschedulable"] is True
