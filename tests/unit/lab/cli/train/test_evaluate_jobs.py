"""``conclave evaluate --suite jobs``: the gate on the authors' own workloads, and any workload of the same form."""

from __future__ import annotations

import csv
import json

import pytest

from lab.evaluation.results import from_json
from lab.jobs.check import check_rows
from lab.jobs.example import WORKLOAD, example_tables
from lab.jobs.tables import THROUGHPUT_FILE
from lab.suites.jobs import TOLERANCE_PERCENT
from services.cli.__main__ import run
from tests.training_jobs import DATA, measured_tables


@pytest.fixture
def files(tmp_path):
    """A workload, a cluster and tables in files, as a user has them."""
    tables = tmp_path / "tables"
    tables.mkdir()
    for name, text in example_tables().items():
        (tables / name).write_text(text)
    (tmp_path / "w.csv").write_text(WORKLOAD)
    (tmp_path / "c.yaml").write_text("nodes:\n- {count: 2, gpus: 4}\n")
    return tmp_path


def arguments(folder, *more, policy="srtf"):
    flags = [
        "--workload",
        str(folder / "w.csv"),
        "--cluster",
        str(folder / "c.yaml"),
        "--tables",
        str(folder / "tables"),
    ]
    return ["evaluate", "--suite", "jobs", *flags, "--policy", policy, "--quiet", *more]


def test_a_workload_of_ones_own_gives_figures_and_a_schedule_that_agree(files):
    out, schedule = files / "out.json", files / "s.csv"
    assert run(arguments(files, "--seeds", "42-43", "--json", str(out), "--schedule", str(schedule))) == 0
    result = from_json(json.loads(out.read_text()))
    assert result.seeds == (42, 43)
    with schedule.open(newline="") as opened:
        found = check_rows(csv.DictReader(opened), {"node-0": 4, "node-1": 4})
    assert sorted(found) == ["42", "43"]
    times = found["42"].completion_s.values()
    assert len(times) == 6
    assert result.policies["srtf"]["avg_jct_h"].values[0] == pytest.approx(sum(times) / 6 / 3600)
    assert all(checked.faults == [] for checked in found.values())


