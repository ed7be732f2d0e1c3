"""Fault plans: which request is hit, how often, and what cannot be a plan."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from twin.faults import FaultPlan


def plan(*rules: dict[str, Any], seed: int | None = None) -> FaultPlan:
    return FaultPlan.parse({"rules": list(rules), **({} if seed is None else {"seed": seed})})


def test_first_rule_that_fits_decides() -> None:
    faults = plan({"kind": "error", "path": "/nodes"}, {"kind": "throttle", "path": "/"})
    assert faults.decide("GET", "/api/v1/nodes", Random(1)).status == 500  # type: ignore[union-attr]
    assert faults.decide("GET", "/api/v1/pods", Random(1)).status == 429  # type: ignore[union-attr]


def test_counted_rule_is_used_up() -> None:
    faults = plan({"kind": "drop", "count": 2})
    hits = [faults.decide("POST", "/x", Random(1)) is not None for _ in range(4)]
    assert hits == [True, True, False, False]


def test_method_limits_a_rule() -> None:
    faults = plan({"kind": "drop", "method": "POST"})
    assert faults.decide("GET", "/x", Random(1)) is None


def test_same_seed_hits_the_same_requests() -> None:
    def hits() -> list[bool]:
        faults = plan({"kind": "error", "probability": 0.3}, seed=9)
        return [faults.decide("GET", "/x", Random()) is not None for _ in range(200)]

    first = hits()
    assert first == hits()
    assert 30 < sum(first) < 90


def test_plan_cannot_lock_its_own_door() -> None:
    assert plan({"kind": "error"}).decide("PUT", "/twin/faults", Random(1)) is None


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ([], "rules"),
        ({"rules": [], "seeds": 1}, "seeds"),
        ({"rules": [{}]}, "rules[0].kind"),
        ({"rules": [{"kind": "odd"}]}, "rules[0].kind"),
        ({"rules": [{"kind": "drop", "path": "("}]}, "rules[0].path"),
        ({"rules": [{"kind": "drop", "probability": 2}]}, "rules[0].probability"),
        ({"rules": [{"kind": "drop", "count": "1"}]}, "rules[0].count"),
        ({"rules": [{"kind": "drop", "count": True}]}, "rules[0].count"),
        ({"rules": [{"kind": "drop", "delay_s": -1}]}, "rules[0]"),
        ({"rules": [{"kind": "drop", "nope": 1}]}, "nope"),
        ({"rules": [1]}, "rules[0]"),
        ({"rules": [], "seed": "x"}, "seed"),
    ],
)
def test_unusable_plan_names_the_field(body: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named.replace("[", r"\[").replace("]", r"\]")):
        FaultPlan.parse(body)


@pytest.mark.parametrize(("kind", "code"), [("forbid", 403), ("conflict", 409)])
def test_a_request_is_refused_with_the_code_of_the_kind(kind: str, code: int) -> None:
    fault = plan({"kind": kind, "path": "/eviction$"}).decide("POST", "/pods/a/eviction", Random(1))
    assert fault is not None
    assert fault.error().code == code
