"""``make audit`` fails on a high finding and says so when it could not look: a check that always passes is none."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from bench.audit import CLEAN, FOUND, NOT_AUDITED, Excuse, excuses_in, judge_code, judge_packages

TODAY = dt.date(2026, 11, 22)


def code_report(*severities: str) -> dict[str, Any]:
    results = [
        {"issue_severity": severity, "test_id": "B602", "filename": "a.py", "line_number": 1, "issue_text": "shell"}
        for severity in severities
    ]
    return {"errors": [], "results": results, "metrics": {"_totals": {"loc": 10}}}


def package(name: str, *ids: str, skipped: bool = False) -> dict[str, Any]:
    if skipped:
        return {"name": name, "skip_reason": "Dependency not found on PyPI"}
    vulns = [{"id": one, "aliases": [f"CVE-{one}"], "fix_versions": ["2"]} for one in ids]
    return {"name": name, "version": "1", "vulns": vulns}


def until(day: int) -> list[Excuse]:
    return [Excuse("CVE-A", "not called", dt.date(2026, 11, day)), Excuse("B602", "fixed text", dt.date(2026, 11, day))]


def test_only_high_findings_in_code_fail():
    assert judge_code(code_report("LOW", "MEDIUM"), [], TODAY)[0] == CLEAN
    assert judge_code(code_report("LOW", "HIGH"), [], TODAY)[0] == FOUND


def test_a_scan_of_nothing_is_no_success():
    report = code_report() | {"metrics": {"_totals": {"loc": 0}}}
    assert judge_code(report, [], TODAY)[0] == FOUND


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        pytest.param([package("a")], CLEAN, id="clean"),
        pytest.param([package("a", "A")], FOUND, id="vulnerable"),
        pytest.param([package("a"), package("b", skipped=True)], NOT_AUDITED, id="one skipped"),
        pytest.param([package("a", "A"), package("b", skipped=True)], FOUND, id="a finding counts more"),
        pytest.param([], NOT_AUDITED, id="nothing looked at"),
    ],
)
def test_what_could_not_be_looked_up_is_not_clean(packages: list[dict[str, Any]], expected: int):
    assert judge_packages({"dependencies": packages}, [], TODAY)[0] == expected


@pytest.mark.parametrize(("day", "expected"), [(22, CLEAN), (21, FOUND)])
def test_an_excuse_holds_until_its_date(day: int, expected: int):
    assert judge_packages({"dependencies": [package("a", "A")]}, until(day), TODAY)[0] == expected
    assert judge_code(code_report("HIGH"), until(day), TODAY)[0] == expected


def test_an_excuse_without_a_reason_or_a_date_is_refused():
    with pytest.raises(ValueError, match="give id, reason and until"):
        excuses_in({"tool": {"conclave": {"audit": [{"id": "A", "reason": "because"}]}}})
