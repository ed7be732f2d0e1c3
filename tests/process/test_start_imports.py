"""What a process has loaded when its first pod is bound: nothing heavy that a start can do without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.process import test_autoscaler_process as scaling
from tests.process.mesh import ROOT, Mesh
from tests.process.test_controllers_process import Cluster

pytestmark = [pytest.mark.process, pytest.mark.etcd]

LOADED = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)
"""A line of ``python -X importtime``."""

NEVER = frozenset(
    {"cel_expr_python", "click", "cryptography", "kubernetes", "opentelemetry", "psutil", "pydantic", "requests"}
    | {"lab", "numpy.fft", "numpy.ma", "numpy.polynomial", "numpy.random", "rich.console", "scipy", "torch", "twin"}
)
"""Packages, each with what is below it: for commands, plug-ins and other settings than a plain mesh has. structlog asks
for ``rich`` itself, which ``lean.py`` refuses."""
NOT_HERE = {
    "binder": {"services.coordinator", "services.agent", "shared.agent", "shared.autoscaling", "shared.jobs"},
    "agent": {"services.coordinator", "services.binder", "shared.adapters.kube.api", "shared.kube", "yaml"},
    "coordinator": {"services.binder", "services.agent", "services.coordinator.http.routes"},
    "single": {"services.agent", "services.coordinator.http.routes"},
    "controllers": {"services.agent", "services.binder", "services.coordinator", "services.single"},
}
"""What one kind of process leaves to others, or to when it is asked for: without ``--admin-listen`` no admin API."""


class Started(Mesh):
    """Its services are started from nothing, and say what they load."""

    forks = False


def loaded_by(log: Path) -> set[str]:
    return set(LOADED.findall(log.read_text()))


def heavy(loaded: set[str], packages: set[str] | frozenset[str]) -> list[str]:
    return sorted(name for name in loaded if any(name == one or name.startswith(f"{one}.") for one in packages))


def test_what_is_below_a_heavy_package_is_found() -> None:
    assert heavy({"click", "clicker", "numpy.random.mtrand", "numpy"}, NEVER) == ["click", "numpy.random.mtrand"]


async def test_what_a_start_can_do_without_is_not_loaded_when_the_first_pod_is_bound(tmp_path: Path) -> None:
    environ = {"PYTHONPROFILEIMPORTTIME": "1"}
    async with Started(tmp_path, coordinators=1, agents=1, binders=1, environ=environ) as mesh:
        await mesh.add_nodes(2)
        await mesh.add_pod("p")
        await mesh.wait_bound({"p"})
        for service in ("coordinator", "agent", "binder"):
            found = loaded_by(tmp_path / f"{service}-0.log")
            assert f"services.{service}.app" in found, "the log tells what was loaded at all"
            assert heavy(found, NEVER | NOT_HERE[service]) == []


async def test_nor_by_a_mesh_in_one_process(tmp_path: Path) -> None:
    environ = {"PYTHONPROFILEIMPORTTIME": "1"}
    async with Started(tmp_path, coordinators=0, agents=0, binders=0, environ=environ) as mesh:
        await mesh.add_nodes(2)
        await mesh.add_pod("p")
        flags = ["--etcd", mesh.etcd.endpoint, "--id", "single-0", "--listen", "127.0.0.1:0"]
        await mesh.start("single-0", "single", [*flags, "--kubeconfig", str(mesh.kubeconfig), "--embedded-agent"])
        await mesh.wait_bound({"p"})
        found = loaded_by(tmp_path / "single-0.log")
        assert "services.single.app" in found
        assert heavy(found, NEVER | NOT_HERE["single"]) == []


async def test_nor_by_both_controllers_in_one_process_when_the_first_jobs_pod_is_made(tmp_path: Path) -> None:
    environ = {"PYTHONPROFILEIMPORTTIME": "1"}
    definitions = (scaling.CRD, ROOT / "k8s/components/jobs/training-jobs-crd.yaml")
    twin = ["--kubernetes", "1.37"]
    async with Started(
        tmp_path, coordinators=0, agents=0, binders=0, kinds=definitions, twin_flags=twin, environ=environ
    ) as mesh:
        cluster = Cluster(mesh)
        await cluster.add_gpus()
        flags = ["--etcd", mesh.etcd.endpoint, "--id", "controllers-0", "--listen", "127.0.0.1:0"]
        await mesh.start("controllers-0", "controllers", [*flags, "--kubeconfig", str(mesh.kubeconfig)])
        await cluster.leads("controllers-0")
        await cluster.train("j")
        found = loaded_by(tmp_path / "controllers-0.log")
        assert {"services.jobs.app", "services.autoscaler.app"} <= found
        assert heavy(found, NEVER | NOT_HERE["controllers"]) == []
