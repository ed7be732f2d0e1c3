"""Every bench that docs/performance.md names says how it is used, and those that no other test plays play in small."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.process]

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
MODULES = sorted(set(re.findall(r"python -m (bench(?:\.[a-z_]+)+)", TABLE)))


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT
    )


def test_the_page_names_benches_at_all() -> None:
    assert len(MODULES) > 12


@pytest.mark.parametrize("module", MODULES)
def test_a_bench_of_the_page_says_how_it_is_used(module: str) -> None:
    done = run(module, "--help")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("usage: ")


@pytest.mark.etcd
def test_claims_are_bound_and_no_device_is_given_twice(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    small = ("--nodes", "4", "--devices", "2", "--pods", "6", "--cases", "burst", "--rounds", "1", "--agents", "0")
    done = run("bench.claims", *small, "--json", str(out))
    assert done.returncode == 0, done.stderr[-2000:]
    [one] = json.loads(out.read_text(encoding="utf-8"))["runs"]
    assert (one["bound"], one["twice"]) == (6, 0)


@pytest.mark.etcd
def test_a_killed_leader_is_followed_and_no_pod_is_lost() -> None:
    small = ("--victim", "coordinator", "--standby", "warm", "--nodes", "5", "--running", "20", "--times", "1")
    done = run("bench.handover", "--signal", "KILL", *small, "--agents", "0")
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
