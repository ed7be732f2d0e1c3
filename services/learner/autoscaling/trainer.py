"""Trains ``karma`` over some seeds: settings, and the card of the weights that are best on validation."""

from __future__ import annotations

from functools import partial

import click

from services.learner.autoscaling.training import ROUNDS, VALIDATION_SEEDS, KarmaRun, KarmaSettings
from services.learner.training.run_files import write_weights
from services.learner.training.runner import TrainRequest, train_seeds, trained_as
from shared.errors import ConfigError
from shared.runtime.process.workers import Workers

VERSION = 1
LIMITS = [
    "trained on one graph of four services on one node with the twin's own loads; others rest on relative inputs",
    "what it gains is mostly in replacing replicas that fail and in sharing out a node that is short of cpu",
    "a surge beyond what the largest number of replicas answers is lost with it as without it",
]


def train_karma(request: TrainRequest) -> None:
    """Train every seed to its end and write the best. Raises ``ConfigError`` on what cannot be used."""
    if request.warm_up:
        raise ConfigError("--warm-up: karma begins with the rule by demand by itself; leave it out")
    settings = [KarmaSettings(seed, request.steps or ROUNDS) for seed in request.seeds]
    with Workers(request.workers, ray=request.ray) as workers:
        finished = train_seeds(request, [partial(KarmaRun, one, workers) for one in settings])
    best = max(finished, key=lambda run: run.best_score)
    scores = {str(run.settings.seed): round(run.best_score, 2) for run in finished}
    weights = best.weights(
        version=VERSION,
        trained=trained_as(
            request,
            best,
            validation_seeds=VALIDATION_SEEDS,
            data="none: loads and disturbances of shared.twin.services, seeds from 100,000,000 on",
            steps=request.steps,
        ),
        figures={
            "validation score by training seed": scores,
            "validation on the mixed scenario": {name: round(value, 3) for name, value in best.best_figures.items()},
        },
        limits=LIMITS,
    )
    file = write_weights(request.out, weights)
    click.echo(f"{request.policy}: seed {best.settings.seed} scores {best.best_score:.2f} on validation; {file}")
