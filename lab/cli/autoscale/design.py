"""``conclave autoscale design OBJECT``: capture, fit, train, analyse, as one command that may be stopped and goes on.

    capture   what the object says of its services; the graph and the series that were given
    fit       the twin: the graph, with the object's bounds and objectives
    train     karma's weights, by the learner, a process of its own
    analyse   the page and its JSON: go or no go

The folder of each stage and what it is made from: ``stages``. Nothing here changes the object or lets anything act.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import click

from lab.autoscaling.budget import rounds_of
from lab.cli.autoscale.analyse import (
    AnalysisPlan,
    analysed,
    analysis_options,
    lines_of,
    planned,
    text_of,
    with_files,
    write_analysis,
)
from lab.cli.autoscale.stages import Stages, opened
from lab.cli.train.command import FIRST_TRAINING_SEED, NEEDED, TRAINER, run_child
from lab.evaluation.seeds import parse_seeds
from services.cli.autoscale.objects import ask, cluster_options, place, read_one
from services.cli.terminal.output_file import write_whole
from shared.errors import ConclaveError, ConfigError

FILE = click.Path(path_type=Path)
GRAPH, SERIES, OBJECT, TWIN, WEIGHTS, PAGE, JSON = (
    "graph.yaml", "series.csv", "object.json", "topology.yaml", "karma.npz", "analysis.html", "analysis.json",
)  # fmt: skip
EXIT_INTERRUPTED = 130


class TrainingEnded(ConclaveError):
    """The trainer did not reach its end; ``exit_code`` is its own."""

    code = "training_ended"

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the trainer ended with {exit_code}, and says why above")
        self.exit_code = exit_code


@click.command()
@click.argument("name", metavar="OBJECT")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder; default: design/NAMESPACE/NAME.")
@click.option("--topology", type=FILE, help="The service graph that the twin is made of; kept for the next time.")
@click.option("--series", type=FILE, help="Recorded load of the entries, in the form of evaluate --trace; kept.")
@click.option(
    "--episodes", type=int, default=224, show_default=True, help="How long to train; the shipped weights: 512."
)
@click.option("--train-seeds", default="1000", show_default=True, help="A training for each; the best is analysed.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes to train in.")
@analysis_options
@cluster_options
def design(
    name: str, out: Path | None, topology: Path | None, series: Path | None, episodes: int, train_seeds: str,
    workers: int, seeds: str, scenario: str, intensity: float | None, thresholds: tuple[str, ...], require_go: bool,
    quiet: bool, kubeconfig: Path | None, context: str, namespace: str,
) -> int:  # fmt: skip
    """Train a policy for OBJECT (NAME, NAMESPACE/NAME, or a file with it) on a twin of it, and analyse what it does.

    Stop it at any time; the same command goes on where it was. Stages whose input is as it was are not done again. At
    the end: a page with a recommendation, and the weights. Whether they act is up to you.
    """
    plan = planned(seeds, scenario, intensity, thresholds)
    rounds, low = rounds_of(episodes), [one for one in parse_seeds(train_seeds) if one < FIRST_TRAINING_SEED]
    if low:
        raise ConfigError(
            f"--train-seeds: {low[0]} is kept for choosing and reporting; give {FIRST_TRAINING_SEED} and above"
        )
    _check_learner()
    scaler = _object(name, kubeconfig, context, namespace)
    folder = out if out is not None else Path("design").joinpath(*scaler.key.split("/"))
    say = (lambda _: None) if quiet else (lambda line: click.echo(line, err=True))
    with opened(folder, f"design of {scaler.key}", say) as stages:
        plan = _twin(stages, scaler, topology, series, plan)
        flags = ["--seeds", train_seeds, "--steps", str(rounds), "--workers", str(workers)]
        weights = _trained(stages, flags, {"seeds": train_seeds, "rounds": rounds}, has_series=bool(plan.trace))
        if isinstance(weights, int):
            return weights
        found = _analysed(stages, plan, weights, quiet=quiet)
    for line in lines_of(found):
        click.echo(line)
    click.echo(f"page: {folder / 'analyse' / PAGE}")
    click.echo(f"weights: {weights} (sha256:{found.weights}); how to let them act: docs/autoscaling-design.md")
    return 1 if require_go and not found.go else 0


def _twin(stages: Stages, scaler: Any, topology: Path | None, series: Path | None, plan: AnalysisPlan) -> AnalysisPlan:
    """The stages ``capture`` and ``fit``: the plan with the twin's texts."""
    import msgspec

    from lab.autoscaling.fitting import captured, fitted
    from lab.worlds.services.loads import parse_trace

    said = msgspec.json.format(msgspec.json.encode(captured(scaler), order="deterministic"), indent=1)
    kept = stages.folder / "capture"
    graph = _given("--topology", topology, kept / GRAPH)
    load = _given("--series", series, kept / SERIES)
    if not graph:
        raise ConfigError("--topology: no service graph is known; give the file of one")
    if load:
        parse_trace(load, "--series")
    twin = fitted(captured(scaler), graph)
    parts = {OBJECT: said.decode(), GRAPH: graph, **({SERIES: load} if load else {})}

    def keep(folder: Path) -> list[str]:
        for file, text in parts.items():
            write_whole("--out", folder / file, text.encode())
        return list(parts)

    def fit(folder: Path) -> list[str]:
        write_whole("--out", folder / TWIN, twin.encode())
        return [TWIN]

    stages.run("capture", parts, keep)
    stages.run("fit", {}, fit)
    return with_files(plan, topology=twin, trace=load)


