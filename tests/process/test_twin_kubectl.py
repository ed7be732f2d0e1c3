"""kubectl works against the twin as it is: over TLS, with the kubeconfig that the twin wrote."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.process.twin_process import TOKEN, RunningTwin, running_twin

pytestmark = pytest.mark.process

KUBECTL = shutil.which("kubectl")
if KUBECTL is None:
    pytest.skip("no kubectl on PATH", allow_module_level=True)

NODE = """
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {kubernetes.io/hostname: %s}}
status:
  capacity: {cpu: "8", memory: 16Gi, pods: "110"}
  allocatable: {cpu: "8", memory: 16Gi, pods: "110"}
  conditions: [{type: Ready, status: "True"}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  nodeName: %s
  containers: [{name: c, image: "%s"}]
"""
QUEUES = Path(__file__).parents[2] / "k8s/base/queues-crd.yaml"
RUNNING = '{"status": {"phase": "Running"}}'
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTwin]:
    with running_twin(tmp_path_factory.mktemp("twin"), scheme="https") as server:
        yield server


def put_metrics(twin: RunningTwin, data: dict[str, Any]) -> None:
    request = urllib.request.Request(f"{twin.url}/twin/metrics", json.dumps(data).encode(), method="PUT")
    request.add_header("Authorization", f"Bearer {TOKEN}")
    urllib.request.urlopen(request, timeout=PATIENCE_S).close()


@pytest.fixture
def kubectl(twin: RunningTwin, tmp_path: Any) -> Kubectl:
    def call(*arguments: str, stdin: str | None = None, fails: bool = False) -> str:
        done = subprocess.run(
            [str(KUBECTL), "--kubeconfig", str(twin.kubeconfig), "--cache-dir", str(tmp_path / "cache"), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={**os.environ, "HOME": str(tmp_path)},
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return call


def test_create_get_describe_and_delete(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "crud")
    assert "pod/p created" in kubectl("-n", "crud", "create", "-f", "-", stdin=POD % ("p", "n9", "pause:1"))
    assert "p      0/1     Pending" in kubectl("-n", "crud", "get", "pods")
    assert "n9" in kubectl("-n", "crud", "get", "pods", "-o", "wide")
    assert "pause:1" in kubectl("-n", "crud", "describe", "pod", "p")
    assert 'pod "p" deleted' in kubectl("-n", "crud", "delete", "pod", "p")
    assert "not found" in kubectl("-n", "crud", "get", "pod", "p", fails=True)


def test_create_validates_on_the_server(kubectl: Kubectl) -> None:
    broken = POD.replace("containers:", "containres:") % ("q", "n9", "pause:1")
    assert 'unknown field "spec.containres"' in kubectl("create", "-f", "-", stdin=broken, fails=True)


def test_apply_twice_patches_the_second_time(kubectl: Kubectl) -> None:
    apply = ("apply", "-f", "-")
    assert "created" in kubectl(*apply, stdin=POD % ("applied", "n9", "pause:1"))
    assert "configured" in kubectl(*apply, stdin=POD % ("applied", "n9", "pause:2"))
    assert "unchanged" in kubectl(*apply, stdin=POD % ("applied", "n9", "pause:2"))
    assert kubectl("get", "pod", "applied", "-o", "jsonpath={.spec.containers[0].image}") == "pause:2"


def test_a_list_is_validated_by_the_published_schemas(kubectl: Kubectl) -> None:
    one = "{apiVersion: v1, kind: ConfigMap, metadata: {name: listed}, %s: {a: b}}"
    items = f"apiVersion: v1\nkind: List\nitems: [{one}]\n"
    assert "configmap/listed created" in kubectl("apply", "-f", "-", stdin=items % "data")
    assert 'unknown field "dada"' in kubectl("apply", "-f", "-", stdin=items % "dada", fails=True)


def test_fields_are_explained_those_of_custom_kinds_too(kubectl: Kubectl) -> None:
    assert "requests\t<map[string]string>" in kubectl("explain", "pod.spec.containers.resources")
    assert "KIND:       Binding" in kubectl("explain", "binding")
    kubectl("apply", "-f", str(QUEUES))
    for form in ("plaintext", "plaintext-openapiv2"):
        assert "The queue above; empty at the top." in kubectl("explain", "queue.spec.parent", f"--output={form}")


def test_top_shows_what_nodes_and_pods_use_where_they_are_played(kubectl: Kubectl, twin: RunningTwin) -> None:
    assert "Metrics API not available" in kubectl("top", "nodes", fails=True)
    put_metrics(twin, {"pods": {"top/p": {"cpu": "300m", "memory": "40Mi"}}})
    try:
        kubectl("create", "namespace", "top")
        kubectl("-n", "top", "create", "-f", "-", stdin=POD % ("p", "n9", "pause:1"))
        kubectl("-n", "top", "patch", "pod", "p", "--subresource=status", "--type=merge", "-p", RUNNING)
        assert "metrics.k8s.io/v1beta1" in kubectl("api-versions").split()
        assert kubectl("top", "pods", "-A", "--no-headers").split() == ["top", "p", "300m", "40Mi"]
        assert kubectl("top", "pod", "p", "-n", "top", "--containers", "--no-headers").split()[1:] == [
            "c",
            "300m",
            "40Mi",
        ]
    finally:
        put_metrics(twin, {})


def test_server_side_apply_names_the_other_manager(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ssa}\ndata: {a: '%s'}\n"
    kubectl(*apply, "--field-manager=one", stdin=config % "1")
    assert 'conflict with "one"' in kubectl(*apply, "--field-manager=two", stdin=config % "2", fails=True)
    kubectl(*apply, "--field-manager=two", "--force-conflicts", stdin=config % "2")
    assert kubectl("get", "configmap", "ssa", "-o", "jsonpath={.data.a}") == "2"


def test_typed_generators_send_protobuf(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "d", "--image=nginx", "--replicas=2", "--port=80")
    kubectl("create", "configmap", "cm", "--from-literal=a=b")
    kubectl("create", "secret", "generic", "s", "--from-literal=x=y")
    kubectl("create", "poddisruptionbudget", "b", "--selector=app=d", "--min-available=1")
    deployment = json.loads(kubectl("get", "deployment", "d", "-o", "json"))
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert kubectl("get", "configmap", "cm", "-o", "jsonpath={.data.a}") == "b"
    assert kubectl("get", "secret", "s", "-o", "jsonpath={.data.x}") == "eQ=="


def test_scale_goes_through_the_subresource(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "scaled", "--image=nginx")
    assert "scaled" in kubectl("scale", "deployment", "scaled", "--replicas=7")
    assert kubectl("get", "deployment", "scaled", "-o", "jsonpath={.spec.replicas}") == "7"


def test_cordon_and_drain_evict_what_runs_there(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=NODE % ("drained", "drained"))
    kubectl("create", "-f", "-", stdin=POD % ("victim", "drained", "pause:1"))
    kubectl("cordon", "drained")
    assert "Ready,SchedulingDisabled" in kubectl("get", "node", "drained")
    assert "node/drained drained" in kubectl("drain", "drained", "--force", f"--timeout={PATIENCE_S:.0f}s")
    assert "not found" in kubectl("get", "pod", "victim", fails=True)
    kubectl("uncordon", "drained")
    assert "SchedulingDisabled" not in kubectl("get", "node", "drained")
    assert "Allocatable" in kubectl("describe", "node", "drained")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTwin]:
    with running_twin(tmp_path_factory.mktemp("played"), "--simulate", "--speed", "20", scheme="https") as server:
        yield server


def test_deployments_roll_out_and_jobs_end(played: RunningTwin, tmp_path: Any) -> None:
    def kubectl(*arguments: str, stdin: str | None = None) -> str:
        base = [str(KUBECTL), "--kubeconfig", str(played.kubeconfig), "--cache-dir", str(tmp_path / "cache")]
        done = subprocess.run(
            [*base, *arguments], input=stdin, capture_output=True, text=True, timeout=PATIENCE_S,
            env={**os.environ, "HOME": str(tmp_path)}, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def bind(selector: str) -> None:
        """What a scheduler does, as there is none."""
        for name in kubectl("get", "pods", "-l", selector, "-o", "jsonpath={.items[*].metadata.name}").split():
            if kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName}"):
                continue
            body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "played"}}
            path = f"/api/v1/namespaces/default/pods/{name}/binding"
            kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))

    node = (NODE % ("played", "played")).replace("labels:", 'annotations: {conclave.io/twin-node: "true"}, labels:')
    kubectl("create", "-f", "-", stdin=node)
    kubectl("create", "deployment", "web", "--image=nginx:1", "--replicas=2")
    kubectl("wait", "--for=jsonpath={.status.replicas}=2", "deployment/web", f"--timeout={PATIENCE_S:.0f}s")
    bind("app=web")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", f"--timeout={PATIENCE_S:.0f}s")
    kubectl("create", "job", "once", "--image=busybox")
    kubectl("wait", "--for=jsonpath={.status.active}=1", "job/once", f"--timeout={PATIENCE_S:.0f}s")
    bind("job-name=once")
    assert "condition met" in kubectl("wait", "--for=condition=complete", "job/once", f"--timeout={PATIENCE_S:.0f}s")
    kubectl("delete", "deployment/web", "job/once", "--cascade=foreground", f"--timeout={PATIENCE_S:.0f}s")
    assert kubectl("get", "pods,replicasets", "-o", "name") == ""


def test_watch_prints_what_happens(kubectl: Kubectl, twin: RunningTwin, tmp_path: Any) -> None:
    kubectl("create", "namespace", "watched")
    watching = subprocess.Popen(
        [str(KUBECTL), "--kubeconfig", str(twin.kubeconfig), "-n", "watched", "get", "pods", "-w"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    try:
        kubectl("-n", "watched", "create", "-f", "-", stdin=POD % ("seen", "n9", "pause:1"))
        assert watching.stdout is not None
        lines = [watching.stdout.readline(), watching.stdout.readline()]
    finally:
        watching.kill()
        watching.wait(PATIENCE_S)
        watching.stdout.close()
    assert lines[0].startswith("NAME")
    assert lines[1].startswith("seen")


def test_token_is_not_sent_in_the_clear(kubectl: Kubectl, twin: RunningTwin) -> None:
    """Why TLS: without it kubectl keeps the token to itself and is nobody."""
    assert "Username    system:admin" in kubectl("auth", "whoami")
    plain = ("--server", twin.url, "--certificate-authority=")
    assert "orbidden" in kubectl(*plain, "get", "--raw", "/api/v1/nodes", fails=True)
