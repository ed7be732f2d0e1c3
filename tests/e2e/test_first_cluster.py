"""The ten-minute page is followed literally, as a new user would: every command of it, in one shell, on the twin."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from tests.pages import check_first_cluster, commands, follow, page

pytestmark = [pytest.mark.process, pytest.mark.etcd]

if any(shutil.which(tool) is None for tool in ("kubectl", "curl", "pgrep")):
    pytest.skip("kubectl, curl or pgrep is not on PATH", allow_module_level=True)


def test_the_page_can_be_followed_literally(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    written = commands(page("first-cluster.md").split("## The same with your own cluster")[0])
    script = written.replace("--port 8080", f"--port {port}")
    assert f"--port {port}" in script
    check_first_cluster(follow(script, tmp_path))
