"""``conclave autoscale analyse`` and ``design``: from an object's file to the page, stopped and gone on with.

The trainer is a process of its own and is tested where it lives; here something else leaves the shipped weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import lab.cli.autoscale.analyse as analysing
import lab.cli.autoscale.design as designing
import services.cli.__main__ as main
from lab.autoscaling import calibration, duel, envelope, learned_twin, recording, suite
from lab.autoscaling.analysis import analysis
from lab.autoscaling.episode import Setup
from lab.cli.autoscale.loop import check_gone_on
from lab.cli.autoscale.stages import opened
from lab.worlds.learned.fitting import lesson_of
from lab.worlds.learned.model import encode
from lab.worlds.learned.series import HEADER, parse_series
from lab.worlds.services.topology import DEFAULT, parse_topology
from shared.autoscaling.networks import karma
from shared.errors import ConfigError
from tests.learned_twins import recorded_bytes, twin_that_says

OBJECT = Path("docs/examples/autoscaled-graph.yaml")


class Trainer:
    """In the learner's place: ends with ``code``, or leaves weights; remembers how it was called."""

    def __init__(self):
        self.code, self.calls = 0, []

    def __call__(self, command):
        self.calls.append(command)
        out = Path(command[command.index("--out") + 1])
        (out / "seed-1000.ckpt").write_bytes(b"")
        if not self.code:
            (out / "karma.npz").write_bytes(Path(karma.__file__).with_name("karma.npz").read_bytes())
        return self.code


@pytest.fixture
def trainer(monkeypatch):
    found = Trainer()
    # loaded by now: a module that was loaded while Setup is another would keep that for the tests to come
    assert all((calibration, duel, envelope, learned_twin, recording, suite))
    monkeypatch.setattr(designing, "run_child", found)
    monkeypatch.setattr(analysis, "TAUGHT_SEEDS", (100,))
    monkeypatch.setattr("lab.autoscaling.episode.Setup", lambda *given: Setup(*given, seconds=100))
    monkeypatch.setattr(analysis.analyse, "__kwdefaults__", {**analysis.analyse.__kwdefaults__, "taught_seeds": (100,)})
    return found


@dataclass
class Told:
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys):
    def given(*arguments):
        code = main.run(["autoscale", *map(str, arguments)])
        return Told(code, *capsys.readouterr())

    return given


@pytest.fixture
def design(run, trainer, tmp_path):
    def given(*more, name=OBJECT):
        return run("design", name, "--out", tmp_path / "d", "--seeds", "42-43", *more)

    return given


def test_a_design_ends_with_a_page_and_is_not_done_twice(design, trainer, tmp_path):
    first = design("--topology", DEFAULT)
    assert [line for line in first.err.splitlines() if "begins" in line] == [
        f"{stage}: begins" for stage in ("capture", "fit", "train", "analyse")
    ]
    found = json.loads((tmp_path / "d/analyse/analysis.json").read_bytes())
    assert found["weights"] in first.out
    assert found["seeds"] == [42, 43]
    assert (tmp_path / "d/analyse/analysis.html").read_text().startswith("<!doctype html>")
    again = design()  # the graph was kept
    assert len(trainer.calls) == 1
    assert again.err.count("done before") == 4
    assert again.out == first.out
    assert "--topology" in trainer.calls[0]
    assert "--resume" not in trainer.calls[0]


def test_a_design_that_is_stopped_while_it_trains_goes_on_from_the_checkpoint(design, trainer, tmp_path):
    trainer.code = 130
    assert design("--topology", DEFAULT).code == 130
    assert not (tmp_path / "d/analyse").exists()
    trainer.code = 0
    assert "train: goes on" in design().err
    assert "--resume" in trainer.calls[1]


def test_a_trainer_that_fails_is_told_and_nothing_is_analysed(design, trainer, tmp_path):
    trainer.code = 2
    told = design("--topology", DEFAULT)
    assert told.code != 0
    assert "the trainer ended with 2" in told.err
    assert not (tmp_path / "d/analyse").exists()


def test_other_bounds_of_the_object_train_anew_and_another_mode_does_not(design, trainer, tmp_path):
    text = OBJECT.read_text()
    own = tmp_path / "own.yaml"
    own.write_text(text)
    design("--topology", DEFAULT, name=own)
    own.write_text(text.replace("mode: observe", "mode: recommend"))
    design(name=own)
    assert len(trainer.calls) == 1
    own.write_text(text.replace("maxReplicas: 6", "maxReplicas: 7"))
    design(name=own)
    assert len(trainer.calls) == 2
    assert "--resume" not in trainer.calls[1]


