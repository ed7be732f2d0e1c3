"""The twin answers as the kube-apiserver 1.36 from which the transcripts were recorded.

The recordings' own checker replays every scenario against a server process; the wording of messages counts.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.process.twin_process import SHARED, TOKEN, RunningTwin, running_twin

pytestmark = pytest.mark.process

CHECKER = SHARED / "api-transcripts" / "check.py"
LEFT_OUT = "apply,rbac,gotext"
GROUPS = (
    "binding-*,eviction-*,pdb-*",
    "watch-*",
    "list-*",
    "node-*,namespace-*,lease*",
    "delete-*,race-*,flow-*",
    "pod-*,priority*,table-*,partial-*,resourceclaim",
    "cr-*,crd-*",
    "http-*,health,discovery-*,auth-*",
    "event-*,configmap-*,secret-*,service-*,storage-*,managed-*",
    "deployment-*,replicaset-*,statefulset-*,job-*,hpa-*",
    "apply-*",
)

if not CHECKER.exists():
    pytest.skip(f"no transcripts: {CHECKER} is missing (CONCLAVE_SHARED names the folder)", allow_module_level=True)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTwin]:
    with running_twin(tmp_path_factory.mktemp("twin")) as server:
        yield server


def check(url: str, only: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHECKER), "--base", url, "--token", TOKEN, "--only", only, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ, check=False)


@pytest.mark.parametrize("group", GROUPS)
def test_recorded_scenarios_are_answered_as_recorded(twin: RunningTwin, group: str) -> None:
    done = check(twin.url, group, "--skip-tags", "gotext")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^[1-9]\d* of \d+ scenarios passed", done.stdout, re.MULTILINE), done.stdout


def test_messages_that_hold_a_go_diff_are_answered_in_their_other_parts(twin: RunningTwin) -> None:
    done = check(twin.url, "pod-immutable-message", "--messages", "loose")
    assert done.returncode == 0, done.stdout


def test_every_recorded_scenario_is_in_a_group() -> None:
    patterns = ",".join(GROUPS).split(",")
    scenarios = [file.stem for file in (CHECKER.parent / "transcripts").glob("*.json")]
    assert [name for name in scenarios if not any(fnmatch(name, pattern) for pattern in patterns)] == []


def test_checker_sees_an_answer_that_is_altered(tmp_path: Path) -> None:
    """Ablation: with an injected fault the checker must fail, or its passing would say nothing."""
    plan = tmp_path / "faults.json"
    plan.write_text('{"rules": [{"kind": "error", "path": "/binding$", "count": 1}]}')
    with running_twin(tmp_path, "--faults", str(plan)) as server:
        done = check(server.url, "binding-success")
        assert done.returncode == 1, done.stdout
        assert check(server.url, "binding-success").returncode == 0
