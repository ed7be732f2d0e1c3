"""Verdicts and scores of the real kube-scheduler 1.36 for pods that need features of their node.

The cases are not part of the repository (../shared/oracle-features). Only ``id`` and ``input`` are shown to us.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from services.cli.explain import offline
from services.cli.explain.offline import answers
from shared.scheduling.cycle.profile import PluginSet
from shared.scheduling.filters import FILTERS, LAST

SHARED = Path(os.environ.get("CONCLAVE_SHARED", Path(__file__).parents[2].parent / "shared"))
CASES = SHARED / "oracle-features" / "cases.jsonl"

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=f"the oracle's cases of node features are not at {CASES}")


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CASES.read_text().splitlines()]


def answered(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(answers(json.dumps({"id": case["id"], "input": case["input"]}).encode() for case in cases))


def test_every_verdict_about_node_features_is_kube_schedulers(cases: list[dict[str, Any]]) -> None:
    assert len(cases) >= 30
    assert {case["stratum"] for case in cases} >= {
        "features-restart-all", "features-not-needed", "features-host-users", "features-mixed",
    }  # fmt: skip
    for case, mine in zip(cases, answered(cases), strict=True):
        expected = case["expect"]
        assert mine["id"] == case["id"]
        for key, nothing in (("feasible", []), ("infeasible", {}), ("best", []), ("preEnqueue", None)):
            assert mine[key] == expected.get(key, nothing), (case["id"], key)
        assert mine["scores"].keys() == expected.get("scores", {}).keys(), case["id"]
        for name, theirs in expected.get("scores", {}).items():
            ours = {plugin: score for plugin, score in mine["scores"][name].items() if score}
            assert ours == {plugin: score for plugin, score in theirs.items() if score}, (case["id"], name)


def test_without_the_rule_the_oracle_disagrees(cases: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    rest = tuple(rule for rule in FILTERS if rule.name != LAST)
    assert len(rest) == len(FILTERS) - 1
    monkeypatch.setattr(offline, "UNMEASURED", PluginSet(rest))
    wrong = [
        case["id"]
        for case, mine in zip(cases, answered(cases), strict=True)
        if mine["feasible"] != case["expect"]["feasible"]
    ]
    assert len(wrong) >= 10