def test_a_recorded_load_is_what_is_trained_and_analysed_on(design, trainer, tmp_path):
    series = tmp_path / "rates.csv"
    series.write_text("\n".join(str(100 + at % 50) for at in range(400)))
    design("--topology", DEFAULT, "--series", series)
    assert trainer.calls[0][trainer.calls[0].index("--trace") + 1] == str(tmp_path / "d/capture/series.csv")


def test_an_object_of_the_cluster_is_designed_into_a_folder_of_its_name(run, trainer, tmp_path, monkeypatch):
    item = next(iter(yaml.safe_load_all(OBJECT.read_text())))
    item["metadata"] |= {"namespace": "shop", "uid": "u"}
    monkeypatch.setattr(designing, "ask", lambda kubeconfig, context, work: item)
    topology = DEFAULT.resolve()
    monkeypatch.chdir(tmp_path)
    told = run("design", "shop/chain", "--topology", topology, "--seeds", "42-43", "--quiet")
    assert told.err == ""
    assert "design/shop/chain/analyse/analysis.html" in told.out
    assert (tmp_path / "design/shop/chain/train/karma.npz").is_file()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "--topology: no service graph is known"),
        (("--episodes", "3"), "--episodes: 3 are too few"),
        (("--train-seeds", "42"), "--train-seeds: 42 is kept"),
        (("--threshold", "beauty=1"), "--threshold: 'beauty' is not known"),
        (("--threshold", "purity=7"), "--threshold: 'purity=7'"),
        (("--scenario", "war"), "--scenario: 'war' is not known"),
        (("--topology", "docs/examples/nodes.yaml"), "--topology"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(design, trainer, tmp_path, arguments, why):
    told = design(*arguments)
    assert told.code == main.EXIT_BAD_INPUT
    assert why in told.err
    assert trainer.calls == []


def test_a_file_without_an_object_is_refused(design, trainer, tmp_path):
    assert "0 ResilientAutoscalers" in design(name="docs/examples/nodes.yaml").err


def test_analyse_writes_page_and_json_and_its_exit_code_says_no_go(run, trainer, tmp_path):
    page, document = tmp_path / "a.html", tmp_path / "a.json"
    arguments = ("--seeds", "42-43", "--html", page, "--json", document, "--threshold", "success=100", "--require-go")
    told = run("analyse", *arguments)
    assert told.code == 1
    assert "NOT met success" in told.out
    assert json.loads(document.read_bytes())["go"] is False
    assert "no go" in page.read_text()


def test_an_extra_that_is_missing_is_named(run, monkeypatch):
    monkeypatch.setattr(analysing, "EXTRA", ("no_such_library",))
    told = run("analyse")
    assert told.code == main.EXIT_BAD_INPUT
    assert "no_such_library missing; install the extra: pip install 'conclave-scheduler[analysis]'" in told.err


GOOD, BAD = (12, 12, 23, 0, 0, 12), (12, 12, 0, 23, 23, 12)


@pytest.fixture
def learner(trainer, monkeypatch):
    """In the learner's place for twins too: leaves one that says ``levels`` whatever happens."""

    def child(command):
        if "services-twin" not in command:
            return trainer(command)
        trainer.calls.append(command)
        out, file = (Path(command[command.index(flag) + 1]) for flag in ("--out", "--series"))
        graph = parse_topology((out / "topology.yaml").read_text())
        found = lesson_of(parse_series(file.read_bytes(), "s", services=graph.order), graph, held_out=0.3, seed=1000)
        (out / "services-twin.npz").write_bytes(encode(twin_that_says(found, change=0, levels=trainer.levels)))
        return 0

    trainer.levels = GOOD
    monkeypatch.setattr(designing, "run_child", child)
    return trainer


@pytest.fixture
def series(tmp_path):
    file = tmp_path / "series.csv"
    file.write_bytes(recorded_bytes())
    return file


def test_recorded_series_become_a_twin_that_is_judged_trained_in_and_analysed_in(design, learner, series, tmp_path):
    told = design("--series", series)
    assert [line for line in told.err.splitlines() if "begins" in line] == [
        f"{stage}: begins" for stage in ("capture", "fit", "judge", "train", "analyse")
    ]
    fitting, training = learner.calls
    assert fitting[fitting.index("--series") + 1] == str(tmp_path / "d/fit/train.csv")
    assert training[training.index("--twin") + 1] == str(tmp_path / "d/fit")
    found = json.loads((tmp_path / "d/analyse/analysis.json").read_bytes())
    checks = {one["name"]: one for one in found["checks"]}
    assert {"twin accuracy", "twin gap", "twin errors", "measured", "sources"} <= checks.keys()
    assert found["scenario"] == "mixed"
    assert not found["go"]  # a twin that always says the same misses its goals
    again = design()  # the series were kept, and so was every stage
    assert again.err.count("done before") == 5
    assert len(learner.calls) == 2


def test_a_twin_that_nobody_judged_is_no_go_and_anothers_judgement_is_refused(run, learner, series, design, tmp_path):
    design("--series", series)
    fit, judge = tmp_path / "d/fit", tmp_path / "d/judge/judgement.json"
    asked = ("--twin", fit, "--topology", fit / "topology.yaml", "--seeds", "42-43", "--quiet")
    assert "the twin was not judged: conclave twin judge" in run("analyse", *asked).out
    (fit / "judgement.json").write_text(judge.read_text().replace('"twin": "', '"twin": "f'))
    told = run("analyse", *asked)
    assert told.code == main.EXIT_BAD_INPUT
    assert "is of another twin" in told.err


@pytest.fixture
def hours(tmp_path):
    """A design's folder in which an hour of services a, b was recorded, every 10 s."""
    file = tmp_path / "d/capture/series.csv"
    rows = [f"live,e,{10 * at},{name}" + ",1" * (len(HEADER) - 4) for at in range(360) for name in "ab"]

    def record(folder):
        file.write_text("\n".join((",".join(HEADER), *rows)) + "\n")
        return ["series.csv"]

    with opened(tmp_path / "d", "design of default/chain", str) as stages:
        stages.run("capture", {}, record, keep=True, recorded=True)
    return file


def test_hours_that_were_recorded_are_neither_replaced_nor_taken_away(
    design, learner, series, hours, tmp_path, monkeypatch
):
    before = hours.read_bytes()
    told = design("--series", series)
    assert told.code == main.EXIT_BAD_INPUT
    assert f"--series: {hours} was recorded and would be replaced; move it away" in told.err

    def full(flag, file, data):
        raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr(designing, "write_whole", full)
    assert "No space left on device; make room" in design().err  # in the midst of doing the stage anew
    assert hours.read_bytes() == before
    monkeypatch.undo()
    with opened(tmp_path / "d", "design of default/chain", str) as stages:
        assert stages.recorded("capture")


@pytest.mark.parametrize("step", ["10s", "60s"])
def test_what_cannot_be_learned_from_together_is_not_recorded_together(design, hours, step):
    before = hours.read_bytes()
    told = design("--duration", "6h", "--step", step)
    assert told.code == main.EXIT_BAD_INPUT
    assert f"--out: {hours} holds 1.0 h of services a, b every 10 s; asked for are a, b, c, d" in told.err
    assert f"every {step[:-1]} s: move it away, or give another folder" in told.err
    assert hours.read_bytes() == before


def test_a_recording_goes_on_with_its_own_services_at_its_own_step_alone(hours):
    check_gone_on(hours, "ba", 12.0)
    hours.write_text(hours.read_text()[:-9])  # a line that was cut short
    check_gone_on(hours, "ab", 10.0)
    with pytest.raises(ConfigError, match=r"holds 1\.0 h of services a, b every 10 s; asked for are a, b every 60 s"):
        check_gone_on(hours, "ab", 60.0)
    hours.write_text("second,requests_per_second\n0,5\n")
    with pytest.raises(ConfigError, match="holds no series that a recording can go on with; move it away"):
        check_gone_on(hours, "ab", 10.0)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--duration", "60s"), "--duration: 6 moments are too few to learn from"),
        (("--duration", "2h", "--step", "0.5s"), "--step: 0.5 s is too short"),
        (("--duration", "2h", "--series", "docs/examples/nodes.yaml"), "--duration: the series are given"),
        (("--services", "shop/chain"), "OBJECT: give NAME, NAMESPACE/NAME or a file, once"),
    ],
)
def test_a_recording_that_cannot_be_is_refused_before_anything_is_read(design, trainer, arguments, why):
    told = design(*arguments)
    assert told.code == main.EXIT_BAD_INPUT
    assert why in told.err
