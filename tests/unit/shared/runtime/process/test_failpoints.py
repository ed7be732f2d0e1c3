"""Failpoints: inert unless asked for, once each, and only at the named place."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from shared.errors import ConfigError
from shared.runtime.process.failpoints import Failpoints


def test_without_the_variable_nothing_happens() -> None:
    Failpoints.from_environment({}).reach("after_commit")


def test_a_pause_blocks_once_at_its_own_place(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    points = Failpoints("before_bind=pause:0.05")
    points.reach("after_bind")
    assert slept == []
    points.reach("before_bind")
    points.reach("before_bind")
    assert slept == [0.05]


def test_a_kill_is_sudden_and_may_wait_for_its_time() -> None:
    code = (
        "from shared.runtime.process.failpoints import Failpoints\n"
        "points = Failpoints('x@3=kill')\n"
        "for number in range(5):\n    print(number, flush=True)\n    points.reach('x')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.split()) == (-9, ["0", "1", "2"])


@pytest.mark.parametrize("text", ["x", "x=stop", "=kill", "x=pause:soon", "x@two=kill"])
def test_a_malformed_failpoint_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="CONCLAVE_FAILPOINT"):
        Failpoints(text)
