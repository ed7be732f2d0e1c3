"""Every YAML example of the pages on gangs, queues and training jobs is accepted by an API server, and is scheduled."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.patience import PATIENCE_S
from tests.process.twin_process import ROOT, RunningTwin, running_twin

pytestmark = pytest.mark.process

KUBECTL = shutil.which("kubectl")
PAGES = ("gangs.md", "queues.md")
ACCEPTED = (*PAGES, "jobs.md")
DEFINITIONS = (
    ROOT / "k8s/components/plugins-pod-groups/pod-groups.yaml",
    ROOT / "k8s/base/queues-crd.yaml",
    ROOT / "k8s/components/jobs/training-jobs-crd.yaml",
)
Kubectl = Callable[..., str]


def examples(page: str) -> list[str]:
    """The YAML blocks of a page."""
    return re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTwin]:
    with running_twin(tmp_path_factory.mktemp("docs"), "--simulate", "--kubernetes", "1.37", scheme="https") as server:
        yield server


@pytest.fixture
def kubectl(tmp_path: Path, twin: RunningTwin) -> Kubectl:
    if KUBECTL is None:
        pytest.skip("no kubectl on PATH")

    def call(*arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [str(KUBECTL), "--kubeconfig", str(twin.kubeconfig), "--cache-dir", str(tmp_path / "cache"), *arguments],
            input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, "HOME": str(tmp_path)},
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


def test_every_example_is_accepted_with_strict_validation(kubectl: Kubectl) -> None:
    for file in DEFINITIONS:
        kubectl("apply", "-f", str(file))
    for definition in ("podgroups.scheduling.x-k8s.io", "queues.conclave.io", "trainingjobs.conclave.io"):
        kubectl("wait", f"crd/{definition}", "--for=condition=Established", f"--timeout={PATIENCE_S:.0f}s")
    for page in ACCEPTED:
        blocks = examples(page)
        assert blocks, page
        for block in blocks:
            told = kubectl("apply", "--validate=strict", "-f", "-", stdin=block)
            assert len(told.splitlines()) == len(list(yaml.safe_load_all(block))), (page, told)


@pytest.mark.etcd
def test_the_examples_are_scheduled_by_a_mesh(kubectl: Kubectl, twin: RunningTwin, tmp_path: Path) -> None:
    """The Jobs of both pages run to their end: gangs by a PodGroup and by an annotation, and a pod of a queue."""
    for file in (*DEFINITIONS, ROOT / "docs/examples/nodes.yaml"):
        kubectl("apply", "-f", str(file))
    for page in PAGES:
        for block in examples(page):
            kubectl("apply", "-f", "-", stdin=block)
    jobs = [
        one["metadata"]["name"]
        for page in PAGES
        for block in examples(page)
        for one in yaml.safe_load_all(block)
        if one["kind"] == "Job"
    ]
    flags = ["--kubeconfig", str(twin.kubeconfig), "--keep", str(tmp_path / "mesh")]
    with running_mesh(*flags, "--coordinators", "1", "--binders", "1", "--agents", "1"):
        for job in jobs:
            kubectl("wait", f"job/{job}", "--for=condition=complete", f"--timeout={PATIENCE_S:.0f}s")
    assert sorted(jobs) == ["sweep", "train", "transcribe"]


@contextlib.contextmanager
def running_mesh(*flags: str) -> Iterator[None]:
    """``conclave up`` until it says ready; ended with SIGTERM, which must end it cleanly."""
    process = subprocess.Popen(
        [sys.executable, "-m", "services.cli", "up", *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        while not (line := process.stdout.readline()).startswith("ready "):
            assert line, "the mesh ended before it was ready"
        yield
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE_S)
        process.stdout.close()


def test_the_examples_are_seen_as_what_the_pages_say() -> None:
    found = {one["kind"]: one for page in PAGES for block in examples(page) for one in yaml.safe_load_all(block)}
    assert set(found) == {"PodGroup", "Job", "StatefulSet", "Queue"}
    kinds = [one for block in examples("gangs.md") for one in yaml.safe_load_all(block)]
    assert [one["apiVersion"] for one in kinds if one["kind"] == "PodGroup"] == [
        "scheduling.k8s.io/v1beta1", "scheduling.x-k8s.io/v1alpha1",
    ]  # fmt: skip
    for one in (one for one in kinds if "template" in one["spec"]):
        assert pod_of(one)["schedulerName"] == "conclave"


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec
