"""Learning curves from a trainer's lines."""

from __future__ import annotations

import pytest

from lab.evaluation.report.curves import parse_curves
from shared.errors import ConfigError


def test_each_key_is_a_curve_and_a_repeated_step_counts_as_last_written() -> None:
    lines = ['{"step": 1, "loss": 3}', '{"step": 2, "loss": 2, "reward": 1}', "", '{"step": 1, "loss": 4}']
    found = parse_curves(lines, "run")
    assert found.points == {"loss": ((1, 4), (2, 2)), "reward": ((2, 1),)}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["{"], "line 1: no JSON"),
        (['{"step": 1, "a": 1}', "[1]"], "line 2: no number under 'step'"),
        (['{"step": true, "a": 1}'], "line 1: no number"),
        (['{"step": 1}'], "holds no curve"),
        (['{"step": 1, "loss": NaN}'], "holds no curve"),
    ],
)
def test_a_line_that_is_no_point_is_refused_by_number(lines: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_curves(lines, "run")
