"""Trains marl-dqn, its published variant or the single DQN over some seeds: settings, and the best weights' card."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import click

from lab.learner.marl.settings import settings_for
from lab.learner.marl.training import VALIDATION_SEEDS, MarlRun
from lab.learner.marl.warm_up import warm_up
from lab.learner.training.imitation import spelled
from lab.learner.training.run_files import write_weights
from lab.learner.training.runner import TrainRequest, train_seeds, trained_as
from lab.workers import Workers

VERSION = 1
LIMITS = [
    "trained on 4 nodes with the thesis' three kinds of pods; other sizes and kinds rest on features that are relative",
    "balances utilisation; it neither packs nor saves energy, and knows nothing of GPUs",
    "without measurements of nodes it decides by requests, no better than kube-default",
]
SINGLE_LIMITS = ["a baseline, for exactly the number of nodes it was trained on"]


def train_marl(request: TrainRequest) -> None:
    """Train every seed to its end and write the best. Raises ``ConfigError`` on what cannot be used."""
    settings = [settings_for(request.policy, seed, request.steps) for seed in request.seeds]
    if request.warm_up:
        taught = spelled(request.warm_up)
        settings = [replace(one, warm_up=taught, epsilon_begin=one.epsilon_end) for one in settings]
    with Workers(request.workers, ray=request.ray) as workers:
        finished = train_seeds(request, [partial(MarlRun, one, workers) for one in settings], warm_up=warm_up)
    best = min(finished, key=lambda run: run.best_imbalance)
    imbalances = {str(run.settings.seed): round(run.best_imbalance, 5) for run in finished}
    data = "none: pods drawn by lab.environments.thesis_workload, seeds from 100,000,000 on"
    weights = best.weights(
        version=VERSION,
        trained=trained_as(request, best, validation_seeds=VALIDATION_SEEDS, data=data),
        figures={"validation imbalance, mean of both workloads, by training seed": imbalances},
        limits=SINGLE_LIMITS if best.settings.kind != "shared" else LIMITS,
    )
    file = write_weights(request.out, weights)
    click.echo(
        f"{request.policy}: seed {best.settings.seed} has the least validation imbalance, {best.best_imbalance:.5f};"
        f" weights in {file}"
    )
