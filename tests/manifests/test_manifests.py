"""compose/ and k8s/ render, validate against Kubernetes' own schemas, and start services with flags they have."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
OVERLAYS = sorted(p.parent.name for p in (ROOT / "k8s" / "overlays").glob("*/kustomization.yaml"))
RELEASES = ["1.34.0", "1.35.0", "1.36.0", "1.37.0"]
KUBECTL = shutil.which("kubectl")

needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl (for kustomize) is not on PATH")


@cache
def rendered(overlay: str) -> tuple[dict[str, Any], ...]:
    assert KUBECTL is not None
    output = subprocess.run(
        [KUBECTL, "kustomize", str(ROOT / "k8s" / "overlays" / overlay)], check=True, capture_output=True, text=True
    )
    return tuple(yaml.safe_load_all(output.stdout))


def pod_specs(documents: tuple[dict[str, Any], ...]) -> dict[str, dict[str, Any]]:
    return {d["metadata"]["name"]: d["spec"]["template"]["spec"] for d in documents if "template" in d.get("spec", {})}


@cache
def flags_of(*command: str) -> frozenset[str]:
    """The long options that ``conclave COMMAND --help`` names."""
    output = subprocess.run(
        [sys.executable, "-m", "services.cli", *command, "--help"], check=True, capture_output=True, text=True, cwd=ROOT
    )
    return frozenset(re.findall(r"--[a-z][a-z-]+", output.stdout))


def check_flags(command: list[str]) -> None:
    """Every flag of a ``conclave`` command line exists."""
    assert command[0] == "conclave"
    words = [word for word in command[1:] if not word.startswith("-")][:2]
    given = {word.split("=")[0] for word in command if word.startswith("--")}
    assert given <= flags_of(*words), (words, sorted(given - flags_of(*words)))


@needs_kubectl
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_is_valid_in_every_release(overlay: str, release: str) -> None:
    for document in rendered(overlay):
        kubernetes_validate.validate(document, release, strict=True)


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_run_restricted_and_are_never_scheduled_by_conclave_itself(overlay: str) -> None:
    specs = pod_specs(rendered(overlay))
    assert specs.keys() == {"conclave-coordinator", "conclave-binder", "conclave-agent", "conclave-etcd"}
    for spec in specs.values():
        assert spec["schedulerName"] == "default-scheduler"
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"]["drop"] == ["ALL"]
            assert {"requests", "limits"} <= container["resources"].keys()


@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_containers_start_services_with_flags_that_exist(overlay: str) -> None:
    for spec in pod_specs(rendered(overlay)).values():
        for container in spec["containers"]:
            if container["command"][0] == "conclave":
                check_flags([*container["command"], *container["args"]])


@needs_kubectl
def test_agents_run_as_a_partitioned_deployment_or_one_per_node() -> None:
    kinds = {
        overlay: next(d["kind"] for d in rendered(overlay) if d["metadata"]["name"] == "conclave-agent" and "spec" in d)
        for overlay in OVERLAYS
    }
    assert kinds == {"daemonset-agents": "DaemonSet", "partition-agents": "Deployment"}


@needs_kubectl
def test_agents_have_no_kubernetes_permission() -> None:
    for overlay in OVERLAYS:
        for document in rendered(overlay):
            if document["kind"] == "ClusterRoleBinding":
                assert all(subject["name"] != "conclave-agent" for subject in document["subjects"])
            if document["kind"] == "ServiceAccount" and document["metadata"]["name"] == "conclave-agent":
                assert document["automountServiceAccountToken"] is False


@needs_kubectl
def test_only_the_binder_may_bind_and_nobody_has_a_wildcard() -> None:
    rules = {d["metadata"]["name"]: d["rules"] for d in rendered("partition-agents") if d["kind"] == "ClusterRole"}
    binding = {name for name, items in rules.items() for rule in items if "pods/binding" in rule["resources"]}
    assert binding == {"conclave-binder"}
    for items in rules.values():
        for rule in items:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "compose" / "docker-compose.yaml").read_text())


def test_compose_runs_the_whole_mesh() -> None:
    services = compose()["services"]
    assert {"etcd", "twin", "secrets"} <= services.keys()
    counts = {kind: sum(name.startswith(kind) for name in services) for kind in ("coordinator", "agent", "binder")}
    assert counts == {"coordinator": 2, "agent": 4, "binder": 2}


def test_compose_starts_services_with_flags_that_exist() -> None:
    for service in compose()["services"].values():
        command = service["command"]
        words = shlex.split(command) if isinstance(command, str) else command
        if words[0] == "conclave":
            check_flags(words)


def test_compose_has_no_default_password() -> None:
    text = (ROOT / "compose" / "docker-compose.yaml").read_text()
    assert not re.search(
        r"(password|token|secret)\s*[:=]\s*[\"']?[A-Za-z0-9]{4,}[\"']?\s*$", text, re.IGNORECASE | re.MULTILINE
    )


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not on PATH")
def test_compose_file_is_accepted_by_docker_compose() -> None:
    subprocess.run(
        ["docker-compose", "-f", str(ROOT / "compose" / "docker-compose.yaml"), "config", "--quiet"], check=True
    )
