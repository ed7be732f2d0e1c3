"""Cases from JSON lines: the form of the answers, and what becomes of a line that cannot be used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.autoscaling.hpa.batch import answers
from shared.errors import ConfigError

Json = dict[str, Any]
AT = "2026-03-01T12:00:00Z"


def step(queue: str = "31", *, at: str = AT, replicas: int = 2, **more: Any) -> Json:
    scale = {"replicas": replicas, "statusReplicas": replicas, "selector": "app=web"}
    return {"at": at, "scale": scale, "metrics": {"external": [{"metricName": "queue", "value": queue}]}, **more}


def case(*steps: Json, name: str = "up", **more: Any) -> Json:
    target = {"type": "AverageValue", "averageValue": "10"}
    metric = {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}
    return {
        "id": name,
        "input": {"hpa": {"spec": {"maxReplicas": 9, "metrics": [metric]}}, "steps": list(steps), **more},
    }


def played(*lines: Json | bytes) -> tuple[list[Json], list[str]]:
    """(answers, what was refused as ``NUMBER: WHY``)."""
    refused: list[str] = []

    def refuse(number: int, error: ConfigError) -> None:
        refused.append(f"{number}: {error}")

    raw = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return list(answers(raw, refuse)), refused


def test_a_case_is_answered_step_by_step_with_one_memory() -> None:
    found, refused = played(case(step(), step("10", at="2026-03-01T12:00:15Z", replicas=4)))
    assert refused == []
    assert found == [
        {
            "id": "up",
            "steps": [
                {
                    "desired": 4,
                    "reason": "DesiredWithinRange",
                    "replicas": 4,
                    "current": 2,
                    "scaled": True,
                    "rescaleReason": "external metric queue(nil) above target",
                    "conditions": {
                        "AbleToScale": {"status": "True", "reason": "SucceededRescale"},
                        "ScalingActive": {"status": "True", "reason": "ValidMetricFound"},
                        "ScalingLimited": {"status": "False", "reason": "DesiredWithinRange"},
                    },
                    "proposals": [{"replicas": 4}],
                    "metrics": [
                        {
                            "type": "External",
                            "external": {"metric": {"name": "queue"}, "current": {"averageValue": "15500m"}},
                        }
                    ],
                },
                {
                    "desired": 4,
                    "reason": "DesiredWithinRange",
                    "replicas": 4,
                    "current": 4,
                    "conditions": {
                        "AbleToScale": {"status": "True", "reason": "ScaleDownStabilized"},
                        "ScalingActive": {"status": "True", "reason": "ValidMetricFound"},
                        "ScalingLimited": {"status": "False", "reason": "DesiredWithinRange"},
                    },
                    "proposals": [{"replicas": 1}],
                    "metrics": [
                        {
                            "type": "External",
                            "external": {"metric": {"name": "queue"}, "current": {"averageValue": "2500m"}},
                        }
                    ],
                },
            ],
        }
    ]


def test_what_failed_is_told_without_what_is_not_known() -> None:
    [found], _ = played(
        case(step(metrics={"externalError": "down"}), step(metrics=None, scale={"replicas": 3, "error": "x"}))
    )
    assert [one.get("error") for one in found["steps"]] == [True, True]
    assert [one["reason"] for one in found["steps"]] == ["FailedGetExternalMetric", "FailedGetScale"]
    assert found["steps"][0]["proposals"] == [{"reason": "FailedGetExternalMetric"}]
    assert "proposals" not in found["steps"][1]
    assert found["steps"][1]["metrics"] == [{"type": ""}]  # of the step before


def test_flags_and_gates_are_the_cases_own() -> None:
    def replicas(**more: Any) -> list[int]:
        [found], refused = played(case(step("10", replicas=8), **more))
        assert refused == []
        return [one["replicas"] for one in found["steps"]]

    assert replicas() == [8]
    assert replicas(controller={"tolerance": 20}) == [8]
    later = step("10", replicas=8, at="2026-03-01T12:01:01Z")
    [found], _ = played(case(step("10", replicas=8), later, controller={"downscaleStabilizationWindow": "1m0s"}))
    assert [one["replicas"] for one in found["steps"]] == [8, 1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param(b"{]", "JSON is malformed", id="no-json"),
        pytest.param(b'\xff{"id":1}', "give one JSON object per line, with id and input (hpa, steps)", id="no-utf8"),
        pytest.param(b"[" * 100_000, "give one JSON object per line", id="too-deep"),
        pytest.param(
            b'{"id": "x", "input": {"steps": []}}', "missing required field `hpa` - at `$.input`", id="no-hpa"
        ),
        pytest.param(case({"at": AT}), "missing required field `scale` - at `$.input.steps[0]`", id="no-scale"),
        pytest.param(case(step(at="now")), "case up: input.steps[0].at: 'now' is no time", id="no-time"),
        pytest.param(
            case(step(), step(at="2026-03-01T11:00:00Z")),
            "case up: input.steps[1].at: is before the step before it; give the steps in the order of time",
            id="back-in-time",
        ),
        pytest.param(
            case(step(replicas=-1)), "input.steps[0].scale.replicas: -1 is no number of replicas", id="negative"
        ),
        pytest.param(case(step("NaN")), "input.steps[0].metrics.external[0].value: 'NaN' is not a quantity", id="nan"),
        pytest.param(
            case(step(), featureGates={"Magic": True}), "input.featureGates[Magic]: decides nothing", id="unknown-gate"
        ),
        pytest.param(
            case(step(), controller={"initialReadinessDelay": "soon"}),
            "input.controller.initialReadinessDelay: 'soon' is no duration",
            id="no-duration",
        ),
        pytest.param(
            case(step(), controller={"tolerance": -1}), "input.controller.tolerance: -1.0 is no share", id="flag"
        ),
        pytest.param(
            case(step(), otherHPASelectors=[{"selector": "a in ("}]),
            "input.otherHPASelectors[0].selector: 'a in ('",
            id="selector",
        ),
    ],
)
def test_a_line_that_cannot_be_used_is_told_and_costs_the_others_nothing(line: Json | bytes, told: str) -> None:
    found, [refused] = played(case(step(), name="before"), b"  \n", line, case(step(), name="after"))
    assert [one["id"] for one in found] == ["before", "after"]
    assert refused.startswith("3: ")
    assert told in refused
