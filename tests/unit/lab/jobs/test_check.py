"""The checker of schedules: a good one passes, and each broken rule is seen, so that nothing passes unseen."""

from __future__ import annotations

import csv
import io

import pytest

from lab.jobs.check import check_rows, main
from lab.jobs.clusters import uniform
from lab.jobs.example import WORKLOAD, example_tables
from lab.jobs.playing import WorkloadSource, play_jobs
from lab.jobs.schedules import HEADER, schedule_rows
from lab.jobs.workloads import jobs_of
from lab.worlds.training.simulation import SimulationSettings
from shared.jobs.registry import make

GOOD = [
    "42,0.0,a,submit,,0,32",
    "42,5.0,b,submit,,0,32",
    "42,60.0,a,start,n0:2|n1:1,3,32",
    "42,60.0,b,start,n0:2,2,32",
    "42,90.0,b,batch,n0:2,2,64",
    "42,120.0,a,move,n1:4,4,32",
    "42,180.0,b,stop,,0,64",
    "42,200.0,a,end,,0,32",
    "42,240.0,b,start,n1:1,1,64",
    "42,300.0,b,end,,0,64",
]
GPUS = {"n0": 4, "n1": 4}


def checked(rows):
    return check_rows(csv.DictReader(io.StringIO("\n".join([HEADER, *rows]))), GPUS)["42"]


def test_a_good_schedule_has_no_fault_and_its_completion_times_follow():
    found = checked(GOOD)
    assert found.faults == []
    assert found.completion_s == {"a": 200.0, "b": 295.0}


@pytest.mark.parametrize(
    ("at", "row", "words"),
    [
        pytest.param(3, "42,60.0,b,start,n0:3,3,32", "node n0 has 4 GPUs, 5 are in use", id="GPUs used twice"),
        pytest.param(3, "42,60.0,b,start,n7:2,2,32", "node n7 has 0 GPUs", id="unknown node"),
        pytest.param(3, "42,60.0,b,start,n0:2,3,32", "3 GPUs, but nodes have 'n0:2'", id="GPUs and nodes differ"),
        pytest.param(5, "42,120.0,c,move,n1:4,4,32", "move before submit", id="never submitted"),
        pytest.param(6, "42,70.0,b,stop,,0,64", "time runs back", id="time"),
        pytest.param(1, "42,5.0,a,submit,,0,32", "submitted twice", id="twice"),
        pytest.param(5, "42,120.0,a,start,n1:4,4,32", "start of a job that has GPUs", id="started twice"),
        pytest.param(8, "42,240.0,a,start,n1:1,1,64", "start before submit or after end", id="after its end"),
        pytest.param(8, "42,240.0,b,move,n1:1,1,64", "move of a job that has no GPUs", id="moved while waiting"),
        pytest.param(4, "42,90.0,b,batch,n1:2,2,64", "a new batch on other nodes", id="batch moves"),
        pytest.param(4, "42,90.0,b,pause,n0:2,2,64", "no such event", id="event"),
        pytest.param(9, "42,300.0,b,stop,,0,64", "b never ends", id="never ends"),
    ],
)
def test_each_broken_rule_is_seen(at, row, words):
    rows = [*GOOD[:at], row, *GOOD[at + 1 :]]
    assert any(words in fault for fault in checked(rows).faults)


@pytest.mark.parametrize("policy", ["tiresias", "optimus", "pollux", "marginal"])
def test_what_the_simulator_writes_passes_and_its_times_are_recomputed(policy):
    tables = example_tables()
    source = WorkloadSource.of(WORKLOAD, "example", tables)
    cluster = uniform(2, 4)
    jobs = jobs_of(source.read()["", 0], gpus=cluster.gpus, adaptive=policy == "pollux")
    played = play_jobs(jobs, cluster, make(policy), 42, SimulationSettings())
    rows = csv.DictReader(io.StringIO("\n".join([HEADER, *schedule_rows(42, played.changes)])))
    found = check_rows(rows, {node.name: node.gpus for node in cluster.nodes})["42"]
    assert found.faults == []
    assert found.completion_s == {one.name: pytest.approx(one.completion_s, abs=1e-5) for one in played.outcomes}
    assert played.refused == ()


def test_the_command_line_exits_with_what_it_found(tmp_path, capsys):
    file = tmp_path / "s.csv"
    file.write_text("\n".join([HEADER, *GOOD]))
    assert main([str(file), "2", "4"]) == 0
    assert "2 jobs ended, mean completion 0.0688 h" in capsys.readouterr().out
    assert main([str(file), "2", "3"]) == 1
    assert main([str(file), "1", "4"]) == 1
    assert main([str(tmp_path / "none.csv")]) == 2
    assert main([]) == 2
    file.write_text("seed,time_s\n42,1\n")
    assert main([str(file)]) == 2
