"""``conclave autoscale design OBJECT``: capture, fit, train, analyse, as one command that may be stopped and goes on.

    capture   what the object says of its services; the graph and the series that were given, or recorded now
    fit       the twin: the graph, with the object's bounds and objectives; of recorded series a learned one
    judge     of a learned one: how far it is from the hours that were held back (``loop``)
    train     karma's weights in that twin, by the learner, a process of its own
    analyse   in that twin: the page and its JSON, go or no go

The folder of each stage and what it is made from: ``stages``. Nothing here changes the object or lets anything act.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lab.autoscaling.budget import rounds_of
from lab.cli.autoscale.analyse import (
    AnalysisPlan,
    analysed,
    analysis_options,
    in_twin,
    lines_of,
    planned,
    text_of,
    with_files,
    write_analysis,
)
from lab.cli.autoscale.loop import (
    EXIT_INTERRUPTED,
    LOAD,
    ChildEnded,
    FittedTwin,
    SeriesRecording,
    check_gone_on,
    check_recording,
    holds_series,
    record,
    tell_judgement,
    twin_of,
)
from lab.cli.autoscale.stages import Stages, opened
from lab.cli.train.command import FIRST_TRAINING_SEED, NEEDED, TRAINER, run_child
from lab.evaluation.seeds import parse_seeds
from services.cli.autoscale.objects import ask, cluster_options, place, read_one
from services.cli.terminal.durations import SECONDS
from services.cli.terminal.output_file import write_whole
from shared.errors import ConfigError

if TYPE_CHECKING:
    from lab.autoscaling.checks import Check

FILE = click.Path(path_type=Path)
GRAPH, SERIES, OBJECT, TWIN, WEIGHTS, PAGE, JSON = (
    "graph.yaml", "series.csv", "object.json", "topology.yaml", "karma.npz", "analysis.html", "analysis.json",
)  # fmt: skip


@click.command()
@click.argument("name", metavar="OBJECT", required=False)
@click.option("--services", help="The same as OBJECT, in the words of 'conclave twin capture'.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder; default: design/NAMESPACE/NAME.")
@click.option("--topology", type=FILE, help="The service graph that the twin is made of; kept for the next time.")
@click.option(
    "--series",
    type=FILE,
    help="Series of 'twin capture --services', of which a twin is learned; or a load, as evaluate --trace. Kept.",
)
@click.option("--duration", type=SECONDS, help="Record the series now, from the cluster, for so long, as in 6h.")
@click.option("--step", type=SECONDS, default="10s", show_default=True, help="With --duration: between two looks.")
@click.option("--prometheus", default="", help="With --duration: who is asked for signals.")
@click.option("--prometheus-token-file", "token_file", type=FILE, help="A bearer token for it.")
@click.option("--prometheus-ca", type=FILE, help="CA that signs its certificate (PEM).")
@click.option("--organisation", type=FILE, help="Roles and missions of your own, YAML; default: the shipped four.")
@click.option("--twin-epochs", type=click.IntRange(1, 1000), default=10, show_default=True, help="Of a learned twin.")
@click.option(
    "--episodes", type=int, default=224, show_default=True, help="How long to train; the shipped weights: 512."
)
@click.option("--train-seeds", default="1000", show_default=True, help="A training for each; the best is analysed.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes to train in.")
@analysis_options
@cluster_options
def design(
    name: str | None, services: str | None, out: Path | None, topology: Path | None, series: Path | None,
    duration: float | None, step: float, prometheus: str, token_file: Path | None, prometheus_ca: Path | None,
    organisation: Path | None, twin_epochs: int, episodes: int, train_seeds: str,
    workers: int, seeds: str, scenario: str | None, intensity: float | None, thresholds: tuple[str, ...],
    require_go: bool, quiet: bool, kubeconfig: Path | None, context: str, namespace: str,
) -> int:  # fmt: skip
    """Train a policy for OBJECT (NAME, NAMESPACE/NAME, or a file with it) on a twin of it, and analyse what it does.

    With recorded series (--series, or --duration to record them now) the twin is learned from them and judged on hours
    that were held back; one that misses its goals is a no go. Without, it is the graph of --topology. Stop it at any
    time; the same command goes on where it was. Stages whose input is as it was are not done again. At the end: a page
    with a recommendation, and the weights. Whether they act is up to you.
    """
    if (name is None) == (services is None):
        raise ConfigError("OBJECT: give NAME, NAMESPACE/NAME or a file, once: as it is, or by --services")
    name = name or services or ""
    plan = planned(seeds, None, None, thresholds)
    rounds, low = rounds_of(episodes), [one for one in parse_seeds(train_seeds) if one < FIRST_TRAINING_SEED]
    if low:
        raise ConfigError(
            f"--train-seeds: {low[0]} is kept for choosing and reporting; give {FIRST_TRAINING_SEED} and above"
        )
    _check_learner()
    scaler = _object(name, kubeconfig, context, namespace)
    roles = _roles(organisation, scaler)
    folder = out if out is not None else Path("design").joinpath(*scaler.key.split("/"))
    say = (lambda _: None) if quiet else (lambda line: click.echo(line, err=True))
    kept = folder / "capture" / SERIES
    learned = duration is not None or _holds_series(series if series is not None or not kept.exists() else kept)
    if not learned:
        plan = planned(seeds, scenario, intensity, thresholds)
    recording = None
    if duration is not None:
        check_recording(duration, step)
        if series is not None:
            raise ConfigError("--duration: the series are given; leave it out, or --series")
        token = text_of("--prometheus-token-file", token_file, "give a file that can be read").strip()
        recording = SeriesRecording(
            name, kubeconfig or _kubeconfig(), context, prometheus, token, prometheus_ca, duration, step, quiet
        )
    try:
        with opened(folder, f"design of {scaler.key}", say) as stages:
            fitted = _twin(stages, scaler, topology, series, recording, twin_epochs)
            if isinstance(fitted, FittedTwin):
                if not quiet:
                    tell_judgement(fitted)
                plan = with_files(plan, topology=fitted.topology, trace=(fitted.folder / LOAD).read_text())
                plan = in_twin(plan, fitted.folder, fitted.judgement, scenario, intensity)
            else:
                plan = with_files(plan, topology=fitted[0], trace=fitted[1])
            plan = replace(plan, sources=_sources(scaler))
            flags = ["--seeds", train_seeds, "--steps", str(rounds), "--workers", str(workers)]
            inputs: dict[str, Any] = {"seeds": train_seeds, "rounds": rounds}
            if organisation is not None:
                flags, inputs = [*flags, "--organisation", str(organisation)], {**inputs, "organisation": roles}
            weights = _trained(stages, flags, inputs, _place(stages, plan))
            found = _analysed(stages, plan, weights, quiet=quiet)
    except ChildEnded as ended:
        told = "interrupted" if ended.exit_code == EXIT_INTERRUPTED else str(ended)
        click.echo(f"{told}; the same command goes on", err=True)
        return ended.exit_code
    for line in lines_of(found):
        click.echo(line)
    click.echo(f"page: {folder / 'analyse' / PAGE}")
    click.echo(f"weights: {weights} (sha256:{found.weights}); how to let them act: docs/autoscaling-design.md")
    return 1 if require_go and not found.go else 0


def _twin(
    stages: Stages,
    scaler: Any,
    topology: Path | None,
    series: Path | None,
    recording: SeriesRecording | None,
    epochs: int,
) -> FittedTwin | tuple[str, str]:
    """The stages up to the twin: a learned one, or (its graph, its load) as texts."""
    import msgspec

    from lab.autoscaling.fitting import captured, fitted
    from lab.files import read_series
    from lab.worlds.services.loads import parse_trace

    said = msgspec.json.format(msgspec.json.encode(captured(scaler), order="deterministic"), indent=1)
    kept = stages.folder / "capture"
    graph = _given("--topology", topology, kept / GRAPH)
    parts = {OBJECT: said.decode(), **({GRAPH: graph} if graph else {})}

    def keep(folder: Path, more: bytes = b"") -> list[str]:
        files = {**{file: text.encode() for file, text in parts.items()}, **({SERIES: more} if more else {})}
        for file, data in files.items():
            write_whole("--out", folder / file, data)
        return list(files)

    def record_them(folder: Path) -> list[str]:
        names = keep(folder)
        if recording is not None:
            record(recording, folder / SERIES)
        return [*names, SERIES]

    hours = stages.recorded("capture") and (kept / SERIES).exists()
    if recording is not None:
        check_gone_on(kept / SERIES, [one.name for one in scaler.targets], recording.step_s)
        stages.run("capture", {**parts, "recording": recording.told()}, record_them, keep=True, recorded=True)
        data = read_series("--series", kept / SERIES)
    else:
        file = series if series is not None else kept / SERIES
        data = read_series("--series", file) if series is not None or file.exists() else b""
        if hours and series is not None and data != (kept / SERIES).read_bytes():
            raise ConfigError(
                f"--series: {kept / SERIES} was recorded and would be replaced; move it away, or give another --out"
            )
    if data and holds_series(data):
        if recording is None:
            inputs = {**parts, SERIES: hashlib.sha256(data).hexdigest()}
            stages.run("capture", inputs, lambda where: keep(where, data), keep=True, recorded=hours)
        return twin_of(stages, captured(scaler), data, graph, epochs=epochs, child=run_child)
    load = _given("--series", series, kept / SERIES)
    if not graph:
        raise ConfigError("--topology: no service graph is known; give the file of one, or recorded series of services")
    if load:
        parse_trace(load, "--series")
    twin = fitted(captured(scaler), graph)

    def fit(folder: Path) -> list[str]:
        write_whole("--out", folder / TWIN, twin.encode())
        return [TWIN]

    inputs = {**parts, **({SERIES: load} if load else {})}
    stages.run("capture", inputs, lambda where: keep(where, load.encode()), keep=True, recorded=hours)
    stages.run("fit", {}, fit)
    return twin, load


def _place(stages: Stages, plan: AnalysisPlan) -> list[str]:
    """The trainer's flags for where it trains."""
    where = ["--topology", str(stages.folder / "fit" / TWIN)]
    if plan.twin is not None:
        return [*where, "--twin", str(stages.folder / "fit"), "--trace", str(stages.folder / "fit" / LOAD)]
    return [*where, *(["--trace", str(stages.folder / "capture" / SERIES)] if plan.trace else [])]


