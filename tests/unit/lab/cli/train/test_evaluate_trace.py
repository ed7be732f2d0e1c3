"""``conclave evaluate --trace``: figures and placements of any lists, and refusals that name the cell."""

from __future__ import annotations

import json

import pytest

from lab.cli.train import evaluate_trace
from lab.cli.train.evaluate_trace import evaluate_files
from lab.evaluation.results import silent
from services.cli.__main__ import main, run
from shared.errors import ConfigError
from shared.policy.rehearsal.rehearsal import Rehearsal
from tests.placements_check import recompute
from tests.small_trace import node_list, pod_list


@pytest.fixture
def lists(tmp_path):
    (tmp_path / "pods.csv").write_text(pod_list())
    (tmp_path / "nodes.csv").write_text(node_list(24))
    return tmp_path


def evaluate(folder, **given):
    asked = {"policy": "best-fit", "seeds": (42, 43), "command": "c", "placements": None, "progress": silent} | given
    return evaluate_files(folder / "pods.csv", folder / "nodes.csv", **asked)


def test_placements_of_all_seeds_recompute_to_the_figures(lists):
    result = evaluate(lists, placements=lists / "out.csv")
    allocated = result.policies["best-fit"]["allocated_130"].values
    found = recompute((lists / "out.csv").read_text(), pod_list(), node_list(24))
    assert found == {42: pytest.approx(allocated[0]), 43: pytest.approx(allocated[1])}


@pytest.mark.parametrize(("gain", "placed_by"), [(0.1, "the learned value"), (-0.1, "FGD")])
def test_frag_places_as_its_rehearsal_says_and_the_report_tells(lists, monkeypatch, gain, placed_by):
    monkeypatch.setattr(evaluate_trace, "rehearse", lambda *_, **__: Rehearsal(gain, gain, played=2))
    result = evaluate(lists, policy="frag", placements=lists / "frag.csv")
    evaluate(lists, policy="fgd", placements=lists / "fgd.csv")
    assert f"frag: {placed_by} places" in result.notes[-1]
    same = (lists / "frag.csv").read_text() == (lists / "fgd.csv").read_text()
    assert same == (placed_by == "FGD")


def test_without_a_rehearsal_the_learned_value_places_though_it_would_lose(lists, monkeypatch):
    monkeypatch.setattr(evaluate_trace, "rehearse", lambda *_, **__: Rehearsal(-1.0, -1.0, played=2))
    result = evaluate(lists, policy="frag", placements=lists / "frag.csv", rehearses=False)
    evaluate(lists, policy="fgd", placements=lists / "fgd.csv")
    assert not any("places, since" in note for note in result.notes)
    assert (lists / "frag.csv").read_text() != (lists / "fgd.csv").read_text()


@pytest.mark.parametrize("asked", [["--suite", "thesis"], ["--trace", "p.csv", "--nodes", "n.csv", "--policy", "fgd"]])
def test_no_rehearsal_is_refused_where_nobody_rehearses(capsys, asked):
    assert run(["evaluate", *asked, "--no-rehearsal"]) == 2
    assert "--no-rehearsal: only frag rehearses" in capsys.readouterr().err


def test_a_bound_is_told_of_the_suites_that_have_one_alone(capsys):
    assert run(["evaluate", "--suite", "thesis", "--bound"]) == 2
    assert "--bound: only --suite openb or jobs-twin-a uses it" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--processes", "2"], ["--ray", "local"]])
def test_one_trace_is_played_here_and_says_so(capsys, flags):
    assert run(["evaluate", "--trace", "p.csv", "--nodes", "n.csv", "--policy", "fgd", *flags]) == 2
    assert f"{flags[0]}: only --suite uses it" in capsys.readouterr().err


def test_a_bad_cell_leaves_no_placements(lists):
    (lists / "pods.csv").write_text(pod_list().replace(",LS,Running,0,1,0\n", ",LS,Running,0,1\n", 1))
    with pytest.raises(ConfigError, match=r"pods.csv, line 2, column scheduled_time"):
        evaluate(lists, placements=lists / "out.csv")
    assert not (lists / "out.csv").exists()


def test_an_interrupted_run_leaves_no_placements(lists):
    def stop(done, total, doing):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(lists, placements=lists / "out.csv", progress=stop)
    assert not (lists / "out.csv").exists()


def test_a_file_that_is_no_text_is_refused(lists):
    (lists / "nodes.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"--nodes: .*not UTF-8"):
        evaluate(lists)


def test_the_command_line_writes_both_files(lists, capsys, monkeypatch):
    argv = ["evaluate", "--trace", str(lists / "pods.csv"), "--nodes", str(lists / "nodes.csv"), "--policy", "fgd"]
    argv += ["--seeds", "42", "--json", str(lists / "o.json"), "--placements", str(lists / "o.csv")]
    monkeypatch.setattr("sys.argv", ["conclave", *argv])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    figures = json.loads((lists / "o.json").read_text())["policies"]["fgd"]["metrics"]
    found = recompute((lists / "o.csv").read_text(), pod_list(), node_list(24))
    assert found[42] == pytest.approx(figures["allocated_130"]["mean"])


def test_placements_do_not_overwrite_the_list_they_come_from(lists, capsys, monkeypatch):
    pods = lists / "pods.csv"
    argv = ["evaluate", "--trace", str(pods), "--nodes", str(lists / "nodes.csv"), "--policy", "fgd", "--seeds", "42"]
    monkeypatch.setattr("sys.argv", ["conclave", *argv, "--placements", str(pods)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--placements" in capsys.readouterr().err
    assert pods.read_text() == pod_list()


def test_a_list_of_no_policy_does_not_run_the_whole_suite(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["conclave", "evaluate", "--suite", "thesis", "--seeds", "42", "--policies", ","])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--policies: ',' names no policy" in capsys.readouterr().err
