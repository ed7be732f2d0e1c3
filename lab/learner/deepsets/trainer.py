"""Trains ``ee``, ``lb`` or ``el`` over some seeds: settings, and the card of the best validated weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click
import numpy as np

from lab.algorithms.imitation import spelled
from lab.environments.own_reward import FEATURES
from lab.environments.placement_rewards import REWARDS
from lab.learner.deepsets.ppo import PpoRun
from lab.learner.deepsets.settings import DeepSetsSettings, learning_by, settings_for, settings_on
from lab.learner.deepsets.training import VALIDATION_SEEDS, DeepSetsRun
from lab.learner.deepsets.warm_up import warm_up
from lab.learner.training.captured import CapturedFile, captured, write_kept
from lab.learner.training.own_reward import goal_by, own_reward
from lab.learner.training.run_files import write_weights
from lab.learner.training.runner import TrainRequest, train_seeds, trained_as
from lab.worlds.placement.captured_placement import COSTS
from shared.errors import ConfigError
from shared.policy.weights import shipped

VERSION = 2
EPSILON_AFTER_WARM_UP = 0.4
"""DL2's exploration (learning by doing begins where imitation ended); acting at random would forget it."""
STOOD_IN = "placements for which the shipped reward stood in, training of all seeds included, from zero after --resume"
LIMITS = [
    "trained on 2 to 16 nodes; larger clusters rest on the network's invariance and on the suite's measurements",
    "trained with exact, current observations; late or noisy ones cost what the suite's lag and noise columns show",
    "sees cpu, memory, pod counts and latency; GPUs, disks and network load are left to the filters",
]


def train_deep_sets(request: TrainRequest) -> None:
    """Train every seed to its end and write the best. Raises ``ConfigError`` on what cannot be used."""
    found = captured(request)
    if found is not None and request.reward:
        raise ConfigError("--reward: on a captured cluster the shipped goal counts; leave it or --cluster out")
    settings = [_settings(request, seed, found) for seed in request.seeds]
    if request.warm_up:
        taught = spelled(request.warm_up)
        settings = [replace(one, warm_up=taught, epsilon_begin=EPSILON_AFTER_WARM_UP) for one in settings]
    if request.reward:
        settings = [replace(one, reward=request.reward) for one in settings]
    cluster = None if found is None else found.cluster
    with own_reward(request, FEATURES, REWARDS[request.policy]) as own:
        runs: list[Callable[[], DeepSetsRun | PpoRun]] = [
            partial(DeepSetsRun if one.ppo is None else PpoRun, one, own, cluster) for one in settings
        ]
        finished = train_seeds(request, runs, warm_up=warm_up, beside=own is None)
    if own is not None and own.faults:
        told = "; ".join(f"{fault} ({count})" for fault, count in own.faults.most_common(3))
        click.echo(f"{request.policy}: the shipped reward stood in {own.faults.total()} times: {told}", err=True)
    best = min(finished, key=lambda run: run.best_regret)
    if found is not None:
        _write_on_cluster(request, found, finished, best)
        return
    if own is not None and not math.isfinite(best.best_regret):
        raise ConfigError(
            "--reward: in no validation it had a value for half of the placements, so nothing says what was learned; "
            "correct it"
        )
    sign, measured = (1, "validation regret to the oracle") if own is None else (-1, "validation mean of its reward")
    figures: dict[str, Any] = {
        f"{measured}, by training seed": {
            str(run.settings.seed): round(sign * run.best_regret, 5)
            for run in finished
            if math.isfinite(run.best_regret)
        }
    }
    if own is not None and own.faults:
        figures[STOOD_IN] = own.faults.total()
    data = "none: scenarios drawn by lab.environments.placement_scenarios.training_scenario"
    weights = best.weights(
        version=VERSION,
        trained=trained_as(request, best, validation_seeds=VALIDATION_SEEDS, data=data),
        figures=figures,
        limits=LIMITS,
        goal=goal_by(request.reward),
    )
    file = write_weights(request.out, weights)
    click.echo(
        f"{request.policy}: seed {best.settings.seed} has the best {measured}, {sign * best.best_regret:.4f};"
        f" weights in {file}"
    )


def _settings(request: TrainRequest, seed: int, found: CapturedFile | None) -> DeepSetsSettings:
    if found is not None:
        return settings_on(request.policy, seed, request.steps, cluster=found.digest, algorithm=request.algorithm)
    return learning_by(settings_for(request.policy, seed, request.steps), request.algorithm)


def _write_on_cluster(
    request: TrainRequest, found: CapturedFile, finished: Sequence[DeepSetsRun | PpoRun], best: DeepSetsRun | PpoRun
) -> None:
    """Weights and card of the best run on a captured cluster, beside what the shipped weights are worth there."""
    ours = shipped(request.policy)
    costs, after = best.costs(dict(ours.arrays)), best.costs(dict(best.best))
    cost = f"{COSTS[request.policy]} on the days held back"
    weights = best.weights(
        version=ours.card.version + 1,
        trained=trained_as(request, best, validation_seeds=(), data=found.describe()),
        figures={
            f"{cost}, by training seed": {str(run.settings.seed): round(run.best_regret, 5) for run in finished},
            f"{cost}, shipped weights": round(float(np.mean(costs)), 5),
        },
        limits=[found.limit, *LIMITS[1:]],
    )
    write_kept(request.out, weights, costs, after, cost)
