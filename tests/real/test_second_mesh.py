"""A second ``conclave up`` on a real cluster stands by for as long as the first is there, then takes over."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from services.cli.local.mesh import READY_TIMEOUT_S
from tests.real.conftest import RunningPlane, mesh_of

SMALL = ("--single", "--coordinators", "1")


def test_a_second_mesh_stands_by_and_takes_over_when_the_first_has_gone(plane: RunningPlane, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    conclave = str(Path(sys.executable).with_name("conclave"))
    with (second / "errors").open("w+") as errors:
        with mesh_of(plane, first, *SMALL) as ready:
            assert "etcd-release=" in ready
            waiting = subprocess.Popen(
                [conclave, "up", "--kubeconfig", str(plane.kubeconfig), *SMALL],
                stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
            try:
                time.sleep(READY_TIMEOUT_S + 15)  # it ended after that with another reason
                told = (second / "errors").read_text()
                assert waiting.poll() is None, told
                assert told.count("stands by: another mesh") == 1
            except BaseException:
                waiting.kill()
                raise
        assert waiting.stdout is not None
        try:
            line = next((line for line in waiting.stdout if line.startswith("ready")), "")
            assert line, (second / "errors").read_text()
        finally:
            waiting.terminate()
            waiting.wait(30)
            waiting.stdout.close()
