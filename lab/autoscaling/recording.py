"""Series of a service graph from the ground truth (``lab.worlds.services.hidden``), for a learned twin to learn from.

Those who decide while it is recorded are HPA as it comes, a KEDA-like rule, the rule by demand, a wanderer, who follows
that rule and strays, an eager HPA of drawn settings, and one who holds many replicas whatever happens: what was never
tried cannot be learned. HPA at its best and ``karma`` never record: they are strangers to a twin that is tested with
them. Seeds are of training (from 1000 on).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from lab.autoscaling.episode import CALM, Setup, play
from lab.autoscaling.policies import DEFAULT_HPA, make
from lab.worlds.learned.series import Writer
from lab.worlds.services.hidden import Hidden
from lab.worlds.services.scenarios import SCENARIOS, check_scenario, intensity_of
from lab.worlds.services.topology import ServiceGraph
from shared.autoscaling.observation import Decision, Policy, ScalingObservation
from shared.autoscaling.registry import make_policy
from shared.errors import ConfigError

FIRST_SEED = 1000
"""Seeds below are for choosing and reporting."""
RECORDED = (CALM, *SCENARIOS)
WANDERER = "wanderer"
EAGER, HOLDER = "eager", "holder"
RECORDERS = (DEFAULT_HPA, "keda", "demand", WANDERER, EAGER, HOLDER)
WANDER_STREAM, EAGER_STREAM, HOLD_STREAM = 71, 72, 73


class Wanderer:
    """The rule by demand, with an error of its own for each service that is drawn anew now and then."""

    name = WANDERER
    CHANGES = 0.1
    """Probability per decision and service of a new error, of -2 to +2 replicas."""

    def __init__(self) -> None:
        self._rule = make_policy("demand")
        self._rng = np.random.default_rng()
        self._errors: dict[str, int] = {}

    def reset(self, seed: int) -> None:
        """Begin anew."""
        self._rule.reset(seed)
        self._rng = np.random.default_rng([seed, WANDER_STREAM])
        self._errors.clear()

    def decide(self, seen: ScalingObservation) -> Decision:
        """What the rule wants, and the error."""
        wanted = dict(self._rule.decide(seen))
        for name, one in seen.services.items():
            if self._rng.random() < self.CHANGES:
                self._errors[name] = int(self._rng.integers(-2, 3))
            wanted[name] = one.bounds.clamp(wanted.get(name, one.replicas) + self._errors.get(name, 0))
        return wanted


class Eager:
    """HPA of a target and a window that are drawn anew for each episode: it asks for much, and replaces nothing."""

    name = EAGER
    TARGETS = (30, 60)
    """Percent of the cpu request; HPA at its best aims at 40."""
    WINDOWS_S = (120.0, 300.0)

    def __init__(self) -> None:
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Begin anew, as another HPA."""
        rng = np.random.default_rng([seed, EAGER_STREAM])
        settings = {"target": int(rng.integers(*self.TARGETS)), "down_window_s": float(rng.uniform(*self.WINDOWS_S))}
        self._rule = make_policy("hpa", settings)
        self._rule.reset(seed)

    def decide(self, seen: ScalingObservation) -> Decision:
        """What that HPA wants."""
        return self._rule.decide(seen)


class Holder:
    """So many replicas of each service as are drawn, for minutes at a time; it looks at nothing."""

    name = HOLDER
    CHANGES = 0.02
    """Probability per decision and service of another number."""

    def __init__(self) -> None:
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Begin anew."""
        self._rng = np.random.default_rng([seed, HOLD_STREAM])
        self._held: dict[str, int] = {}

    def decide(self, seen: ScalingObservation) -> Decision:
        """What it holds: between half of what there may be and all of it."""
        for name, one in seen.services.items():
            if name not in self._held or self._rng.random() < self.CHANGES:
                most = one.bounds.maximum
                self._held[name] = one.bounds.clamp(int(self._rng.integers((most + 1) // 2, most + 1)))
        return dict(self._held)


MADE: Mapping[str, Callable[[], Policy]] = {WANDERER: Wanderer, EAGER: Eager, HOLDER: Holder}


def recorder(name: str) -> Policy:
    """Who decides while it is recorded. ``ConfigError``: the policy is not known."""
    return MADE[name]() if name in MADE else make(name)


def ground_truth(topology: ServiceGraph, scenario: str, *, seconds: int = 1800, step_s: int = 10) -> Setup:
    """An episode of the ground truth. ``ConfigError``: no such scenario."""
    if scenario != CALM:
        check_scenario(scenario, intensity_of(scenario) if scenario in SCENARIOS else 0.0)
    strength = 0.0 if scenario == CALM else intensity_of(scenario)
    return Setup(topology, scenario, strength, None, seconds, step_s, hidden=Hidden())


def record(
    topology: ServiceGraph,
    seeds: Sequence[int],
    *,
    scenarios: Sequence[str] = RECORDED,
    policies: Sequence[str] = RECORDERS,
    seconds: int = 1800,
    step_s: int = 10,
) -> Iterator[tuple[str, str]]:
    """(what was played, its rows) of each episode; the header comes with the first. ``ConfigError``: a seed that is
    kept for choosing and reporting, a scenario or policy that is not known."""
    low = [seed for seed in seeds if seed < FIRST_SEED]
    if low:
        raise ConfigError(f"--seeds: {low[0]} is kept for choosing and reporting; record {FIRST_SEED} and above")
    setups = {name: ground_truth(topology, name, seconds=seconds, step_s=step_s) for name in scenarios}
    made = {name: recorder(name) for name in policies}
    writer = Writer()
    writer.header()
    for scenario, setup in setups.items():
        for name, policy in made.items():
            for seed in seeds:
                told = f"{name}-{seed}"

                def look(seen: ScalingObservation, scenario: str = scenario, told: str = told) -> None:
                    writer.moment(scenario, told, seen)

                play(setup, policy, seed, look=look)
                yield f"{scenario} {told}", writer.take()
