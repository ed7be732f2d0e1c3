"""The trainer of jobs: where its runs are played, and a live cluster's history as what it learns from."""

from __future__ import annotations

import pytest

from lab.learner.jobs import trainer
from lab.learner.jobs.history_training import HistoryRun, HistorySettings, increments_of
from lab.learner.jobs.teachers import history_of
from lab.learner.training.runner import TrainRequest
from shared.errors import ConfigError
from shared.jobs.history import DecidedJob, DecidedJobs, line_of
from shared.jobs.policies.learned.dl2 import Dl2


def decided(at, *workers, gpus=4):
    """Jobs of which the first ones are small: whoever decides gives all that is left to the last."""
    jobs = (
        DecidedJob(
            name=f"j{number}", model="ab"[number % 2], minimum=1, maximum=4, requested=4, epochs_left=5.0, workers=one
        )
        for number, one in enumerate(workers)
    )
    return DecidedJobs(at=float(at), gpus=gpus, jobs=tuple(jobs))


HISTORY = [decided(at, *workers) for at, workers in enumerate([(1, 3)] * 6)]


@pytest.mark.parametrize("policy", ["jobs-dl2", "jobs-sets"])
def test_runs_are_played_where_the_request_says(policy, tmp_path, monkeypatch):
    asked = []

    class Noted(Exception):
        pass

    def workers(count, *, ray):
        asked.append((count, ray))
        raise Noted

    monkeypatch.setattr(trainer, "Workers", workers)
    with pytest.raises(Noted):
        trainer.train_jobs(TrainRequest(policy, tmp_path, workers=2, ray="head:6379"))
    assert asked == [(2, "head:6379")]


def test_a_clusters_decisions_are_increments_that_end_at_them():
    found = increments_of(HISTORY[:1], ("a", "b"))
    assert [one.action // 3 for one in found] == [0, 1, 1, 1, 2], "the smallest share first, then void"
    assert all(one.mask[one.action] for one in found)


def test_what_a_cluster_does_is_learned_and_its_policy_does_so():
    run = HistoryRun(HistorySettings(1000, "h", len(HISTORY), updates=400, hidden=(16,), rate=1e-2), HISTORY)
    reports = list(run.run())
    assert reports[-1].scalars["validation/agreement"] == run.agreement == 1.0
    policy = Dl2(run.weights(trained={}))
    found = policy.decide(HISTORY[0].observation())
    assert {name: one.workers for name, one in found.items()} == {"j0": 1, "j1": 3}


def test_a_run_of_a_history_goes_on_from_its_checkpoint():
    settings = HistorySettings(1000, "h", len(HISTORY), updates=3, hidden=(4,))
    first, second = HistoryRun(settings, HISTORY), HistoryRun(settings, HISTORY)
    list(first.run())
    second.set_state(first.get_state())
    assert (second.finished, second.agreement) == (True, first.agreement)


def test_too_few_decisions_are_refused():
    with pytest.raises(ConfigError, match="h: 2 decisions; record at least 5"):
        HistoryRun(HistorySettings(1000, "h", 2), HISTORY[:2])


def test_a_history_is_told_from_a_rule_and_from_a_schedule(tmp_path):
    file = tmp_path / "h.jsonl"
    file.write_text("\n".join(map(line_of, HISTORY)))
    assert history_of(str(file)) == HISTORY
    (tmp_path / "s.csv").write_text("seed,time_s,job,event,nodes,gpus,batch")
    assert [history_of(name) for name in ("", "drf", str(tmp_path / "s.csv"), str(tmp_path / "none"))] == [[]] * 4


def test_rounds_on_a_history_are_refused(tmp_path):
    file = tmp_path / "h.jsonl"
    file.write_text("\n".join(map(line_of, HISTORY)))
    with pytest.raises(ConfigError, match="a cluster's history is imitated, no rounds follow"):
        trainer.train_jobs(TrainRequest("jobs-dl2", tmp_path, warm_up=str(file), steps=3))
