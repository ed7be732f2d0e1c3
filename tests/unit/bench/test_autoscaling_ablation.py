"""The ablation's table: every variant is one that can be trained, and a row tells validation and test figures."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from bench.policies import autoscaling_ablation
from bench.policies.autoscaling_ablation import SHOWN, STARTS, VARIANTS, document, line_of
from lab.cli.train.command import train
from lab.evaluation.results import ResultMetric
from shared.policy.weights import Card, WeightsFile

CARD = Card(
    policy="karma",
    version=1,
    trained={"command": "conclave train karma"},
    figures={"validation score by training seed": {"1000": 131.25, "1001": 130.0}},
)
METRICS = {name: ResultMetric.of([1.0, 2.0]) for name in SHOWN if name != "recovery_s"}


def test_a_row_has_the_validation_of_each_seed_and_leaves_out_what_no_seed_has():
    row = [
        cell.strip() for cell in line_of("multi-hard", "scratch", WeightsFile({}, CARD), METRICS).strip("|").split("|")
    ]
    assert row[:4] == ["multi-hard", "scratch", "131.2, 130.0", "1.5 ± 0.7"]
    assert row[3 + SHOWN.index("recovery_s")] == ""
    found = document(WeightsFile({}, CARD), METRICS)
    assert found["validation_mean"] == pytest.approx(130.625)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_an_order_that_the_command_takes(variant, monkeypatch):
    taken: list[str] = []
    monkeypatch.setattr("lab.cli.train.command.run_child", lambda argv: taken.extend(argv) or 0)
    order = ["karma", *VARIANTS[variant], "--start", STARTS[0], "--steps", "1", "--out", "run"]
    assert CliRunner().invoke(train, order, standalone_mode=False).return_value == 0
    assert [flag for flag in VARIANTS[variant] if flag not in taken] == []


def test_a_variant_that_is_not_known_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["ablation", "--variants", "multi-loose"])
    with pytest.raises(SystemExit):
        autoscaling_ablation.main()
    assert "--variants: 'multi-loose' is not known; choose of multi-none" in capsys.readouterr().err
