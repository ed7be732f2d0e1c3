"""Where jobs-sets learns: both twins, the tables' folder, and how many jobs come."""

from __future__ import annotations

import gzip

import pytest

from lab.jobs.example import example_tables
from lab.jobs.twin_a import TwinOrder, play_twin
from lab.jobs.workloads import PHILLY_FILE, WORKLOADS_FILE
from lab.learner.jobs import playgrounds
from lab.learner.jobs.playgrounds import Playground, playgrounds_of
from shared.errors import ConfigError
from shared.jobs.policies.marginal import Marginal

WORKLOADS = """set,workload,name,submit_time_s,application,num_replicas,batch_size
tuned,1,bert-0,0,bert,2,64
tuned,1,deepspeech2-1,60,deepspeech2,4,128
"""


@pytest.fixture
def tables(tmp_path):
    """The example's models under two of Pollux' names, and twenty jobs of two GPU-hours, of a morning."""
    for name, text in example_tables().items():
        (tmp_path / name).write_text(text.replace("small", "bert").replace("large", "deepspeech2"))
    (tmp_path / WORKLOADS_FILE).write_text(WORKLOADS)
    rows = [f"2017-10-09 03:{minute:02}:00,600,7200" for minute in range(20)]
    philly = "\n".join(["timestamp,duration,gpu_time", *rows, ""])
    (tmp_path / f"{PHILLY_FILE}.gz").write_bytes(gzip.compress(philly.encode()))
    return tmp_path


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    for name, count in (("JOBS", 12), ("LEAST_JOBS", 5), ("MOST_JOBS", 9)):
        monkeypatch.setattr(playgrounds, name, count)


def test_a_validation_workload_has_as_many_jobs_as_are_reported_on_and_others_vary(tables):
    twin_b = playgrounds_of(tables)[1]
    assert len(twin_b.play(Marginal(), 100).outcomes) == 12
    counts = {len(twin_b.play(Marginal(), seed).outcomes) for seed in range(1000, 1008)}
    assert counts <= set(range(5, 10))
    assert len(counts) > 2


def test_changes_cost_something_on_twin_b_and_nothing_on_twin_a(tables):
    played = playgrounds_of(tables)[1].play(Marginal(), 100)
    assert all(one.completion_s >= 30.0 for one in played.outcomes)
    assert Playground("Twin A", 1, 1, (100,)).number(Marginal(), 100) == pytest.approx(
        play_twin(TwinOrder(policy="marginal", seed=100)).figures()["avg_jct_h"]
    )


def test_twin_bs_number_counts_the_tail_too(tables):
    twin_b = playgrounds_of(tables)[1]
    figures = twin_b.play(Marginal(), 100).figures()
    assert twin_b.number(Marginal(), 100) == pytest.approx(figures["avg_jct_h"] * figures["p99_jct_h"] ** 0.2)


def test_a_folder_without_a_table_is_named_with_the_remedy(tmp_path):
    with pytest.raises(ConfigError, match=f"{WORKLOADS_FILE} is missing; set CONCLAVE_SHARED"):
        playgrounds_of(tmp_path)
