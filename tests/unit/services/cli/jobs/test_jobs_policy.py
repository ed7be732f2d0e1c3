"""What ``conclave jobs policy`` prints of a candidate."""

from __future__ import annotations

from services.cli.jobs.policy import lines_of

FOUND = {
    "policy": "elastic", "stage": "canary", "candidate": "marginal", "percent": 10, "good": 2, "ratio": 1.04,
    "sd": 0.02, "by": "operator:ann", "reason": "half a day well in shadow", "since": "2026-11-23T10:00:00.000Z",
}  # fmt: skip


def test_a_candidate_is_shown_with_its_stage_its_worth_and_when_it_goes():
    text = "\n".join(lines_of(FOUND))
    assert "stage       canary (10 % of the jobs)" in text
    assert "1.040 ± 0.020 of its teacher's over the last 30 min" in text
    assert "2 good one after the other; it goes back by itself at 5% of a window's worth" in text


def test_one_that_was_taken_back_says_why():
    told = {**FOUND, "stage": "none", "ratio": 0.0, "reason": "7.0% worse than its teacher"}
    text = "\n".join(lines_of(told))
    assert "none: it was taken back" in text
    assert "why         7.0% worse" in text
    assert "good one after the other" not in text


def test_without_one_it_says_how_to_begin():
    assert lines_of({"policy": "", "stage": "none", "candidate": ""}) == [
        "settings    (no jobs service leads)",
        "candidate   none; 'conclave jobs policy set NAME' tries one in shadow",
    ]
