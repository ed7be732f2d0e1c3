"""What the real kube-scheduler 1.36 does with pod groups in some scheduling cycles (../shared/oracle-gang).

The cases are not part of the repository. Only ``id`` and ``input`` are shown to us; ``expect`` is compared afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from services.cli.explain import offline
from services.cli.explain.offline import answers
from shared.scheduling.explain import groups_whatif
from shared.scheduling.preemption.preemption import Preemption

SHARED = Path(os.environ.get("CONCLAVE_SHARED", Path(__file__).parents[2].parent / "shared"))
FOLDER = SHARED / "oracle-gang"
CASES = FOLDER / "cases.jsonl"

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=f"the oracle's cases of pod groups are not at {CASES}")

Json = dict[str, Any]


@pytest.fixture(scope="module")
def cases() -> list[Json]:
    return [json.loads(line) for line in CASES.read_text().splitlines()]


def answered(cases: list[Json]) -> list[Json]:
    return list(answers(json.dumps({"id": case["id"], "input": case["input"]}).encode() for case in cases))


def wrong(cases: list[Json]) -> list[str]:
    return [
        case["id"]
        for case, mine in zip(cases, answered(cases), strict=True)
        if (mine["bound"], mine.get("preEnqueue", {}))
        != (case["expect"]["bound"], case["expect"].get("preEnqueue", {}))
    ]


def test_what_kube_scheduler_binds_is_bound_and_nothing_else_and_what_it_does_not_queue_is_not(
    cases: list[Json],
) -> None:
    assert len(cases) >= 54
    assert wrong(cases) == []


def test_the_corpus_own_checker_agrees(cases: list[Json], tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("".join(f"{json.dumps(one)}\n" for one in answered(cases)))
    checked = subprocess.run(
        [sys.executable, str(FOLDER / "check.py"), str(out), str(CASES)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("rule", ["quorum_rejection", "plan_preemption", "score_nodes"])
def test_without_any_one_rule_the_oracle_disagrees(
    rule: str, cases: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ablation: who is not queued, who waits for preemption, and which node each member takes."""
    known = getattr(groups_whatif, rule)
    instead = {
        "quorum_rejection": lambda *_: None,
        "plan_preemption": lambda *_: Preemption(),
        "score_nodes": lambda *asked: {name: -values for name, values in known(*asked).items()},
    }[rule]
    monkeypatch.setattr(groups_whatif, rule, instead)
    assert wrong(cases)


def test_what_another_order_would_place_is_told_apart() -> None:
    def pod(name: str, cpu: str, priority: int) -> Json:
        return {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {
                "priority": priority,
                "schedulingGroup": {"podGroupName": "g"},
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            },
        }

    asked: Json = {
        "nodes": [{"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "3", "pods": "9"}}}],
        "podGroups": [
            {"metadata": {"name": "g", "namespace": "default"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
        ],
        "pods": [pod("large", "3", 9), pod("s0", "1", 8), pod("s1", "1", 7)],
    }
    [found] = offline.answers([json.dumps({"id": "x", "input": asked}).encode()])
    assert found == {"id": "x", "bound": [], "reordered": {"default/g": ["s0", "s1"]}}
