"""What the real HorizontalPodAutoscaler controller of Kubernetes 1.36 does, reconciliation by reconciliation
(../shared/oracle-hpa).

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

from shared.autoscaling.hpa import limits, pods, proposals, rule
from shared.autoscaling.hpa.batch import answers
from shared.errors import ConfigError

SHARED = Path(os.environ.get("CONCLAVE_SHARED", Path(__file__).parents[2].parent / "shared"))
FOLDER = SHARED / "oracle-hpa"
CASES = FOLDER / "cases.jsonl"

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=f"the oracle's cases of the HPA are not at {CASES}")

Json = dict[str, Any]
COMPARED = ("desired", "reason", "replicas", "current", "scaled", "rescaleReason", "error", "conditions", "proposals")


@pytest.fixture(scope="module")
def cases() -> list[Json]:
    return [json.loads(line) for line in CASES.read_text().splitlines()]


def answered(cases: list[Json]) -> list[Json]:
    def refused(number: int, error: ConfigError) -> None:
        pytest.fail(f"line {number}: {error}")

    return list(answers((json.dumps({"id": c["id"], "input": c["input"]}).encode() for c in cases), refused))


def wrong(cases: list[Json]) -> list[tuple[str, int, str]]:
    """(case, step, field) of everything but ``metrics``, whose quantities the corpus' own checker compares."""
    return [
        (case["id"], index, field)
        for case, mine in zip(cases, answered(cases), strict=True)
        for index, (step, told) in enumerate(zip(case["expect"]["steps"], mine["steps"], strict=True))
        for field in COMPARED
        if told.get(field) != step.get(field)
    ]


def test_every_step_of_every_case_is_as_the_real_controller_does_it(cases: list[Json]) -> None:
    assert len(cases) >= 294
    assert wrong(cases) == []


def test_the_corpus_own_checker_agrees(cases: list[Json], tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("".join(f"{json.dumps(one)}\n" for one in answered(cases)))
    checked = subprocess.run(
        [sys.executable, str(FOLDER / "check.py"), str(out), str(CASES)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        pytest.param(pods, "_starting", lambda *_: False, id="cpu-of-starting-pods-counts"),
        pytest.param(pods, "_against", lambda first, second, *rest: rest[1], id="no-second-ratio"),
        pytest.param(proposals, "ready_pods", len, id="pods-that-are-not-ready-count"),
        pytest.param(rule, "tolerance_of", lambda *_: pods.Tolerance(0.1, 0.1), id="no-tolerance-of-its-own"),
        pytest.param(limits, "_changed", lambda *_: 0, id="scale-events-forgotten"),
        pytest.param(limits, "_remembered", lambda seen, _, new: (new,), id="recommendations-forgotten"),
        pytest.param(rule, "_parsed", lambda _: rule.ParsedSelector(), id="an-empty-selector-selects-all"),
    ],
)
def test_without_any_one_rule_the_oracle_disagrees(
    module: Any, name: str, instead: Any, cases: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ablation: each of these rules is noticed when it is missing."""
    monkeypatch.setattr(module, name, instead)
    assert wrong(cases)
