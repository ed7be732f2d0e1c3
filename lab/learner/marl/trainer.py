"""Trains marl-dqn, its published variant or the single DQN over some seeds: settings, and the best weights' card."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click
import numpy as np

from lab.algorithms.imitation import ImitationReport, spelled
from lab.learner.marl.ippo import IppoRun
from lab.learner.marl.settings import MarlSettings, settings_for, settings_on
from lab.learner.marl.training import LEAST_OF_CLASS, MOST_NODES, VALIDATION_SEEDS, MarlRun
from lab.learner.marl.warm_up import warm_up
from lab.learner.training.captured import CapturedFile, captured, write_kept
from lab.learner.training.run_files import write_weights
from lab.learner.training.runner import TrainRequest, train_seeds, trained_as
from lab.workers import Workers
from shared.errors import ConfigError
from shared.policy.marl.class_networks import SHARED, naming_fault, split
from shared.policy.marl.policy import NAME
from shared.policy.weights import ClassNetworks, shipped

VERSION = 1
LIMITS = [
    "trained on 4 nodes with the thesis' three kinds of pods; other sizes and kinds rest on features that are relative",
    "balances utilisation; it neither packs nor saves energy, and knows nothing of GPUs",
    "without measurements of nodes it decides by requests, no better than kube-default",
]
SINGLE_LIMITS = ["a baseline, for exactly the number of nodes it was trained on"]
COST = "imbalance on the days held back"
MOST_CLASSES = 32
"""Networks beside the shared one: with it they are 0.9 MB, of the 1.5 MB that etcd takes."""
MOST_TOLD = 6
"""Labels that an error names."""
AnyRun = MarlRun | IppoRun


def train_marl(request: TrainRequest) -> None:
    """Train every seed to its end and write the best. Raises ``ConfigError`` on what cannot be used."""
    found = captured(request)
    values = _values(request, found)
    settings = [_settings(request, seed, found, values) for seed in request.seeds]
    if request.warm_up:
        taught = spelled(request.warm_up)
        settings = [replace(one, warm_up=taught, epsilon_begin=one.epsilon_end) for one in settings]
    cluster = None if found is None else found.cluster
    with Workers(request.workers, ray=request.ray) as workers:
        starts: list[Callable[[], AnyRun]] = [
            partial(IppoRun, one, None, workers, cluster)
            if one.algorithm == "ppo"
            else partial(MarlRun, one, workers, cluster)
            for one in settings
        ]
        finished = train_seeds(request, starts, warm_up=_taught)
        best = min(finished, key=lambda run: run.best_imbalance)
        costs, after = list[float](), list[float]()
        figures: dict[str, Any] = {
            "validation imbalance, mean of both workloads, by training seed": _by_seed(finished),
        }
        data: object = "none: pods drawn by lab.environments.thesis_workload, seeds from 100,000,000 on"
        validated: Sequence[int] = VALIDATION_SEEDS
        limits = SINGLE_LIMITS if best.settings.kind != "shared" else LIMITS
        if found is not None:
            costs = best.ground.imbalances(dict(shipped(request.policy).arrays), workers)
            after = best.ground.imbalances(dict(best.best), workers)
            figures = {
                f"{COST}, by training seed": _by_seed(finished),
                f"{COST}, shipped weights": round(float(np.mean(costs)), 5),
            }
            data, validated, limits = found.describe(), (), [found.limit, *LIMITS[1:]]
            if isinstance(best, MarlRun) and (classes := best.settings.classes) is not None:
                networks = split(best.best)
                figures[f"transitions by {classes.label}"] = best.seen_by_class()
                shared = best.ground.imbalance(networks[SHARED], workers)
                figures[f"{COST}, the shared network for all nodes"] = round(shared, 5)
                rare = [value for value, number in classes.values.items() if number not in networks]
                limits.append(_class_limit(classes.label, rare))
    weights = best.weights(
        version=shipped(request.policy).card.version + 1 if found is not None else VERSION,
        trained=trained_as(request, best, validation_seeds=validated, data=data),
        figures=figures,
        limits=limits,
    )
    if found is not None:
        write_kept(request.out, weights, costs, after, COST)
        return
    file = write_weights(request.out, weights)
    click.echo(
        f"{request.policy}: seed {best.settings.seed} has the least validation imbalance, {best.best_imbalance:.5f};"
        f" weights in {file}"
    )


def _values(request: TrainRequest, found: CapturedFile | None) -> tuple[str, ...]:
    """Of the label that ``--per`` names: each is a class of nodes. Raises ``ConfigError``."""
    label = request.per
    if not label:
        return ()
    if found is None:
        raise ConfigError("--per: classes of nodes are learned on a cluster; name its capture with --cluster")
    if request.policy != NAME:
        raise ConfigError(f"--per: {request.policy} has one network; leave it out, or train {NAME}")
    if request.algorithm not in ("", "double"):
        raise ConfigError(f"--per: by {request.algorithm} one network is learned; leave one of the two out")
    nodes = found.cluster.cluster.nodes
    having = [node.labels[label] for node in nodes if label in node.labels]
    values = tuple(sorted(set(having)))
    if not values:
        known = sorted({key for node in nodes for key in node.labels})
        told = f"they have {', '.join(known[:MOST_TOLD])}" if known else "they have none at all"
        raise ConfigError(f"--per: no node of {found.name} has the label {label!r}; {told}")
    if len(values) == 1 and len(having) == len(nodes):
        raise ConfigError(f"--per: all nodes of {found.name} have {label}={values[0]}, one class; leave it out")
    if len(values) > MOST_CLASSES:
        raise ConfigError(
            f"--per: {label!r} has {len(values)} values in {found.name}, of which {MOST_CLASSES} at most can have a"
            " network; name a label that groups nodes"
        )
    if fault := naming_fault(ClassNetworks(label, dict.fromkeys(values, 1))):  # else told once all is learned
        raise ConfigError(f"--per: {found.name}: {fault}")
    return values


def _settings(request: TrainRequest, seed: int, found: CapturedFile | None, values: tuple[str, ...]) -> MarlSettings:
    if found is None:
        settings = settings_for(request.policy, seed, request.steps)
        return replace(settings, algorithm=request.algorithm)
    nodes = min(found.cluster.nodes, MOST_NODES)
    return settings_on(
        request.policy, seed, request.steps, nodes=nodes, cluster=found.digest, algorithm=request.algorithm,
        per=request.per, values=values,
    )  # fmt: skip


def _class_limit(label: str, rare: Sequence[str]) -> str:
    few = f" (and of {', '.join(rare)}: under {LEAST_OF_CLASS} transitions)" if rare else ""
    return (
        f"nodes without {label}, or with a value that was not in the capture{few}, are judged by the shared network,"
        " which learned from all nodes there"
    )


def _by_seed(finished: Sequence[AnyRun]) -> dict[str, float]:
    return {str(run.settings.seed): round(run.best_imbalance, 5) for run in finished}


def _taught(run: AnyRun, source: str) -> Iterator[ImitationReport]:
    if not isinstance(run, MarlRun):
        raise ConfigError("--warm-up: not for marl-dqn by ppo; leave one of the two out")
    yield from warm_up(run, source)
