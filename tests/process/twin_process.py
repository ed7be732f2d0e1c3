"""Starting the twin's API server as a process of its own."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("CONCLAVE_SHARED", ROOT.parent / "shared"))
TOKEN = "a-token-for-this-test-only"


@dataclass(frozen=True, slots=True)
class RunningTwin:
    """A server that answers."""

    process: subprocess.Popen[str]
    url: str
    kubeconfig: Path
    audit: Path


@contextlib.contextmanager
def running_twin(folder: Path, *flags: str, scheme: str = "http") -> Iterator[RunningTwin]:
    """A twin on a free port; ended with SIGTERM, which must end it cleanly."""
    kubeconfig, audit = folder / "kubeconfig", folder / "audit.jsonl"
    process = subprocess.Popen(
        [
            sys.executable, "-m", "twin", "--token", TOKEN, "--kubeconfig-out", str(kubeconfig),
            "--kubeconfig-scheme", scheme, "--audit", str(audit), *flags,
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        assert ready, "the twin did not start within 60 s"
        line = process.stdout.readline()
        assert line.startswith("serving "), line
        yield RunningTwin(process, line.split()[1], kubeconfig, audit)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE_S)
        process.stdout.close()
