"""``conclave autoscale analyse``: what a trained policy does on a twin, as one page with a recommendation."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lab.evaluation.seeds import parse_seeds
from services.cli.inputs import read_trace, read_weights
from services.cli.terminal.output_file import check_distinct, check_writable, write_whole
from services.cli.terminal.progress import RunProgress
from shared.errors import ConfigError

if TYPE_CHECKING:
    from lab.autoscaling.analysis.analysis import Analysis, Thresholds
    from lab.autoscaling.checks import Check
    from lab.autoscaling.judging import TwinGoals, TwinJudgement
    from lab.worlds.learned.model import LearnedTwin

F = TypeVar("F", bound=Callable[..., Any])
EXTRA = ("jinja2", "scipy", "sklearn")
FILE = click.Path(path_type=Path)
POLICY = "karma"
JUDGEMENT = "judgement.json"
"""Beside a learned twin: what was found of it."""


def analysis_options(command: F) -> F:
    """``--seeds``, ``--scenario``, ``--intensity``, ``--threshold``, ``--require-go``, ``--quiet``."""
    options = (
        click.option("--seeds", default="42-51", show_default=True, help="What is reported; trees learn on 100-109."),
        click.option("--scenario", help="What happens; default: mixed, in a learned twin what was recorded."),
        click.option("--intensity", type=float, help="How strong it is; default: as in evaluate."),
        click.option(
            "--threshold",
            "thresholds",
            multiple=True,
            help="NAME=VALUE: what must be met for a go, such as purity=0.8.",
        ),
        click.option("--require-go", is_flag=True, help="Exit with 1 where the recommendation is no go."),
        click.option("--quiet", is_flag=True, help="Show no progress."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisPlan:
    """What is analysed, checked before anything is played. ``topology``, ``trace``: texts, "": the twin's own.
    ``twin``: a learned one that is played in, and what was found of it; ``sources``: of the readings."""

    seeds: tuple[int, ...]
    scenario: str
    intensity: float
    thresholds: Thresholds
    goals: TwinGoals
    topology: str = ""
    trace: str = ""
    twin: LearnedTwin | None = None
    judgement: TwinJudgement | None = None
    sources: Check | None = None
    command: str = field(default_factory=lambda: shlex.join(["conclave", *sys.argv[1:]]))


def planned(
    seeds: str, scenario: str | None, intensity: float | None, thresholds: Sequence[str], *, twin: Path | None = None
) -> AnalysisPlan:
    """The plan of these flags; ``twin``: the folder of a learned one, with its judgement. ``ConfigError``: one of them
    cannot be used, or the extra is missing."""
    check_extra()
    from lab.autoscaling.suite import experiments

    wanted, goals = thresholds_of(thresholds)
    if twin is not None:
        plan = AnalysisPlan(seeds=parse_seeds(seeds), scenario="", intensity=0.0, thresholds=wanted, goals=goals)
        return in_twin(plan, twin, twin / JUDGEMENT if twin.is_dir() else twin.parent / JUDGEMENT, scenario, intensity)
    (experiment,) = experiments(own_files=True, scenario=scenario or "mixed", intensity=intensity)
    return AnalysisPlan(
        seeds=parse_seeds(seeds),
        scenario=experiment.scenario,
        intensity=experiment.intensity,
        thresholds=wanted,
        goals=goals,
    )


def in_twin(
    plan: AnalysisPlan, twin: Path, judgement: Path, scenario: str | None, intensity: float | None
) -> AnalysisPlan:
    """The plan in a learned twin, and what a file says of it (None where there is none). ``ConfigError``: a file that
    cannot be used, a scenario that was not recorded, or a judgement of another twin."""
    from lab.autoscaling.suite import experiments_in
    from lab.files import read_judgement, read_twin

    found, digest = read_twin("--twin", twin)
    recorded = found.header.scenarios
    name = scenario or ("mixed" if "mixed" in recorded else recorded[0])
    (experiment,) = experiments_in(found, scenario=name, intensity=intensity)
    return replace(
        plan, twin=found, scenario=experiment.scenario, intensity=experiment.intensity,
        judgement=read_judgement("--twin", judgement, digest) if judgement.exists() else None,
    )  # fmt: skip


def check_extra() -> None:
    """``ConfigError``: what the extra ``analysis`` installs is missing."""
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"analyse: {' and '.join(missing)} missing; install the extra: pip install 'conclave-scheduler[analysis]'"
        )


def thresholds_of(given: Sequence[str]) -> tuple[Thresholds, TwinGoals]:
    """The thresholds, and those of a learned twin, some of them given as NAME=VALUE. ``ConfigError``: no such one, or
    out of its range."""
    import msgspec

    from lab.autoscaling.analysis.analysis import Thresholds
    from lab.autoscaling.judging import TwinGoals

    kinds = (Thresholds, TwinGoals)
    values: dict[type[Any], dict[str, float]] = {kind: {} for kind in kinds}
    for text in given:
        name, _, value = text.partition("=")
        kind = next((one for one in kinds if name in one.__struct_fields__), None)
        if kind is None:
            known = ", ".join(field for one in kinds for field in one.__struct_fields__)
            raise ConfigError(f"--threshold: {name!r} is not known; choose one of {known}")
        try:
            values[kind][name] = float(value)
            msgspec.convert(values[kind], kind)
        except (ValueError, msgspec.ValidationError) as error:
            raise ConfigError(f"--threshold: {text!r}: {error}; give a number within its range") from None
    return msgspec.convert(values[Thresholds], Thresholds), msgspec.convert(values[TwinGoals], TwinGoals)


def analysed(plan: AnalysisPlan, weights: Path | None, *, quiet: bool) -> Analysis:
    """The analysis of a weights file; None: of the shipped one. ``ConfigError``: a file that cannot be used."""
    from lab.autoscaling.analysis.analysis import analyse as run
    from lab.autoscaling.episode import Setup
    from lab.worlds.learned.world import check_graph
    from lab.worlds.services.loads import parse_trace
    from lab.worlds.services.topology import default_topology, parse_topology
    from shared.autoscaling.networks.karma import KarmaPolicy

    learned = read_weights([weights]) if weights is not None else {}
    if weights is not None and POLICY not in learned:
        raise ConfigError(f"--weights: {weights} is of {', '.join(learned)}; give weights of {POLICY}")
    topology = parse_topology(plan.topology, "--topology") if plan.topology else default_topology()
    trace = parse_trace(plan.trace, "--trace") if plan.trace else None
    setup = Setup(topology, plan.scenario, plan.intensity, trace)
    if plan.twin is not None:
        check_graph(plan.twin, topology, "--twin")
        setup = setup.in_twin(plan.twin)
    with RunProgress(quiet=quiet) as progress:
        return run(
            KarmaPolicy(weights=learned.get(POLICY)), setup, seeds=plan.seeds, thresholds=plan.thresholds,
            judgement=plan.judgement, goals=plan.goals, sources=plan.sources, command=plan.command, progress=progress,
        )  # fmt: skip


def lines_of(found: Analysis) -> list[str]:
    """The recommendation and its reasons, for a terminal."""
    width = max(len(one.name) for one in found.checks)
    lines = [f"{found.policy} on {found.topology}: {'go' if found.go else 'no go'}"]
    for one in found.checks:
        value = "unknown" if one.found is None else f"{one.found:.4f}"
        met = "met    " if one.met else "NOT met"
        lines.append(f"  {met} {one.name:<{width}} {value}, wanted {one.wanted:g}: {one.meaning}")
    for name, hours in found.day.replica_hours.items():
        lines.append(f"  a day by {name}: {hours:.1f} replica hours, {found.day.minutes_lost[name]:.0f} minutes lost")
    in_roles = found.alignment.in_roles
    if in_roles is not None:
        lines.append(f"  note: of decisions in a role, the roles explain {in_roles:.4f} without a mask")
    return lines


@click.command()
@click.option("--weights", type=FILE, help="Weights of karma; default: those that are shipped.")
@click.option("--topology", type=FILE, help="The service graph; default: KARMA's chain.")
@click.option("--trace", type=FILE, help="The load; default: the twin's own.")
@click.option("--twin", type=FILE, help="Play in this learned twin, a folder of 'train services-twin'.")
@click.option("--html", "html_file", type=FILE, help="Write the page here.")
@click.option("--json", "json_file", type=FILE, help="Write the same here, as JSON.")
@analysis_options
def analyse(
    weights: Path | None, topology: Path | None, trace: Path | None, twin: Path | None, html_file: Path | None,
    json_file: Path | None, seeds: str, scenario: str | None, intensity: float | None, thresholds: tuple[str, ...],
    require_go: bool, quiet: bool,
) -> int:  # fmt: skip
    """Say what a trained policy does on the twin, and whether to let it act: go or no go, with each reason.

    Alignment with roles, clusters of behaviour and their stability over seeds, counterfactuals, a small tree for each
    agent, and what it is worth beside HPA. In a learned twin, what 'conclave twin judge' found of that decides too. It
    changes nothing: approval is yours (conclave autoscale approve).
    """
    plan = planned(seeds, scenario, intensity, thresholds, twin=twin)
    outputs = {"--html": html_file, "--json": json_file}
    check_distinct(outputs, {"--weights": weights, "--topology": topology, "--trace": trace})
    for flag, file in outputs.items():
        check_writable(flag, file)
    texts = {
        "topology": text_of("--topology", topology, "give a service graph, see docs/autoscaling-twin.md"),
        "trace": text_of("--trace", trace, "give one rate per line, or a time and a rate"),
    }
    found = analysed(with_files(plan, **texts), weights, quiet=quiet)
    write_analysis(found, html_file, json_file)
    for line in lines_of(found):
        click.echo(line)
    return 1 if require_go and not found.go else 0


def text_of(flag: str, file: Path | None, remedy: str) -> str:
    """A file's text; "" without one. ``ConfigError``: it cannot be read."""
    return read_trace(flag, file, remedy) if file is not None else ""


def with_files(plan: AnalysisPlan, *, topology: str, trace: str) -> AnalysisPlan:
    """The plan with a graph and a load of the user's own."""
    return replace(plan, topology=topology, trace=trace)


def write_analysis(found: Analysis, html_file: Path | None, json_file: Path | None) -> None:
    """Write the page and the JSON, whole."""
    from lab.autoscaling.analysis.page import encode, render

    if json_file is not None:
        write_whole("--json", json_file, encode(found))
    if html_file is not None:
        write_whole("--html", html_file, render(found).encode())
