"""``conclave evaluate --suite autoscaling``: what belongs to it alone: a trace, a topology, rows of every decision."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from services.cli.terminal.output_file import write_whole
from services.cli.train.inputs import read_trace
from shared.errors import ConfigError
from shared.experiments.evaluation.results import Progress, SuiteResult
from shared.experiments.evaluation.suites.suites import SuiteInput

if TYPE_CHECKING:
    from shared.policy.weights import WeightsFile

SUITE = "autoscaling"
DECIDE_S = (10, 15, 30)


def evaluate_services(
    *,
    policies: Sequence[str],
    trace: Path | None,
    topology: Path | None,
    scenario: str | None,
    intensity: float | None,
    decide_s: int,
    seeds: Sequence[int],
    command: str,
    weights: Mapping[str, WeightsFile],
    steps: Path | None,
    progress: Progress,
) -> SuiteResult:
    """Run the suite and write ``steps``, whole. Raises ``ConfigError`` naming the flag, and the place in a file."""
    from shared.experiments.autoscaling.episode import StepsFile
    from shared.experiments.autoscaling.suite import TOPOLOGY, TRACE, experiments, run_suite

    files: dict[str, str] = {}
    if trace is not None:
        files[TRACE] = read_trace("--trace", trace, "give one rate per line, or a time and a rate")
    if topology is not None:
        files[TOPOLOGY] = read_trace("--topology", topology, "give a service graph, see docs/autoscaling-twin.md")
    if decide_s not in DECIDE_S:
        raise ConfigError(f"--decide-every: {decide_s} is none of {', '.join(map(str, DECIDE_S))} seconds")
    planned = experiments(own_files=bool(files), scenario=scenario, intensity=intensity)
    rows = StepsFile() if steps is not None else None
    given = SuiteInput(seeds, command, tuple(policies), files, clock=time.thread_time, weights=weights)
    result = run_suite(given, progress, planned=planned, steps=rows, decide_s=decide_s)
    if steps is not None and rows is not None:
        write_whole("--steps", steps, rows.content())
    return result
