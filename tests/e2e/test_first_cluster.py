"""The ten-minute page is followed literally, as a new user would: every command of it, in one shell, on the twin."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.etcd]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first-cluster.md").read_text()
NOT_HERE = ("git clone", "make env", "export PATH")
"""What the machine that runs the tests has done already."""

if any(shutil.which(tool) is None for tool in ("kubectl", "curl", "pgrep")):
    pytest.skip("kubectl, curl or pgrep is not on PATH", allow_module_level=True)


def commands() -> str:
    """The shell blocks of the page up to one's own cluster."""
    on_the_twin = PAGE.split("## The same with your own cluster")[0]
    lines = "\n".join(re.findall(r"^```sh\n(.*?)^```", on_the_twin, re.MULTILINE | re.DOTALL)).splitlines()
    return "\n".join(line for line in lines if not line.startswith(NOT_HERE))


def test_the_page_can_be_followed_literally(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    shim = tmp_path / "bin" / "conclave"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m services.cli "$@"\n')
    shim.chmod(0o755)
    script = commands().replace("--port 8080", f"--port {port}")
    assert f"--port {port}" in script
    # -m: jobs, as in a person's shell; what is started ends with the shell, however that ends
    whole = f"set -emo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n{script}\nwait\n"
    environ = {**os.environ, "PATH": f"{shim.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environ.pop("KUBECONFIG", None)
    done = subprocess.run(
        ["bash", "-c", whole], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=400
    )
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert said.count("condition met") == 6 + 1 + 1
    assert "would help: node-a is the nearest" in said
    assert re.search(r"candidate +lb@1 \(.*\), shadow", said)
    assert re.search(r"default/web-1: bound, on node-[abc]", said)
    assert "node-c: drained by admin:local" in said
    leaders = re.findall(r"^leader +(\S+), term (\d+)", said, re.MULTILINE)
    assert int(leaders[0][1]) < int(leaders[-1][1])  # mostly the other coordinator; the dead one may be back in time