def test_the_tables_of_the_example_need_no_folder(files, capsys):
    flags = arguments(files)
    flags[flags.index("--tables") + 1] = "example"
    assert run([one for one in flags if one != "--quiet"]) == 0
    assert "avg_jct_h" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param(["--policy", "gold"], "'gold' is not known for training jobs", id="policy"),
        pytest.param(["--tables", "/nowhere"], "--tables: /nowhere: No such file", id="tables"),
        pytest.param(["--workload", "/nowhere.csv"], "--workload: /nowhere.csv: No such file", id="workload"),
        pytest.param(["--suite", "openb"], "only --suite jobs uses it", id="another suite"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(files, capsys, more, words):
    assert run(arguments(files, *more)) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("nodes: [", "--cluster: ", id="YAML"),
        pytest.param("nodes: 2", "gpus_per_node is missing", id="field"),
        pytest.param("nodes: 1\ngpus_per_node: 2", "large-1: asks for 4 GPUs, the cluster has 2", id="too small"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_named(files, capsys, text, words):
    (files / "c.yaml").write_text(text)
    assert run(arguments(files)) == 2
    assert words in capsys.readouterr().err


def test_an_unknown_model_is_named_with_its_line(files, capsys):
    text = (files / "w.csv").read_text()
    (files / "w.csv").write_text(text.replace(",small,", ",gpt9,", 1))
    assert run(arguments(files)) == 2
    said = capsys.readouterr().err.strip()
    assert "w.csv, line 2, column application: 'gpt9': no such model in the tables; they have" in said
    assert "\n" not in said


def test_a_hole_in_a_table_is_named_with_its_line(files, capsys):
    path = files / "tables" / THROUGHPUT_FILE
    lines = path.read_text().splitlines()
    lines[1] = ",".join([*lines[1].split(",")[:-2], "", ""])
    path.write_text("\n".join(lines) + "\n")
    assert run(arguments(files)) == 2
    said = capsys.readouterr().err.strip()
    assert f"{THROUGHPUT_FILE}, line 2" in said
    assert "\n" not in said


def test_the_folder_of_another_suite_is_refused(capsys):
    assert run(["evaluate", "--suite", "jobs", "--trace-dir", "x", "--quiet"]) == 2
    assert "--trace-dir: the jobs suite reads its tables by --tables" in capsys.readouterr().err


def test_flags_of_a_workload_need_one(capsys):
    assert run(["evaluate", "--suite", "jobs", "--schedule", "s.csv", "--quiet"]) == 2
    assert "--schedule: only --workload uses it" in capsys.readouterr().err


def test_several_workloads_in_one_file_are_refused(files, capsys):
    rows = WORKLOAD.splitlines()
    text = [f"set,workload,{rows[0]}", *(f"x,1,{row}" for row in rows[1:]), *(f"x,2,{row}" for row in rows[1:])]
    (files / "w.csv").write_text("\n".join(text))
    assert run(arguments(files)) == 2
    assert "holds 2 workloads; give the rows of one" in capsys.readouterr().err


def test_the_gate_holds_for_tiresias_and_optimus(tmp_path):
    """All 8 workloads of the authors at two loads: each mean within 10 % of theirs, and an unmet goal would fail it."""
    measured_tables()
    out = tmp_path / "out.json"
    flags = [
        "--policies",
        "tiresias,optimus",
        "--loads",
        "0.5,1.0",
        "--tables",
        str(DATA),
        "--json",
        str(out),
        "--quiet",
    ]
    assert run(["evaluate", "--suite", "jobs", "--require-goals", *flags]) == 0
    goals = from_json(json.loads(out.read_text())).goals
    assert len(goals) == 4
    assert max(goal.value for goal in goals) < TOLERANCE_PERCENT / 2


def test_the_gate_fails_where_jobs_run_otherwise_than_measured(tmp_path, monkeypatch):
    """The safeguard switched off: every step 20 % faster than measured, and the gate says so."""
    from lab.worlds.training.models import TrainingModel

    measured_tables()
    true = TrainingModel.step_s
    monkeypatch.setattr(TrainingModel, "step_s", lambda *given: (found := true(*given)) and 0.8 * found)
    flags = ["--policies", "tiresias", "--loads", "1.0", "--workloads", "1-2", "--tables", str(DATA), "--quiet"]
    assert run(["evaluate", "--suite", "jobs", "--require-goals", *flags]) == 1


def test_the_second_set_is_played_on_mixed_gpus_and_its_report_has_distributions(tmp_path):
    measured_tables()
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    flags = ["--policies", "tiresias,drf", "--loads", "0.5", "--workloads", "1", "--tables", str(DATA), "--quiet"]
    assert run(["evaluate", "--suite", "jobs", "--second-set", *flags, "--json", str(out), "--html", str(page)]) == 0
    result = from_json(json.loads(out.read_text()))
    assert result.goals == (), "gate 0 is of the published workloads"
    ((name, quantiles),) = result.distributions.items()
    assert name == "completion, hours, load 0.5"
    for policy, values in quantiles.items():
        assert list(values) == sorted(values)
        assert values[100] == pytest.approx(result.policies[policy]["load 0.5/p50_jct_h"].mean, abs=1e-6)
    assert 'aria-label="share of jobs with no more completion, hours, load 0.5, by policy"' in page.read_text()


def test_by_learned_speeds_alone_a_policy_decides_otherwise_and_all_jobs_end(files):
    found = []
    for more in ((), ("--learned-speeds",)):
        out = files / "out.json"
        assert run(arguments(files, "--json", str(out), *more, policy="marginal-fixed")) == 0
        found.append(from_json(json.loads(out.read_text())).policies["marginal-fixed"])
    assert found[0]["avg_jct_h"].values != found[1]["avg_jct_h"].values
    assert found[1]["unfinished"].mean == 0.0


def test_the_second_set_is_the_suites_alone(files, capsys):
    assert run(arguments(files, "--second-set")) == 2
    assert "--second-set: --workload says which jobs come" in capsys.readouterr().err


def test_without_the_speeds_of_other_gpus_the_second_set_is_refused(files, capsys):
    flags = ["--policies", "drf", "--loads", "0.5", "--workloads", "1", "--tables", "example", "--quiet"]
    assert run(["evaluate", "--suite", "jobs", "--second-set", *flags]) == 2
    assert "is missing" in capsys.readouterr().err


def test_processes_change_nothing(tmp_path):
    measured_tables()
    found = []
    for processes in ("1", "2"):
        out = tmp_path / f"{processes}.json"
        flags = ["--policies", "tiresias", "--loads", "0.5", "--workloads", "1-3", "--tables", str(DATA), "--quiet"]
        assert run(["evaluate", "--suite", "jobs", *flags, "--processes", processes, "--json", str(out)]) == 0
        figures = from_json(json.loads(out.read_text())).policies["tiresias"]
        found.append({name: metric.values for name, metric in figures.items() if "decide" not in name})
    assert found[0] == found[1]


def test_twin_a_is_a_workload_by_its_name_and_its_schedule_has_servers(tmp_path):
    schedule = tmp_path / "s.csv"
    flags = ["--workload", "twin-a", "--policy", "optimus", "--seeds", "42", "--schedule", str(schedule), "--quiet"]
    assert run(["evaluate", "--suite", "jobs", *flags]) == 0
    with schedule.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert check_rows(rows)["42"].faults == []
    assert max(int(row["servers"]) for row in rows) > 1


@pytest.mark.parametrize("more", [["--batch", "fixed"], ["--interference", "0.5"], ["--events"]])
def test_what_twin_a_says_itself_is_refused(more, capsys):
    flags = ["--workload", "twin-a", "--policy", "drf", "--seeds", "42", *more]
    assert run(["evaluate", "--suite", "jobs", *flags]) == 2
    assert f"{more[0]}: Twin A says that itself; leave it out" in capsys.readouterr().err
