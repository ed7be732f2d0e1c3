"""Every overlay can be applied, twice, by kubectl; and the Job of prod makes the Secrets, with its own Role alone.

The API server is the twin: it stores these kinds and acts on none of them. Kinds of cert-manager and the Prometheus
operator are defined first, as their installation does.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from shared.adapters.peers.credentials import TokenFile
from shared.runtime.http.callers import check_role
from tests.manifests.rendering import BUILDS, KUBECTL, NAMESPACE, ROOT, folder_of, rendered
from tests.patience import PATIENCE_S
from tests.process.twin_process import RunningTwin, running_twin

pytestmark = pytest.mark.process
if KUBECTL is None:
    pytest.skip("kubectl is not on PATH", allow_module_level=True)

Kubectl = Callable[..., str]
FOREIGN = (
    ("cert-manager.io", "Certificate", "certificates"),
    ("cert-manager.io", "Issuer", "issuers"),
    ("monitoring.coreos.com", "PrometheusRule", "prometheusrules"),
    ("monitoring.coreos.com", "ServiceMonitor", "servicemonitors"),
)
SCRIPT = ROOT / "k8s/components/peer-secret/make_peer_secret.py"


def definition(group: str, kind: str, plural: str) -> str:
    """A custom resource that takes everything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return json.dumps(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
        }
    )


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTwin]:
    with running_twin(tmp_path_factory.mktemp("twin"), scheme="https") as server:
        yield server


@pytest.fixture
def kubectl(twin: RunningTwin, tmp_path: Path) -> Kubectl:
    def call(*arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [str(KUBECTL), "--kubeconfig", str(twin.kubeconfig), "--cache-dir", str(tmp_path / "cache"), *arguments],
            input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


@pytest.fixture
def defined(kubectl: Kubectl) -> None:
    for group, kind, plural in FOREIGN:
        kubectl("apply", "-f", "-", stdin=definition(group, kind, plural))
    # what an earlier build left: in a cluster a Job is gone ten minutes after its end, the twin runs none
    kubectl("-n", NAMESPACE, "delete", "jobs", "--all")


@pytest.mark.parametrize("build", BUILDS)
def test_an_overlay_is_applied_whole_and_again_without_a_change(kubectl: Kubectl, defined: None, build: str) -> None:
    apply = ("apply", "-k", str(folder_of(build)))
    lines = kubectl(*apply).splitlines()
    assert len(lines) == len(rendered(build))
    assert all(line.split()[-1] in ("created", "configured", "unchanged") for line in lines)
    # kubectl says "configured" of budgets and claim templates even where its patch changes nothing
    versions = ("get", "-k", str(folder_of(build)), "-o", "jsonpath={.items[*].metadata.resourceVersion}")
    before = kubectl(*versions).split()
    assert len(before) == len(lines)
    kubectl(*apply)
    assert kubectl(*versions).split() == before


def test_the_job_makes_the_secrets_once_and_may_do_nothing_else(
    twin: RunningTwin, kubectl: Kubectl, defined: None, tmp_path: Path
) -> None:
    kubectl("apply", "-k", str(folder_of("prod")))
    account = "conclave-make-peer-secret"
    token = kubectl("-n", NAMESPACE, "create", "token", account).strip()
    cluster = yaml.safe_load(twin.kubeconfig.read_text())["clusters"][0]["cluster"]
    mounted = tmp_path / "serviceaccount"
    mounted.mkdir()
    (mounted / "token").write_text(token)
    (mounted / "namespace").write_text(NAMESPACE)
    (mounted / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    host, port = cluster["server"].removeprefix("https://").split(":")
    environ = {**os.environ, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    def run() -> str:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(mounted)], capture_output=True, text=True, env=environ, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def stored(name: str = "conclave-peer-token") -> dict[str, str]:
        data = json.loads(kubectl("-n", NAMESPACE, "get", "secret", name, "-o", "json"))["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    assert run().count("created") == 2
    first, admin = stored(), stored("conclave-admin-token")
    assert "there already" in run()
    assert (stored(), stored("conclave-admin-token")) == (first, admin)
    # services take both tokens, and send their own
    (tmp_path / "token").write_text(first["token"])
    tokens = TokenFile(tmp_path / "token")
    assert tokens.role_of(f"Bearer {first['metrics-token']}") == "metrics"
    assert tokens.role_of(tokens.authorization()) == ""
    # coordinators take one per role, and each is there alone for whoever has that role
    (tmp_path / "tokens").write_text(admin["tokens"])
    tokens = TokenFile(tmp_path / "tokens", check_role=check_role)
    for role in ("admin", "operator", "viewer"):
        assert tokens.role_of(f"Bearer {admin[role]}") == role
    for verb, resource, namespace in (
        ("get", "secrets", NAMESPACE),
        ("create", "secrets", "default"),
        ("list", "pods", NAMESPACE),
    ):
        done = subprocess.run(
            [
                str(KUBECTL), "--kubeconfig", "/dev/null", "--server", cluster["server"], "--token", token,
                "--certificate-authority", str(mounted / "ca.crt"), "auth", "can-i", verb, resource, "-n", namespace,
            ],
            capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path)}, check=False,
        )  # fmt: skip
        assert done.stdout.strip() == "no", (verb, resource, namespace, done.stderr)