def _trained(stages: Stages, flags: list[str], inputs: dict[str, Any], where: list[str]) -> Path:
    """The weights of the stage ``train``. ``ChildEnded``: the trainer was stopped, or failed."""

    def train(folder: Path) -> list[str]:
        more = ["--resume"] if any(folder.glob("*.ckpt")) else []
        command = [sys.executable, "-m", TRAINER, "train", "karma", "--out", str(folder), *where, *flags, *more]
        code = run_child(command)
        if code:
            raise ChildEnded(code)
        return [WEIGHTS]

    return stages.run("train", inputs, train) / WEIGHTS


def _sources(scaler: Any) -> Check:
    """Whether the object says now where the readings come from without which the policy does not decide; what was read
    while series were recorded says nothing of that, and is judged beside it."""
    from lab.autoscaling.checks import at_least
    from shared.autoscaling.observation import LOAD

    known = [{signal.value for signal in one.sources} for one in scaler.targets]
    share = sum(len(LOAD & names) for names in known) / max(len(known) * len(LOAD), 1)
    return at_least("sources", 1.0, share, "of arrivals, answers and cpu of each service, those that have a source")


def _roles(organisation: Path | None, scaler: Any) -> dict[str, Any] | None:
    """Roles of the user's own, checked against what the object measures; None: the shipped ones. ``ConfigError``: they
    contradict, a mission cannot be reached, or a signal has no source."""
    if organisation is None:
        return None
    import msgspec

    from lab.files import read_organisation
    from shared.autoscaling.roles.checking import unmeasured

    found = read_organisation("--organisation", organisation)
    sources = {one.name: {signal.value for signal in one.sources} for one in scaler.targets}
    for line in unmeasured(found, sources):
        raise ConfigError(f"--organisation: {organisation}: {line}")
    roles: dict[str, Any] = msgspec.to_builtins(found)
    return roles


