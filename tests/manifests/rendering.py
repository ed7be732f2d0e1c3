"""What `kubectl kustomize` makes of k8s/: every overlay, and every overlay with a component added.

A copy of the tree is rendered, since one component needs certificates that a script makes and git ignores.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
OVERLAYS = sorted(p.parent.name for p in (ROOT / "k8s" / "overlays").glob("*/kustomization.yaml"))
ADDED = {
    "prod+monitoring": ("prod", "monitoring", "monitoring-mtls"),
    "daemonset-agents+monitoring": ("daemonset-agents", "monitoring"),
    "partition-agents+autoscaler": ("partition-agents", "autoscaler"),
    "partition-agents+learner": ("partition-agents", "learner", "plugins-pod-groups"),
    "partition-agents+jobs": ("partition-agents", "jobs"),
    "partition-agents+lending": ("partition-agents", "lending"),
    "prod+rebalancer+monitoring": (
        "../base", "agents-deployment", "sensors", "rebalancer", "etcd-internal", "certs-cert-manager", "peer-secret",
        "etcd-roles", "peer-mtls", "monitoring", "monitoring-mtls",
    ),
    "partition-agents+profiles": ("partition-agents", "profiles"),
    "etcd-internal+certs-plain-secret": ("etcd-internal", "certs-plain-secret", "etcd-roles", "peer-mtls"),
    "daemonset-agents+agents-host-sensors": ("../base", "agents-daemonset", "etcd-single", "agents-host-sensors"),
    "prod+sensors-host": ("prod", "sensors-host"),
    "partition-agents+autoscaler+jobs+learner+shard": (
        "partition-agents", "binder-shard", "autoscaler", "jobs", "learner",
    ),
    "prod+autoscaler+jobs+learner+shard+monitoring": (
        "../base", "binder-shard", "agents-deployment", "sensors", "autoscaler", "jobs", "learner",
        "plugins-pod-groups", "etcd-internal", "certs-cert-manager", "peer-secret", "etcd-roles", "peer-mtls",
        "monitoring", "monitoring-mtls",
    ),
    "daemonset-agents+openshift": ("daemonset-agents", "peer-secret", "openshift"),
    "prod+autoscaler+jobs+learner+shard+openshift": (
        "../base", "binder-shard", "agents-deployment", "sensors", "autoscaler", "jobs", "learner",
        "plugins-pod-groups", "etcd-internal", "certs-cert-manager", "peer-secret", "etcd-roles", "peer-mtls",
        "monitoring", "monitoring-mtls", "openshift",
    ),
}  # fmt: skip
"""Overlays with components, as an operator's own overlay would add it; or the base with all components of it."""

BUILDS = [*OVERLAYS, *ADDED]
KUBECTL = shutil.which("kubectl")
NAMESPACE = "conclave-system"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's, where it is there: a build has thousands of lines."""
JOBS = {"conclave-make-peer-secret", "conclave-etcd-roles"}
"""Pods that run once: nothing reaches them."""
MUTUAL_TLS = {
    "prod",
    "prod+monitoring",
    "prod+sensors-host",
    "prod+rebalancer+monitoring",
    "prod+autoscaler+jobs+learner+shard+monitoring",
    "prod+autoscaler+jobs+learner+shard+openshift",
    "etcd-internal+certs-plain-secret",
}
"""Builds whose services know each other by certificate."""

needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl (for kustomize) is not on PATH")


@cache
def tree() -> Path:
    """A copy of k8s/ with a folder per overlay with components, and the certificates that the script makes."""
    folder = Path(tempfile.mkdtemp(prefix="conclave-k8s-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("certs")
    shutil.copytree(ROOT / "k8s", folder / "k8s", ignore=ignored)
    script = folder / "k8s/components/certs-plain-secret/make-certs.sh"
    command = f"{sys.executable} -m services.cli"
    environ = {**os.environ, "CONCLAVE": command, "PYTHONPATH": str(ROOT)}
    subprocess.run(["sh", str(script)], check=True, capture_output=True, env=environ)
    for build, (overlay, *components) in ADDED.items():
        mine = folder / "k8s/overlays" / build
        mine.mkdir()
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": NAMESPACE,
            "resources": [f"../{overlay}"],
            "components": [f"../../components/{component}" for component in components],
        }
        (mine / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return folder / "k8s"


def folder_of(build: str) -> Path:
    """What to give ``kubectl apply -k``."""
    return tree() / "overlays" / build


@cache
def rendered(build: str) -> tuple[Json, ...]:
    """The objects of a build."""
    assert KUBECTL is not None
    output = subprocess.run([KUBECTL, "kustomize", str(folder_of(build))], check=True, capture_output=True, text=True)
    return tuple(yaml.load_all(output.stdout, Loader=LOADER))


def role_of(workload: str) -> str:
    """Which service a workload is: the binders of a further shard are binders."""
    return workload.removeprefix("conclave-").removesuffix("-1")


def of_kind(build: str, *kinds: str) -> list[Json]:
    """The objects of these kinds."""
    return [document for document in rendered(build) if document["kind"] in kinds]


def pod_templates(build: str) -> dict[str, Json]:
    """Name of the workload to its pod template."""
    documents = of_kind(build, "Deployment", "DaemonSet", "StatefulSet", "Job")
    return {document["metadata"]["name"]: document["spec"]["template"] for document in documents}
