"""Trains ``jobs-dl2`` and ``jobs-sets`` over some seeds: settings, and the card of the weights best on validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from lab.learner.jobs.dl2_training import ROUNDS, VALIDATION_SEEDS, Dl2Run, Dl2Settings
from lab.learner.jobs.history_training import HistoryRun, HistorySettings
from lab.learner.jobs.playgrounds import default_tables, playgrounds_of
from lab.learner.jobs.sets_training import SetsRun, SetsSettings
from lab.learner.jobs.teachers import history_of, teacher_of
from lab.learner.training.run_files import write_weights
from lab.learner.training.runner import TrainRequest, train_seeds, trained_as
from lab.workers import Workers
from shared.errors import ConfigError
from shared.jobs.history import DecidedJobs
from shared.jobs.policies.learned.dl2 import NAME as DL2
from shared.jobs.policies.learned.sets import NAME as SETS

VERSION = {DL2: 1, SETS: 2}
TEACHER = "optimus"
DATA = {
    DL2: "none: Twin A's workloads (lab/jobs/twin_a.py), drawn from seeds of 100,000,000 and above",
    SETS: "Twin A's workloads, and Twin B's drawn from Philly's arrivals (validated on seeds 100-105), "
    "from seeds as high",
}
LIMITS = {
    DL2: [
        "trained on Twin A alone: a synthetic cluster with parameter servers; for jobs without them it is untrained",
        "asked once for each worker or server that is given; models that are not on the card have no type",
    ],
    SETS: [
        "trained where a change costs nothing (Twin A) and where it costs 30 s (Twin B), nothing between",
        "it needs to know how fast jobs run, as marginal does",
    ],
}
OF_HISTORY = "imitates what one cluster decided and learned nothing beyond it"


def train_jobs(request: TrainRequest) -> None:
    """Train every seed to its end and write the best. Raises ``ConfigError`` on what cannot be used."""
    with Workers(request.workers, ray=request.ray) as workers:
        if request.policy == SETS:
            _train_sets(request, workers)
        else:
            _train_dl2(request, workers)


def _train_dl2(request: TrainRequest, workers: Workers) -> None:
    history = history_of(request.warm_up)
    if history:
        _imitate_history(request, history)
        return
    teacher = teacher_of(request.warm_up or TEACHER)
    settings = [Dl2Settings(seed, request.steps or ROUNDS, teacher.name) for seed in request.seeds]
    # a run imitates by itself, as part of its settings: the runner's own warm-up is of other policies
    finished = train_seeds(request, [partial(Dl2Run, one, teacher, workers) for one in settings])
    best = min(finished, key=lambda run: run.best_score)
    figures = {
        "validation hours by training seed": {str(run.settings.seed): round(run.best_score, 3) for run in finished},
        f"validation hours of imitating {teacher.name} alone": round(best.warm_score, 3),
    }
    _write(request, best, figures)


def _imitate_history(request: TrainRequest, history: Sequence[DecidedJobs]) -> None:
    """What a live cluster decided; there is no twin of it to learn more in."""
    if request.steps is not None:
        raise ConfigError("--steps: a cluster's history is imitated, no rounds follow; leave it out")
    source = Path(request.warm_up).name
    settings = [HistorySettings(seed, source, len(history)) for seed in request.seeds]
    finished = train_seeds(request, [partial(HistoryRun, one, history) for one in settings])
    best = max(finished, key=lambda run: run.agreement)
    figures = {"share of the increments of the last fifth that it gives as the cluster did": round(best.agreement, 3)}
    trained = trained_as(request, best, validation_seeds=(), data=f"{source}: {len(history)} decisions of a cluster")
    weights = best.weights(version=VERSION[DL2], trained=trained, figures=figures, limits=[OF_HISTORY])
    file = write_weights(request.out, weights)
    click.echo(f"{request.policy}: gives {best.agreement:.1%} of the increments held back as {source} does; {file}")


def _train_sets(request: TrainRequest, workers: Workers) -> None:
    if request.warm_up:
        raise ConfigError("--warm-up: jobs-sets begins with marginal by itself; leave it out")
    settings = [SetsSettings(seed, request.steps or SetsSettings().rounds) for seed in request.seeds]
    playgrounds = playgrounds_of(default_tables())
    _write_sets(request, train_seeds(request, [partial(SetsRun, one, playgrounds, workers) for one in settings]))


def _write_sets(request: TrainRequest, finished: Sequence[SetsRun]) -> None:
    best = min(finished, key=lambda run: run.best_score)
    figures = {
        "validation beside marginal by training seed": {
            str(run.settings.seed): round(run.best_score, 4) for run in finished
        },
        "validation beside marginal of imitating it alone": round(best.warm_score, 4),
    }
    _write(request, best, figures)


def _write(request: TrainRequest, best: Dl2Run | SetsRun, figures: Mapping[str, Any]) -> None:
    weights = best.weights(
        version=VERSION[request.policy],
        trained=trained_as(
            request, best, validation_seeds=VALIDATION_SEEDS, data=DATA[request.policy], steps=request.steps
        ),
        figures=dict(figures),
        limits=LIMITS[request.policy],
    )
    file = write_weights(request.out, weights)
    reached = f"{best.best_score:.4f} of marginal's" if isinstance(best, SetsRun) else f"{best.best_score:.3f} h"
    click.echo(f"{request.policy}: seed {best.settings.seed} is at {reached} on validation; {file}")
