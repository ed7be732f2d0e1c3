"""What a policy did in an episode, decision by decision, and its stretches: one service for as long as it had one role.

A stretch is what behaviours are made of. Its series is what was seen and done, decision by decision: the signals that
the roles' conditions name, each over its own spread, and the step. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.autoscaling.episode import Setup, play
from shared.autoscaling.networks.features import FEATURES
from shared.autoscaling.networks.karma import KarmaPolicy
from shared.autoscaling.networks.signals import ServiceSignals
from shared.autoscaling.observation import Decision, ScalingObservation
from shared.autoscaling.roles.organisation import NO_ROLE, Organisation, ScalingRole, values_of

LONGEST = 12
"""Decisions in a stretch (two minutes): a longer one is cut, so that calm hours do not count as one behaviour."""
MOST_SPREADS = 3.0
"""A signal counts to at most so many of its standard deviations from its mean."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TrajectoryStep:
    """One decision. ``inputs`` [services, features] not bounded; mappings by service, in the same order.
    ``last``: the steps before; ``steps``: those taken."""

    at_s: float
    signals: Mapping[str, ServiceSignals]
    targets: Mapping[str, int]
    graph: Mapping[str, float]
    roles: Mapping[str, ScalingRole | None]
    last: Mapping[str, int]
    tight: bool
    inputs: Floats
    steps: Mapping[str, int]

    def named_inputs(self) -> dict[str, dict[str, float]]:
        """By service and feature."""
        rows = zip(self.signals, self.inputs.tolist(), strict=True)
        return {name: dict(zip(FEATURES, row, strict=True)) for name, row in rows}


@dataclass(frozen=True, slots=True)
class Trajectory:
    """An episode: all its decisions, and its figures."""

    seed: int
    moments: tuple[TrajectoryStep, ...]
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A service in one role. ``series`` float [decisions, signals and step]; ``role`` "-" for none."""

    seed: int
    service: str
    role: str
    series: Floats


class _Watched:
    """A policy that keeps what it saw and did."""

    def __init__(self, policy: KarmaPolicy) -> None:
        self.name, self._policy = policy.name, policy
        self.moments: list[TrajectoryStep] = []

    def reset(self, seed: int) -> None:
        self._policy.reset(seed)
        self.moments.clear()

    def decide(self, seen: ScalingObservation) -> Decision:
        eyes = self._policy.eyes
        last = dict(eyes.last)
        wanted = self._policy.decide(seen)
        self.moments.append(
            TrajectoryStep(
                seen.now, eyes.signals, eyes.targets, eyes.graph, eyes.roles, last, eyes.tight, eyes.inputs,
                {name: wanted[name] - one.replicas for name, one in eyes.signals.items()},
            )
        )  # fmt: skip
        return wanted


def trajectory(setup: Setup, policy: KarmaPolicy, seed: int, *, tick: Callable[[], None] = lambda: None) -> Trajectory:
    """The episode of a seed, played by ``policy``."""
    watched = _Watched(policy)
    played = play(setup, watched, seed, tick=tick)
    return Trajectory(seed, tuple(watched.moments), played.figures)


def stretches(trajectories: Sequence[Trajectory], organisation: Organisation) -> list[Stretch]:
    """All stretches, episode by episode and service by service."""
    names = condition_signals(organisation)
    seen = [
        [[values(moment, service)[name] for name in names] for service in moment.signals]
        for episode in trajectories
        for moment in episode.moments
    ]
    flat = np.array([row for moment in seen for row in moment], np.float64).reshape(-1, len(names))
    low, high = np.quantile(flat, (0.01, 0.99), axis=0) if len(flat) else (np.zeros(len(names)), np.zeros(len(names)))
    kept = np.clip(flat, low, high)
    spread = np.where(kept.std(axis=0) > 0, kept.std(axis=0), 1.0)
    scaled = np.clip((flat - kept.mean(axis=0)) / spread, -MOST_SPREADS, MOST_SPREADS)
    found: list[Stretch] = []
    at = 0
    for episode in trajectories:
        services = tuple(episode.moments[0].signals) if episode.moments else ()
        rows = scaled[at : at + len(episode.moments) * len(services)].reshape(-1, len(services), len(names))
        at += len(episode.moments) * len(services)
        for number, service in enumerate(services):
            found += _of_service(episode, service, rows[:, number])
    return found


def condition_signals(organisation: Organisation) -> tuple[str, ...]:
    """The signals that decide who has which role, each once."""
    conditions = [one for role in organisation.roles for one in (*role.when.all, *role.when.any)]
    return tuple(dict.fromkeys(one.signal for one in conditions))


def values(moment: TrajectoryStep, service: str) -> dict[str, float]:
    """Every signal that a condition may name, for one service."""
    return {**values_of(moment.signals[service]), **moment.graph}


def role_of(moment: TrajectoryStep, service: str) -> str:
    """The name of the role that a service had; "-" for none."""
    role = moment.roles[service]
    return NO_ROLE if role is None else role.name


def _of_service(episode: Trajectory, service: str, scaled: Floats) -> Iterator[Stretch]:
    rows: list[Floats] = []
    role = ""
    for moment, row in zip(episode.moments, scaled, strict=True):
        now = role_of(moment, service)
        if rows and (now != role or len(rows) == LONGEST):
            yield Stretch(episode.seed, service, role, np.array(rows))
            rows = []
        role = now
        rows.append(np.append(row, moment.steps[service]))
    if rows:
        yield Stretch(episode.seed, service, role, np.array(rows))
