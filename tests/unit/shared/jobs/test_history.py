"""What a live cluster decided, noted down and read again."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from shared.errors import ConfigError
from shared.jobs.history import HistoryRecorder, line_of, parse_history
from shared.model.controllers.training_job import GpuNode, JobPhase, JobReport, JobStatus, TrainingJob


def job(name, target=0, **changes):
    status = JobStatus(phase=JobPhase.RUNNING, target=target, ran_s=60.0, report=JobReport(epochs_left=3.0))
    made = TrainingJob(
        namespace="default", name=name, uid=f"uid-{name}", resource_version="1", minimum=1, maximum=4, requested=2,
        gpu_milli=1000, model="bert", status=status,
    )  # fmt: skip
    return replace(made, **changes)


def recorder(*jobs, gpus=4):
    found = HistoryRecorder()
    found.jobs = {one.key: one for one in jobs}
    found.nodes = {"n": GpuNode("n", gpus * 1000), "closed": GpuNode("closed", 8000, open=False)}
    return found


def test_a_decision_is_told_once_with_what_was_known_of_each_job():
    follows = recorder(job("a", 2), job("b"))
    told = follows.news(10.0)
    assert told is not None
    assert [(one.name, one.workers, one.before, one.epochs_left) for one in told.jobs] == [
        ("default/a", 2, 0, 3.0), ("default/b", 0, 0, 3.0),
    ]  # fmt: skip
    assert (told.at, told.gpus) == (10.0, 4)
    assert follows.news(11.0) is None
    follows.jobs["default/a"] = job("a", 3)
    again = follows.news(12.0)
    assert again is not None
    assert (again.jobs[0].before, again.jobs[0].workers) == (2, 3)


def test_who_holds_no_gpus_is_paused_has_ended_or_cannot_be_used_is_left_out():
    ended = JobStatus(phase=JobPhase.SUCCEEDED, target=2)
    left_out = [
        job("c", gpu_milli=0), job("d", paused=True), job("e", status=ended), job("f", problem="x"),
        job("g", deleting=True),
    ]  # fmt: skip
    told = recorder(job("a", 1), *left_out).news(0.0)
    assert told is not None
    assert [one.name for one in told.jobs] == ["default/a"]
    assert recorder(*left_out).news(0.0) is None


def test_half_of_a_decision_is_not_told():
    follows = recorder(job("a", 4), job("b", 2))
    assert follows.news(0.0) is None, "b grew, and a has not shrunk yet"
    follows.jobs["default/a"] = job("a", 2)
    assert follows.news(1.0) is not None


def test_a_file_is_read_as_it_was_written():
    told = recorder(job("a", 2), job("b", 1)).news(10.0)
    assert told is not None
    assert parse_history(line_of(told) + "\n\n", "h.jsonl") == [told]
    assert told.observation().nodes[0].gpus == 4
    assert told.decision()["default/a"].workers == 2


def changed(**of_job):
    told = recorder(job("a", 2)).news(0.0)
    assert told is not None
    document = json.loads(line_of(told))
    document["jobs"][0] |= of_job
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no decision is in it"),
        ("{}", "line 1: Object missing required field `at`"),
        (changed(workers="two"), "Expected `int`"),
        (changed(workers=5), "5 workers, it takes 1 to 4"),
        (changed(minimum=5), "minimum 5 and maximum 4 are no bounds"),
        (changed(gpus_per_worker=0), "gpus_per_worker 0 must be above 0"),
        (changed(ran_s=-1.0), "ran_s and epochs_left must be 0 or more, not -1"),
        (changed(epochs_left=-5.0), "ran_s and epochs_left must be 0 or more, not -5"),
        (changed(gpus_per_worker=3), "6 GPUs are given, there are 4"),
        (changed() + "\nNaN", "line 2: "),
    ],
)
def test_what_cannot_be_used_is_named_with_its_line_and_the_remedy(text, words):
    with pytest.raises(ConfigError, match=r"give a file of conclave jobs record$") as told:
        parse_history(text, "h.jsonl")
    assert words in str(told.value)
