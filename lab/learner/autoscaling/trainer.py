"""Trains the learned autoscaling policies over some seeds: settings, and the card of the weights best on validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import click
import msgspec

from lab.autoscaling.episode import Setup
from lab.files import digest_of, read_load, read_organisation, read_topology, read_twin
from lab.learner.autoscaling.aware_run import ROUNDS as AWARE_ROUNDS
from lab.learner.autoscaling.aware_run import AwareRun, AwareRunSettings
from lab.learner.autoscaling.dqn_run import ROUNDS as DQN_ROUNDS
from lab.learner.autoscaling.dqn_run import ScalerDqnRun, ScalerDqnSettings
from lab.learner.autoscaling.episodes import VALIDATION_SEEDS, Best, default_world
from lab.learner.autoscaling.study import chosen_settings
from lab.learner.autoscaling.training import (
    ENVELOPE_EPISODES,
    IMITATION,
    ROUNDS,
    KarmaRun,
    KarmaRunSettings,
    envelope_of,
)
from lab.learner.training.run_files import ending_by_signal, write_weights
from lab.learner.training.runner import TrainingRun, TrainRequest, Variant, train_seeds, trained_as
from lab.workers import Workers
from lab.worlds.learned.world import check_graph
from shared.autoscaling.networks import aware, dqn, karma
from shared.autoscaling.networks.agents import KarmaAgents
from shared.autoscaling.roles.organisation import BINDINGS, Organisation
from shared.errors import ConfigError
from shared.policy.weights import WeightsFile

VERSIONS = {karma.NAME: 2}
"""Of the weights that are shipped, where it is not the first."""
DATA = "none: loads and disturbances of lab.worlds.services, seeds from 100,000,000 on"
LIMITS = [
    "trained on one graph of four services on one node with the twin's own loads; others rest on relative inputs",
    "what it gains is mostly in replacing replicas that fail and in sharing out a node that is short of cpu",
    "a surge beyond what the largest number of replicas answers is lost with it as without it",
]
BASELINE_LIMITS = ["a baseline to compare with, trained on the twin's own loads", "for graphs of four services alone"]


class ScalerRun(TrainingRun, Protocol):
    """A run that keeps its best weights."""

    best: Best

    def weights(self, **card: Any) -> WeightsFile: ...


@dataclass(frozen=True, slots=True)
class _Kind:
    """How one policy is trained: its run for a seed and so many rounds; ``limits``: of its card."""

    start: Callable[[int, int | None, Workers], ScalerRun]
    limits: list[str]


BASELINES = {
    dqn.NAME: _Kind(
        lambda seed, rounds, workers: ScalerDqnRun(ScalerDqnSettings(dqn.NAME, seed, rounds or DQN_ROUNDS), workers),
        BASELINE_LIMITS,
    ),
    aware.NAME: _Kind(
        lambda seed, rounds, workers: AwareRun(AwareRunSettings(seed, rounds or AWARE_ROUNDS), workers),
        BASELINE_LIMITS[:1],
    ),
}


def train_karma(request: TrainRequest) -> None:
    """Train every seed to its end and write the best: ``karma``, or with one agent ``karma-single``.

    With ``trials`` the settings are looked for first (``study``). Raises ``ConfigError`` on what cannot be used.
    """
    _refuse_warm_up(request)
    world, files, data = _world(request)
    own = None if request.organisation is None else read_organisation("--organisation", request.organisation)
    settings = [
        replace(
            karma_settings(request.policy, request.variant, seed, request.steps, own),
            files=files,
            attacker=request.attacker,
        )
        for seed in request.seeds
    ]
    with Workers(request.workers, ray=request.ray) as workers:
        if request.trials:
            with ending_by_signal():
                found = chosen_settings(settings[0], request.trials, request.out, workers, world=world)
            settings = [replace(found, seed=one.seed, rounds=one.rounds) for one in settings]
        finished = train_seeds(request, [partial(KarmaRun, one, workers, world=world) for one in settings])
    chosen = _best(finished)
    name = settings[0].policy
    click.echo(f"{name}: playing {ENVELOPE_EPISODES} episodes for the range of each input", err=True)
    known = envelope_of(chosen, chosen.weights(version=1))
    limits = LIMITS if settings[0].agents == KarmaAgents.MULTI else [*BASELINE_LIMITS, *LIMITS[1:]]
    _write(request, name, finished, limits, data=data, envelope=known)


def train_baseline(request: TrainRequest) -> None:
    """The same for ``dqn`` and ``aware``."""
    _refuse_warm_up(request)
    kind = BASELINES[request.policy]
    with Workers(request.workers, ray=request.ray) as workers:
        starts = [partial(kind.start, seed, request.steps, workers) for seed in request.seeds]
        finished = train_seeds(request, starts)
    _write(request, request.policy, finished, kind.limits)


def karma_settings(
    policy: str, variant: Variant, seed: int, rounds: int | None, own: Organisation | None = None
) -> KarmaRunSettings:
    """What a variant of ``karma`` is trained with; ``own``: roles of a user's, which bind as they say.

    Raises ``ConfigError`` for a choice that is not there.
    """
    agents = variant.agents or (KarmaAgents.SINGLE if policy == karma.SINGLE else KarmaAgents.MULTI)
    if policy == karma.SINGLE and agents != KarmaAgents.SINGLE:
        raise ConfigError(f"--agents: {policy} is one agent; train {karma.NAME} for {agents}")
    binding = variant.roles or (BINDINGS[0] if own is None else own.binding)
    missions = binding != "none" if not variant.missions else variant.missions == "on"
    settings = KarmaRunSettings(
        seed,
        rounds or ROUNDS,
        agents=agents,
        binding=binding,
        missions=missions,
        start=variant.start or IMITATION,
        organisation=None if own is None else msgspec.to_builtins(own),
    )
    return replace(settings, seconds=int(variant.episode_seconds)) if variant.episode_seconds else settings


def _world(request: TrainRequest) -> tuple[Setup, dict[str, str], str]:
    """(what is played, sha256 by flag of the files that it is from, the card's word for it). ``ConfigError``: a file
    cannot be used."""
    world = replace(default_world(), topology=read_topology(request.topology))
    if request.trace is not None:
        world = replace(world, trace=read_load("--trace", request.trace))
    data = DATA
    if request.twin is not None:
        twin, digest = read_twin("--twin", request.twin)
        check_graph(twin, world.topology, f"--twin: {request.twin}")
        world, data = replace(world, twin=twin), f"a learned twin of {twin.header.graph}, sha256 {digest}"
    given = {"topology": request.topology, "trace": request.trace}
    files = {flag: digest_of(file) for flag, file in given.items() if file is not None}
    data += "".join(f"; --{flag} of sha256 {found}" for flag, found in files.items())
    return world, {**files, "twin": digest} if request.twin is not None else files, data


R = TypeVar("R", bound=ScalerRun)


def _best(finished: Sequence[R]) -> R:
    return max(finished, key=lambda run: run.best.score)


def _write(
    request: TrainRequest, policy: str, finished: Sequence[ScalerRun], limits: list[str], *, data: str = DATA,
    **card: Any,
) -> None:  # fmt: skip
    chosen = _best(finished)
    scores = {str(run.settings.seed): round(run.best.score, 2) for run in finished}
    weights = chosen.weights(
        version=VERSIONS.get(policy, 1),
        trained=trained_as(request, chosen, validation_seeds=VALIDATION_SEEDS, data=data, steps=request.steps),
        figures={
            "validation score by training seed": scores,
            "validation on the mixed scenario": {name: round(value, 3) for name, value in chosen.best.figures.items()},
        },
        limits=limits,
        **card,
    )
    file = write_weights(request.out, weights)
    click.echo(f"{policy}: seed {chosen.settings.seed} scores {chosen.best.score:.2f} on validation; {file}")


def _refuse_warm_up(request: TrainRequest) -> None:
    if request.warm_up:
        raise ConfigError(f"--warm-up: {request.policy} begins with a rule by itself, or not at all; leave it out")
