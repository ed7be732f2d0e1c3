"""``conclave evaluate --suite autoscaling`` and ``learned-twin``: what belongs to them alone: a trace, a topology, rows
of every decision, a learned twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from lab.evaluation.results import Progress, SuiteResult
from lab.suites.suites import SuiteInput
from services.cli.inputs import read_trace
from services.cli.terminal.output_file import write_whole
from shared.errors import ConfigError

if TYPE_CHECKING:
    from lab.worlds.learned.model import LearnedTwin

SUITE, TWIN_SUITE, CALIBRATED = "autoscaling", "learned-twin", "autoscaling-calibrated"
FILE = click.Path(path_type=Path)
DECIDE_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFlags:
    """The flags of this suite, as given."""

    topology: Path | None
    scenario: str | None
    intensity: float | None
    decide_every: int | None
    steps: Path | None
    twin: Path | None
    trials: int | None
    load: str | None

    @classmethod
    def taken_from(cls, flags: dict[str, Any]) -> Self:
        """The flags of this suite, which are then no longer among ``flags``."""
        return cls(**{name: flags.pop(name) for name in cls.__dataclass_fields__})

    def given(self) -> dict[str, object]:
        """What was given, by flag; None: not."""
        return {f"--{name.replace('_', '-')}": getattr(self, name) for name in self.__dataclass_fields__}


def graph_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags; the command gets them by name."""
    options = (
        click.option("--topology", type=FILE, help="Of --suite autoscaling: a service graph of your own, YAML."),
        click.option("--scenario", help="Of --suite autoscaling: this scenario alone, or calm, or attacker."),
        click.option("--intensity", type=float, help="How strong --scenario is."),
        click.option(
            "--decide-every", type=click.IntRange(5, 120), help="Seconds between decisions on services; default 10."
        ),
        click.option("--steps", type=FILE, help="Of --suite autoscaling: write every decision here, as CSV."),
        click.option(
            "--twin",
            type=FILE,
            help="A folder of 'train services-twin': measure it, or play --suite autoscaling in it.",
        ),
        click.option(
            "--trials", type=click.IntRange(1, 10_000), help="Of autoscaling-calibrated: settings tried of each rule."
        ),
        click.option("--load", help="Of autoscaling-calibrated: this load alone, such as bursty."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def evaluate_services(
    suite: str, flags: GraphFlags, trace: Path | None, given: SuiteInput, progress: Progress
) -> SuiteResult:
    """Run the suite and write ``--steps``, whole. Raises ``ConfigError`` naming the flag, and the place in a file."""
    from lab.files import read_twin

    files: dict[str, str] = {}
    if trace is not None:
        files["trace"] = read_trace("--trace", trace, "give one rate per line, or a time and a rate")
    if flags.topology is not None:
        files["topology"] = read_trace(
            "--topology", flags.topology, "give a service graph, see docs/autoscaling-twin.md"
        )
    given = replace(given, files=files)
    twin = read_twin("--twin", flags.twin)[0] if flags.twin is not None else None
    if suite == CALIBRATED:
        return _evaluate_calibrated(flags, given, progress)
    _refuse(suite, {"--trials": flags.trials, "--load": flags.load})
    if suite == TWIN_SUITE:
        return _evaluate_twin(flags, trace, given, twin, progress)
    from lab.autoscaling.episode import StepsFile
    from lab.autoscaling.suite import experiments, experiments_in, run_suite

    if twin is not None:
        planned = experiments_in(twin, scenario=flags.scenario, intensity=flags.intensity)
    else:
        planned = experiments(own_files=bool(files), scenario=flags.scenario, intensity=flags.intensity)
    rows = StepsFile() if flags.steps is not None else None
    result = run_suite(given, progress, planned=planned, steps=rows, decide_s=flags.decide_every or DECIDE_S, twin=twin)
    if flags.steps is not None and rows is not None:
        write_whole("--steps", flags.steps, rows.content())
    return result


def _evaluate_twin(
    flags: GraphFlags, trace: Path | None, given: SuiteInput, twin: LearnedTwin | None, progress: Progress
) -> SuiteResult:
    from lab.autoscaling.learned_twin import run_suite

    _refuse(
        suite=TWIN_SUITE,
        given={
            "--trace": trace, "--intensity": flags.intensity, "--decide-every": flags.decide_every,
            "--steps": flags.steps,
        },
        why="plays what was recorded",
    )  # fmt: skip
    return run_suite(given, progress, twin=twin, scenario=flags.scenario)


def _evaluate_calibrated(flags: GraphFlags, given: SuiteInput, progress: Progress) -> SuiteResult:
    from lab.autoscaling.yardstick.search import TRIALS
    from lab.autoscaling.yardstick.suite import run_suite, workloads

    _refuse(CALIBRATED, {"--twin": flags.twin, "--decide-every": flags.decide_every, "--steps": flags.steps})
    plan = workloads(given.files, scenario=flags.scenario, intensity=flags.intensity, load=flags.load)
    return run_suite(given, progress, planned=plan, trials=flags.trials or TRIALS)


def _refuse(suite: str, given: dict[str, object], why: str = "does not use it") -> None:
    for flag, value in given.items():
        if value is not None:
            raise ConfigError(f"{flag}: --suite {suite} {why}; leave it out")
