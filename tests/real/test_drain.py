"""``conclave drain NODE --evict`` on a real control plane: its Deployment and disruption controllers decide with us."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.manifests.rendering import ROOT
from tests.real.conftest import RunningPlane, mesh_of
from tests.real.test_workloads import LABELS, make, workload

Json = dict[str, Any]
KIND = ROOT / "k8s/base/reservations-crd.yaml"
BUDGET = {
    "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
    "spec": {"selector": {"matchLabels": LABELS}, "maxUnavailable": 1},
}  # fmt: skip


def drain(plane: RunningPlane, node: str, *flags: str) -> tuple[int, str]:
    """(exit code, what it said)."""
    conclave = str(Path(sys.executable).with_name("conclave"))
    done = subprocess.run(
        [conclave, "drain", node, "--evict", "--kubeconfig", str(plane.kubeconfig), *flags],
        capture_output=True, text=True, timeout=300, check=False, cwd=ROOT,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def where(plane: RunningPlane, namespace: str) -> list[str]:
    """The nodes of the pods that are not on their way out."""
    found: list[Json] = plane.get("pods", "-n", namespace, "-l", "app=web")["items"]
    return sorted(pod["spec"].get("nodeName", "") for pod in found if "deletionTimestamp" not in pod["metadata"])


def test_a_nodes_pods_leave_it_within_their_budget_for_room_that_was_kept(
    plane: RunningPlane, namespace: str, tmp_path: Path
) -> None:
    plane.kubectl("apply", "--server-side", "-f", str(KIND))
    plane.kubectl("wait", "--for=condition=Established", "crd/reservations.conclave.io", "--timeout=60s")
    with mesh_of(plane, tmp_path, "--agents", "1"):
        make(plane, namespace, workload("Deployment", "web", replicas=8), BUDGET)
        plane.kubectl("wait", "-n", namespace, "deployment/web", "--for=jsonpath={.status.readyReplicas}=8",
                      "--timeout=120s")  # fmt: skip
        plane.kubectl("wait", "-n", namespace, "pdb/web", "--for=jsonpath={.status.disruptionsAllowed}=1",
                      "--timeout=60s")  # fmt: skip
        before = where(plane, namespace)
        node = max(set(before), key=before.count)
        watch = subprocess.Popen(
            ["kubectl", "--kubeconfig", str(plane.kubeconfig), "get", "pdb/web", "-n", namespace, "-w",
             "-o", "jsonpath={.status.currentHealthy}{' '}"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            code, said = drain(plane, node)
        finally:
            watch.terminate()
        healthy = [int(count) for count in watch.communicate()[0].split()]
        assert code == 0, said
        assert f"{node}: drained, {before.count(node)} pod" in said
        after = where(plane, namespace)
        assert (len(after), after.count(node)) == (8, 0)
        assert min(healthy) >= 7, f"{healthy}: {said}"  # the budget held at every moment that its controller saw
        kept = plane.get("reservations.conclave.io", "-n", namespace)["items"]
        assert {one["status"]["phase"] for one in kept} <= {"Succeeded"}

        # a pod of nobody: it keeps everybody, and it is said under which flag it goes
        other = max(set(after), key=after.count)
        bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"},
                "spec": {"nodeName": other, "containers": [{"name": "c", "image": "x"}]}}  # fmt: skip
        make(plane, namespace, bare)
        code, said = drain(plane, other)
        assert (code, "--force" in said, "nobody is evicted" in said) == (2, True, True), said
        assert where(plane, namespace) == after
        for name in (node, other):
            plane.kubectl("uncordon", name)
