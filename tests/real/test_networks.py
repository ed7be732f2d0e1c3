"""A real control plane on ::1 with a mesh that has nothing but IPv6, and the manifests for OpenShift on it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.adapters.http.sockets import bound_socket
from shared.hostport import server_of, url_of
from shared.runtime.process.embedded_etcd import find_etcd
from tests.manifests.rendering import folder_of
from tests.process.test_ipv6_mesh import ipv4_sockets
from tests.real.conftest import RunningPlane, plane_of, running
from tests.real.plane import missing


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    """Two nodes; the API server listens on ::1 alone, and Services have addresses of IPv6."""
    if reason := missing():
        pytest.skip(f"no real control plane: {reason}")
    with plane_of(tmp_path_factory.mktemp("plane"), "--nodes", "2", "--host", "::1") as found:
        yield found


def free_port() -> int:
    with bound_socket("::1", 0) as probe:
        port: int = probe.getsockname()[1]
        return port


def test_a_mesh_of_ipv6_alone_places_pods_of_a_cluster_of_ipv6_alone(plane: RunningPlane, tmp_path: Path) -> None:
    assert server_of(plane.url).host == "::1"
    client, peer = (url_of("http", "::1", free_port()) for _ in range(2))
    etcd = (
        str(find_etcd().path), "--name=e", f"--data-dir={tmp_path / 'etcd'}", f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=e={peer}",
    )  # fmt: skip
    (tmp_path / "token").write_text("a-token-between-services\n")
    common = ("--etcd", client, "--listen", ":0", "--advertise", "::1", "--token-file", str(tmp_path / "token"))
    cluster = ("--kubeconfig", str(plane.kubeconfig))
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(running(tmp_path, "etcd", "sh", "-c", 'echo up; exec "$@"', "sh", *etcd,
                                               ready=lambda line: line.startswith("up")))]  # fmt: skip
        for service, more in (("agent", ()), ("binder", cluster), ("coordinator", cluster)):
            command = (sys.executable, "-m", f"services.{service}", "--id", f"{service}-0", *common, *more)
            found = running(tmp_path, service, *command, ready=lambda line: line.startswith("ready"))
            started.append(stack.enter_context(found))
        for number in range(6):
            spec = {"schedulerName": "conclave", "containers": [{"name": "c", "image": "x"}]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p-{number}"}, "spec": spec}
            plane.kubectl("create", "-n", "default", "-f", "-", stdin=json.dumps(pod))
        plane.kubectl("wait", "-n", "default", "--for=condition=PodScheduled", "pod", "--all", "--timeout=90s")
        for process, line in started:
            assert ipv4_sockets(process.pid) == [], line
    assert all(pod["spec"]["nodeName"] for pod in plane.get("pods", "-n", "default")["items"])


def test_pods_without_a_user_of_their_own_meet_pod_security_restricted(plane: RunningPlane) -> None:
    """The API server itself says so at each workload that it is shown; and of one that does not, that it would not."""
    build = str(folder_of("daemonset-agents+openshift"))
    definitions = ("customresourcedefinitions", "--all", "--timeout=60s")
    plane.kubectl("apply", "-k", build)
    plane.kubectl("wait", "--for=condition=Established", *definitions)
    told = plane.kubectl("apply", "-k", build, "--dry-run=server", check=False)
    assert "daemonset.apps/conclave-agent" in told
    assert "would violate PodSecurity" not in told
    bad = json.loads(plane.kubectl("get", "-n", "conclave-system", "deployment/conclave-binder", "-o", "json"))
    bad["metadata"] = {"name": "bad", "namespace": "conclave-system"}
    bad["spec"]["template"]["spec"]["securityContext"].pop("runAsNonRoot")
    told = plane.kubectl("create", "-f", "-", "--dry-run=server", stdin=json.dumps(bad), check=False)
    assert "would violate PodSecurity" in told