def _trained(stages: Stages, flags: list[str], inputs: dict[str, Any], *, has_series: bool) -> Path | int:
    """The weights of the stage ``train``; the trainer's exit code where it was stopped, or failed."""

    def train(folder: Path) -> list[str]:
        more = ["--resume"] if any(folder.glob("*.ckpt")) else []
        more += ["--trace", str(stages.folder / "capture" / SERIES)] if has_series else []
        graph = ["--topology", str(stages.folder / "fit" / TWIN)]
        command = [sys.executable, "-m", TRAINER, "train", "karma", "--out", str(folder), *graph, *flags, *more]
        code = run_child(command)
        if code:
            raise TrainingEnded(code)
        return [WEIGHTS]

    try:
        return stages.run("train", inputs, train) / WEIGHTS
    except TrainingEnded as ended:
        told = "interrupted" if ended.exit_code == EXIT_INTERRUPTED else str(ended)
        click.echo(f"{told}; the same command goes on", err=True)
        return ended.exit_code


def _analysed(stages: Stages, plan: AnalysisPlan, weights: Path, *, quiet: bool) -> Any:
    import msgspec

    from lab.autoscaling.analysis.analysis import Analysis

    def run(folder: Path) -> list[str]:
        write_analysis(analysed(plan, weights, quiet=quiet), folder / PAGE, folder / JSON)
        return [PAGE, JSON]

    asked = {
        "seeds": list(plan.seeds), "scenario": plan.scenario, "intensity": plan.intensity,
        "thresholds": msgspec.to_builtins(plan.thresholds),
    }  # fmt: skip
    folder = stages.run("analyse", asked, run)
    return msgspec.json.decode((folder / JSON).read_bytes(), type=Analysis)


def _given(flag: str, file: Path | None, kept: Path) -> str:
    """The text of a file: as given now, else as given before, else ""."""
    return text_of(flag, file if file is not None or not kept.exists() else kept, "give a file that can be read")


def _object(name: str, kubeconfig: Path | None, context: str, namespace: str) -> Any:
    """The object as its service reads it: of a file, or of the API server."""
    from shared.kube.autoscaling import AutoscalerObject, autoscaler_from_api
    from shared.kube.objects import ObjectMeta

    if name.endswith((".yaml", ".yml", ".json")):
        item = _of_file(Path(name))
    else:
        where = place(name, namespace)
        item = ask(kubeconfig, context, lambda client: read_one(client, *where))
    meta = item.get("metadata") or {}
    own = ObjectMeta(name=str(meta.get("name", "")), namespace=str(meta.get("namespace") or namespace or "default"))
    return autoscaler_from_api(AutoscalerObject(own, item.get("spec"), None))


def _of_file(file: Path) -> dict[str, Any]:
    """The one ResilientAutoscaler of a YAML or JSON file. ``ConfigError``: there is none, or more than one."""
    import yaml

    try:
        found = list(yaml.safe_load_all(text_of("OBJECT", file, "give a file that can be read")))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"OBJECT: {file}{where}: no YAML ({getattr(error, 'problem', '')}); fix the file") from None
    scalers = [one for one in found if isinstance(one, dict) and one.get("kind") == "ResilientAutoscaler"]
    if len(scalers) != 1:
        raise ConfigError(f"OBJECT: {file}: {len(scalers)} ResilientAutoscalers; give a file with one")
    return scalers[0]


def _check_learner() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"design: {' and '.join(missing)} missing; install the extra: pip install 'conclave[learn,analysis]'"
            " --extra-index-url https://download.pytorch.org/whl/cpu"
        )