def _holds_series(file: Path | None) -> bool:
    """Whether a file holds series of services; what cannot be read is told where it is used."""
    return file is not None and file.is_file() and holds_series(file.read_bytes())


def _kubeconfig() -> Path:
    """As kubectl's."""
    return Path(os.environ.get("KUBECONFIG", "~/.kube/config")).expanduser()


def _analysed(stages: Stages, plan: AnalysisPlan, weights: Path, *, quiet: bool) -> Any:
    import msgspec

    from lab.autoscaling.analysis.analysis import Analysis

    def run(folder: Path) -> list[str]:
        write_analysis(analysed(plan, weights, quiet=quiet), folder / PAGE, folder / JSON)
        return [PAGE, JSON]

    asked: dict[str, Any] = {
        "seeds": list(plan.seeds), "scenario": plan.scenario, "intensity": plan.intensity,
        "thresholds": msgspec.to_builtins(plan.thresholds), "goals": msgspec.to_builtins(plan.goals),
    }  # fmt: skip
    if plan.sources is not None:
        asked["sources"] = plan.sources.found
    folder = stages.run("analyse", asked, run)
    return msgspec.json.decode((folder / JSON).read_bytes(), type=Analysis)


def _given(flag: str, file: Path | None, kept: Path) -> str:
    """The text of a file: as given now, else as given before, else ""."""
    return text_of(flag, file if file is not None or not kept.exists() else kept, "give a file that can be read")


def _object(name: str, kubeconfig: Path | None, context: str, namespace: str) -> Any:
    """The object as its service reads it: of a file, or of the API server."""
    from shared.kube.objects import ObjectMeta
    from shared.kube.scaling.autoscaling import AutoscalerObject, autoscaler_from_api

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
            f"design: {' and '.join(missing)} missing; install the extra: pip install"
            " 'conclave-scheduler[learn,analysis]' --extra-index-url https://download.pytorch.org/whl/cpu"
        )
