"""``conclave autoscale analyse``: what a trained policy does on a twin, as one page with a recommendation."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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

F = TypeVar("F", bound=Callable[..., Any])
EXTRA = ("jinja2", "scipy", "sklearn")
FILE = click.Path(path_type=Path)
POLICY = "karma"


def analysis_options(command: F) -> F:
    """``--seeds``, ``--scenario``, ``--intensity``, ``--threshold``, ``--require-go``, ``--quiet``."""
    options = (
        click.option("--seeds", default="42-51", show_default=True, help="What is reported; trees learn on 100-109."),
        click.option("--scenario", default="mixed", show_default=True, help="What happens on the twin."),
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
    """What is analysed, checked before anything is played. ``topology``, ``trace``: texts, "": the twin's own."""

    seeds: tuple[int, ...]
    scenario: str
    intensity: float
    thresholds: Thresholds
    topology: str = ""
    trace: str = ""
    command: str = field(default_factory=lambda: shlex.join(["conclave", *sys.argv[1:]]))


def planned(seeds: str, scenario: str, intensity: float | None, thresholds: Sequence[str]) -> AnalysisPlan:
    """The plan of these flags. ``ConfigError``: one of them cannot be used, or the extra is missing."""
    check_extra()
    from lab.autoscaling.suite import experiments

    (experiment,) = experiments(own_files=True, scenario=scenario, intensity=intensity)
    return AnalysisPlan(
        seeds=parse_seeds(seeds),
        scenario=experiment.scenario,
        intensity=experiment.intensity,
        thresholds=thresholds_of(thresholds),
    )


def check_extra() -> None:
    """``ConfigError``: what the extra ``analysis`` installs is missing."""
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"analyse: {' and '.join(missing)} missing; install the extra: pip install 'conclave[analysis]'"
        )


def thresholds_of(given: Sequence[str]) -> Thresholds:
    """The thresholds, some of them given as NAME=VALUE. ``ConfigError``: no such one, or out of its range."""
    import msgspec

    from lab.autoscaling.analysis.analysis import Thresholds

    values: dict[str, float] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in Thresholds.__struct_fields__:
            known = ", ".join(Thresholds.__struct_fields__)
            raise ConfigError(f"--threshold: {name!r} is not known; choose one of {known}")
        try:
            values[name] = float(value)
            msgspec.convert(values, Thresholds)
        except (ValueError, msgspec.ValidationError) as error:
            raise ConfigError(f"--threshold: {text!r}: {error}; give a number within its range") from None
    return msgspec.convert(values, Thresholds)


def analysed(plan: AnalysisPlan, weights: Path | None, *, quiet: bool) -> Analysis:
    """The analysis of a weights file; None: of the shipped one. ``ConfigError``: a file that cannot be used."""
    from lab.autoscaling.analysis.analysis import analyse as run
    from lab.autoscaling.episode import Setup
    from lab.worlds.services.loads import parse_trace
    from lab.worlds.services.topology import default_topology, parse_topology
    from shared.autoscaling.networks.karma import KarmaPolicy

    learned = read_weights([weights]) if weights is not None else {}
    if weights is not None and POLICY not in learned:
        raise ConfigError(f"--weights: {weights} is of {', '.join(learned)}; give weights of {POLICY}")
    topology = parse_topology(plan.topology, "--topology") if plan.topology else default_topology()
    trace = parse_trace(plan.trace, "--trace") if plan.trace else None
    setup = Setup(topology, plan.scenario, plan.intensity, trace)
    with RunProgress(quiet=quiet) as progress:
        return run(
            KarmaPolicy(weights=learned.get(POLICY)), setup, seeds=plan.seeds, thresholds=plan.thresholds,
            command=plan.command, progress=progress,
        )  # fmt: skip


def lines_of(found: Analysis) -> list[str]:
    """The recommendation and its reasons, for a terminal."""
    width = max(len(one.name) for one in found.checks)
    lines = [f"{found.policy} on {found.topology}: {'go' if found.go else 'no go'}"]
    for one in found.checks:
        value = "unknown" if one.found is None else f"{one.found:.4f}"
        met = "met    " if one.met else "NOT met"
        lines.append(f"  {met} {one.name:<{width}} {value}, wanted {one.wanted:g}: {one.meaning}")
    in_roles = found.alignment.in_roles
    if in_roles is not None:
        lines.append(f"  note: of decisions in a role, the roles explain {in_roles:.4f} without a mask")
    return lines


@click.command()
@click.option("--weights", type=FILE, help="Weights of karma; default: those that are shipped.")
@click.option("--topology", type=FILE, help="The service graph; default: KARMA's chain.")
@click.option("--trace", type=FILE, help="The load; default: the twin's own.")
@click.option("--html", "html_file", type=FILE, help="Write the page here.")
@click.option("--json", "json_file", type=FILE, help="Write the same here, as JSON.")
@analysis_options
def analyse(
    weights: Path | None, topology: Path | None, trace: Path | None, html_file: Path | None, json_file: Path | None,
    seeds: str, scenario: str, intensity: float | None, thresholds: tuple[str, ...], require_go: bool, quiet: bool,
) -> int:  # fmt: skip
    """Say what a trained policy does on the twin, and whether to let it act: go or no go, with each reason.

    Alignment with roles, clusters of behaviour and their stability over seeds, counterfactuals, a small tree for each
    agent, and what it is worth beside HPA. It changes nothing: approval is yours (conclave autoscale approve).
    """
    plan = planned(seeds, scenario, intensity, thresholds)
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
    from dataclasses import replace

    return replace(plan, topology=topology, trace=trace)


def write_analysis(found: Analysis, html_file: Path | None, json_file: Path | None) -> None:
    """Write the page and the JSON, whole."""
    from lab.autoscaling.analysis.page import encode, render

    if json_file is not None:
        write_whole("--json", json_file, encode(found))
    if html_file is not None:
        write_whole("--html", html_file, render(found).encode())
