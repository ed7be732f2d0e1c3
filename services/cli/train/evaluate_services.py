"""``conclave evaluate --suite autoscaling``: what belongs to it alone: a trace, a topology, rows of every decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import click

from services.cli.terminal.output_file import write_whole
from services.cli.train.inputs import read_trace
from shared.experiments.evaluation.results import Progress, SuiteResult
from shared.experiments.evaluation.suites.suites import SuiteInput

SUITE = "autoscaling"
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
    )
    for option in reversed(options):
        command = option(command)
    return command


def evaluate_services(flags: GraphFlags, trace: Path | None, given: SuiteInput, progress: Progress) -> SuiteResult:
    """Run the suite and write ``--steps``, whole. Raises ``ConfigError`` naming the flag, and the place in a file."""
    from shared.experiments.autoscaling.episode import StepsFile
    from shared.experiments.autoscaling.suite import TOPOLOGY, TRACE, experiments, run_suite

    files: dict[str, str] = {}
    if trace is not None:
        files[TRACE] = read_trace("--trace", trace, "give one rate per line, or a time and a rate")
    if flags.topology is not None:
        files[TOPOLOGY] = read_trace("--topology", flags.topology, "give a service graph, see docs/autoscaling-twin.md")
    planned = experiments(own_files=bool(files), scenario=flags.scenario, intensity=flags.intensity)
    rows = StepsFile() if flags.steps is not None else None
    result = run_suite(
        replace(given, files=files), progress, planned=planned, steps=rows, decide_s=flags.decide_every or DECIDE_S
    )
    if flags.steps is not None and rows is not None:
        write_whole("--steps", flags.steps, rows.content())
    return result
