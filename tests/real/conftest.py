"""One real plane for all tests of this folder, and a mesh of ours against it; each test has a namespace of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.real.plane import VARIABLE, missing

ROOT = Path(__file__).parents[2]
START_S = 240.0
"""Until a plane or a mesh serves: a bound for a loaded machine."""
STEADY = ("--lease-ttl-s", "30")
"""For a service that nobody starts anew: on a loaded machine a renewal takes longer than a lease of 3 s."""


@dataclass(frozen=True)
class RunningPlane:
    """Where a plane is that runs in a process of its own."""

    kubeconfig: Path
    url: str
    token: str
    ca: str
    audit_log: Path
    folder: Path

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """What kubectl printed; ``check``: fail with its words where it fails."""
        told = subprocess.run(
            ["kubectl", *arguments], input=stdin, capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder)},
        )  # fmt: skip
        assert not check or told.returncode == 0, f"kubectl {' '.join(arguments)}: {told.stderr or told.stdout}"
        return told.stdout if check else told.stdout + told.stderr

    def get(self, *arguments: str) -> Any:
        """``kubectl get ... -o json``, decoded."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))


@contextlib.contextmanager
def running(folder: Path, name: str, *command: str, ready: Callable[[str], bool]) -> Iterator[tuple[Any, str]]:
    """(process, the line for which ``ready`` was true) of a command; leaving ends it. Its output is in ``name``.log."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert process.stdout is not None
    drains: list[threading.Thread] = []
    overdue = threading.Timer(START_S, process.kill)
    overdue.start()
    try:
        line = next((line for line in process.stdout if ready(line)), "")
        overdue.cancel()
        assert line, f"{name} did not become ready: {log.read_text()[-3000:]}"
        drains.append(threading.Thread(target=process.stdout.read, daemon=True))  # a full pipe would stop it
        drains[0].start()
        yield process, line
    finally:
        overdue.cancel()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for thread in drains:
            thread.join()
        process.stdout.close()


@contextlib.contextmanager
def plane_of(folder: Path, *arguments: str) -> Iterator[RunningPlane]:
    """A plane of a test's own: ``python -m tests.real.plane`` with these arguments."""
    command = (sys.executable, "-m", "tests.real.plane", "--dir", str(folder), *arguments)
    with running(folder, "plane", *command, ready=lambda line: line.startswith("{")) as (_, line):
        told = json.loads(line)
        yield RunningPlane(
            Path(told["kubeconfig"]), told["url"], told["token"], told["ca"], Path(told["audit_log"]), folder
        )


@contextlib.contextmanager
def mesh_of(plane: RunningPlane, folder: Path, *arguments: str) -> Iterator[str]:
    """``conclave up`` against the plane, until it is ready; its ``ready`` line."""
    conclave = str(Path(sys.executable).with_name("conclave"))
    command = (conclave, "up", "--kubeconfig", str(plane.kubeconfig), *arguments)
    with running(folder, "mesh", *command, ready=lambda line: line.startswith("ready")) as (_, line):
        yield line


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    """Six nodes of 4 cpu in three zones, with a kube-scheduler. Skips where the binaries are not."""
    if reason := missing():
        pytest.skip(f"no real control plane: {reason}")
    with plane_of(tmp_path_factory.mktemp("plane"), "--nodes", "6", "--kube-scheduler") as found:
        yield found


@pytest.fixture
def namespace(plane: RunningPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace with its ServiceAccount, gone with its pods after the test."""
    said = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower())[:50].strip("-")
    name = f"t-{said}-{zlib.crc32(request.node.nodeid.encode()):08x}"  # long names of two variants begin alike
    plane.kubectl("create", "namespace", name)
    plane.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=60s")
    yield name
    plane.kubectl("delete", "namespace", name, "--wait=false")
    plane.kubectl("wait", "--for=delete", "pods", "--all", "-n", name, "--timeout=90s")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Every test here is ``real``: this hook of a folder hears of its own tests alone."""
    item.add_marker(pytest.mark.real)


def pytest_report_header() -> str:
    """One line that says whether they run."""
    return f"real control plane: {missing() or os.environ[VARIABLE]}"
