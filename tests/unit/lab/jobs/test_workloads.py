"""Workloads: what is read, how jobs become fixed or adaptive, and what is drawn from past arrivals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.jobs.example import WORKLOAD
from lab.jobs.workloads import JobArrivals, jobs_of, parse_workloads, without_ncf
from shared.errors import ConfigError
from tests.training_jobs import example_models, measured_tables

HEADER = "name,submit_time_s,application,num_replicas,batch_size"


def parse(text):
    return parse_workloads(text, "w.csv", example_models())


def only(text):
    (workload,) = parse(text).values()
    return workload


def test_the_example_is_read_in_the_order_of_submission():
    jobs = only(WORKLOAD)
    assert [job.name for job in jobs][:2] == ["small-0", "large-1"]
    assert (jobs[1].submitted, jobs[1].requested, jobs[1].batch, jobs[1].model.name) == (30.0, 4, 128, "large")


def test_the_authors_own_name_of_the_time_is_read_too():
    assert only("name,time,application,num_replicas,batch_size\na,5,small,1,32\n")[0].submitted == 5.0


def test_several_workloads_in_one_file_are_told_apart():
    text = f"set,workload,{HEADER}\nx,1,a,0,small,1,32\nx,2,a,0,small,1,32\n"
    assert sorted(parse(text)) == [("x", 1), ("x", 2)]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param("a,0,tiny,1,32", "'tiny': no such model in the tables; they have large", id="model"),
        pytest.param("a,0,small,1,16", "measured with batches from 32 to 256", id="batch"),
        pytest.param("a,0,small,16,32", "small with batch 32 was not measured so", id="request"),
        pytest.param("a,-1,small,1,32", "column submit_time_s.*give a number from 0 on", id="time"),
        pytest.param("a,1507532515,small,1,32", "column submit_time_s.*seconds from the workload's begin", id="epoch"),
        pytest.param("a,0,small,0,32", "column num_replicas.*give a whole number from 1 on", id="none"),
        pytest.param("a,0,small,1,32\na,1,small,1,32", "the same name is on line 2", id="twice"),
    ],
)
def test_a_job_that_cannot_be_played_is_named(row, words):
    with pytest.raises(ConfigError, match=words):
        parse(f"{HEADER}\n{row}\n")


def test_a_file_without_jobs_is_refused():
    with pytest.raises(ConfigError, match="no job follows the header"):
        parse(f"{HEADER}\n")


def test_a_fixed_job_keeps_its_batch_and_an_adaptive_one_begins_at_the_smallest():
    workload = only(f"{HEADER}\na,0,small,2,128\n")
    (fixed,), (adaptive,) = jobs_of(workload, gpus=8, adaptive=False), jobs_of(workload, gpus=8, adaptive=True)
    assert (fixed.batch, fixed.batch_range, fixed.maximum) == (128, None, 8)
    assert (adaptive.batch, adaptive.batch_range, adaptive.maximum) == (32, (32, 256), 8)
    assert jobs_of(only(f"{HEADER}\na,0,small,2,32\n"), gpus=8, adaptive=False)[0].maximum == 4


def test_a_job_that_asks_for_more_than_there_is_is_named():
    with pytest.raises(ConfigError, match="large-1: asks for 4 GPUs, the cluster has 3"):
        jobs_of(only(WORKLOAD), gpus=3, adaptive=False)


def test_workloads_drawn_from_past_arrivals_follow_from_their_seed():
    models = {
        name: example_models()["small"] for name in ("cifar10", "ncf", "bert", "deepspeech2", "yolov3", "imagenet")
    }
    times = [(f"2017-10-09 0{2 + hour}:01:55", hours) for hour in range(8) for hours in (0.5, 5, 50, 500)]
    philly = "timestamp,duration,gpu_time\n" + "\n".join(f"{at},60,{hours * 3600}" for at, hours in times)
    arrivals = JobArrivals(JobArrivals.of(philly, []).jobs, dict.fromkeys(models, ((1, 32), (2, 64))))
    assert len(arrivals.jobs) == 32
    drawn = arrivals.draw(100, 12, models)
    assert drawn == arrivals.draw(100, 12, models) != arrivals.draw(101, 12, models)
    assert all(0 <= job.submitted < 8 * 3600 for job in drawn)
    assert [job.submitted for job in drawn] == sorted(job.submitted for job in drawn)


def test_in_the_second_set_cifar10_comes_when_ncf_came_and_is_set_up_as_its_own_jobs_are():
    models = {"cifar10": example_models()["small"], "ncf": example_models()["small"], "bert": example_models()["large"]}
    models = {name: replace(model, name=name) if name != "bert" else model for name, model in models.items()}
    text = f"{HEADER}\na,0,ncf,1,32\nb,5,cifar10,2,64\nc,9,ncf,1,32\nd,9,bert,4,128"
    (workload,) = parse_workloads(text, "w.csv", models).values()
    named = {row.model.name: row.model for row in workload}
    found = without_ncf(workload, ("tuned", 1), [workload], named)
    assert [(row.name, row.submitted, row.model.name) for row in found] == [
        ("a-as-cifar10", 0.0, "cifar10"), ("b", 5.0, "cifar10"), ("c-as-cifar10", 9.0, "cifar10"), ("d", 9.0, "large"),
    ]  # fmt: skip
    assert {(row.requested, row.batch) for row in found if row.model.name == "cifar10"} == {(2, 64)}
    assert found == without_ncf(workload, ("tuned", 1), [workload], named)
    with pytest.raises(ConfigError, match="no job of cifar10"):
        without_ncf(workload, ("tuned", 1), [], named)


def test_the_given_workloads_are_forty_of_eighty_to_320_jobs():
    from lab.jobs.playing import WorkloadSource
    from lab.jobs.workloads import WORKLOADS_FILE

    tables = measured_tables()
    found = WorkloadSource.of(tables[WORKLOADS_FILE], WORKLOADS_FILE, tables).read()
    assert {len(jobs) for (name, _), jobs in found.items() if name == "tuned"} == {160}
    assert len(found) == 40
