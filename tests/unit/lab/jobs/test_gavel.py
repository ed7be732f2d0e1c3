"""Gavel's tables: speeds beside one another, by hand, and what is missing is named."""

from __future__ import annotations

import pytest

from lab.jobs.gavel import COLOCATED_FILE, ISOLATED_FILE, LIKE, Colocated, Isolated
from shared.errors import ConfigError
from tests.training_jobs import DATA, measured_tables

ISOLATED = """gpu_type,model,scale_factor_workers,steps_per_s
p100,A (batch size 1),1,10
v100,A (batch size 1),1,25
v100,B,1,8
v100_unconsolidated,B,1,8
k80,B,1,0
"""
COLOCATED = """gpu_type,model_a,workers_a,model_b,workers_b,steps_per_s_a,steps_per_s_b
v100,A (batch size 1),1,B,1,20,2
"""


def test_a_type_is_told_beside_another():
    table = Isolated.parse(ISOLATED)
    assert table.beside("A (batch size 1)", "v100") == 2.5
    assert table.types == {"p100", "v100"}


def test_two_jobs_on_a_gpu_keep_a_share_each_whichever_is_named_first():
    tables = Colocated.parse(COLOCATED), Isolated.parse(ISOLATED)
    assert tables[0].kept(tables[1], "v100", "A (batch size 1)", "B") == (0.8, 0.25)
    assert tables[0].kept(tables[1], "v100", "B", "A (batch size 1)") == (0.25, 0.8)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        pytest.param(
            lambda: Isolated.parse(ISOLATED).beside("B", "v100"), "no row of one worker for B on p100", id="base"
        ),
        pytest.param(lambda: Isolated.parse(ISOLATED).beside("B", "k80"), "for B on k80", id="out of memory"),
        pytest.param(
            lambda: Colocated.parse(COLOCATED).kept(Isolated.parse(ISOLATED), "k80", "B", "B"),
            "no row for B beside B on k80",
            id="pair",
        ),
        pytest.param(lambda: Isolated.parse(ISOLATED.replace(",25", ",x")), "line 3, column steps_per_s", id="cell"),
    ],
)
def test_what_was_not_measured_is_named(ask, words):
    with pytest.raises(ConfigError, match=words):
        ask()


def test_the_measured_tables_know_every_model_on_every_type():
    measured_tables()
    table = Isolated.parse((DATA / ISOLATED_FILE).read_text())
    factors = table.factors(frozenset({"k80", "v100", "t4"}))
    assert len(factors) == 2 * len(LIKE)
    assert factors["imagenet@k80"] == pytest.approx(0.62 / 2.62, abs=0.01)
    assert factors["imagenet@v100"] == pytest.approx(4.39 / 2.62, abs=0.01)
    both = Colocated.parse((DATA / COLOCATED_FILE).read_text())
    kept = both.kept(table, "v100", LIKE["cifar10"], LIKE["cifar10"])
    assert 0.0 < kept[0] <= 1.0
