"""Calibrates a rule for one workload: settings that nobody could improve in violations without more replica hours.

A study of Optuna (Akiba et al. 2019) with two aims, on training days alone: fewer violations (genuine requests not
answered well, percent) and fewer replica hours. Every rule has the same number of trials; the first are the settings
that it comes with, and those that an operator would try. Of what was tried the *front* is kept, and of the front two
settings are chosen by what a reference has on the same days: the fewest violations for no more replica hours, and the
fewest replica hours for no more violations. Deterministic: the same days, budget and seed give the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lab.autoscaling.episode import Setup, play
from lab.autoscaling.yardstick.bound import CLAIRVOYANT, Clairvoyant, ClairvoyantSettings
from lab.worlds.services.scenarios import calibration
from lab.worlds.services.topology import ServiceGraph
from shared.autoscaling.observation import Policy
from shared.autoscaling.registry import make_policy
from shared.errors import ConfigError

if TYPE_CHECKING:
    import optuna

TRAINING_DAYS = tuple(range(1000, 1004))
"""Seeds; those that are reported are below."""
TRIALS = 20
SEARCH_SEED = 1000
FIRST_BY_LOT = 8
RULES = ("hpa", "keda", "predictive", "demand", CLAIRVOYANT)
FAST = {"scaleUp": {"policies": [{"type": "Pods", "value": 10, "periodSeconds": 15}]}}
T, U = TypeVar("T"), TypeVar("U")
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class RuleTrial:
    """Settings of a rule, and what they came to on the training days: means."""

    settings: Mapping[str, Any]
    violations: float
    replica_hours: float


@dataclass(frozen=True, slots=True)
class CalibratedRule:
    """What was chosen of a front. ``met``: whether it keeps within the reference's hours, or violations."""

    trial: RuleTrial
    met: bool


def made(rule: str, settings: Mapping[str, Any]) -> Policy:
    """A rule with these settings; the clairvoyant too."""
    return Clairvoyant(ClairvoyantSettings(**settings)) if rule == CLAIRVOYANT else make_policy(rule, settings)


def searched(
    rule: str, setup: Setup, *, days: Sequence[int] = TRAINING_DAYS, trials: int = TRIALS, each: Map = map,
    tick: Callable[[int], object] = lambda _: None,
) -> list[RuleTrial]:  # fmt: skip
    """The front of a rule on ``days``, the fewest replica hours first. ``ConfigError``: Optuna is not installed."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "--suite: optuna is missing; install the extra: pip install 'conclave-scheduler[learn]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=SEARCH_SEED, n_startup_trials=FIRST_BY_LOT)
    study = optuna.create_study(sampler=sampler, directions=["minimize", "minimize"])
    for known in first(rule):
        study.enqueue_trial(known)
    found: list[RuleTrial] = []

    def value(trial: optuna.Trial) -> tuple[float, float]:
        one = tried(rule, proposed(rule, trial, setup.topology), setup, days, each)
        found.append(one)
        tick(len(found))
        return one.violations, one.replica_hours

    study.optimize(value, n_trials=trials)
    return front(found)


def tried(rule: str, settings: Mapping[str, Any], setup: Setup, days: Sequence[int], each: Map = map) -> RuleTrial:
    """What the settings come to on some days."""
    played = list(each(_one, [(rule, settings, setup, day) for day in days]))
    violations, hours = np.mean(played, axis=0).tolist()
    return RuleTrial(settings, violations, hours)


def _one(job: tuple[str, Mapping[str, Any], Setup, int]) -> tuple[float, float]:
    rule, settings, setup, day = job
    return figures_of(play(setup, made(rule, settings), day).figures)


def figures_of(figures: Mapping[str, float]) -> tuple[float, float]:
    """(violations, replica hours) of an episode's figures."""
    return 100.0 - figures["success"], figures["replica_hours"]


def front(tried: Sequence[RuleTrial]) -> list[RuleTrial]:
    """Those of which no other has fewer violations for no more hours, or fewer hours for no more violations."""
    found: list[RuleTrial] = []
    for one in sorted(tried, key=lambda trial: (trial.replica_hours, trial.violations)):
        if not found or one.violations < found[-1].violations:
            found.append(one)
    return found


def at_hours(front: Sequence[RuleTrial], hours: float) -> CalibratedRule:
    """The fewest violations for at most so many hours; where none has so few, the one with the fewest hours."""
    within = [one for one in front if one.replica_hours <= hours]
    return CalibratedRule(within[-1], True) if within else CalibratedRule(front[0], False)


def at_violations(front: Sequence[RuleTrial], violations: float) -> CalibratedRule:
    """The fewest hours for at most so many violations; where none has so few, the one with the fewest violations."""
    within = [one for one in front if one.violations <= violations]
    return CalibratedRule(within[0], True) if within else CalibratedRule(front[-1], False)


def first(rule: str) -> list[dict[str, Any]]:
    """What is tried before anything is drawn: as the rule comes, and as one would tune it by hand."""
    grid = calibration().hpa.get("target", 40)
    scaled = {"down_window_s": 60, "fast": True}
    return {
        "hpa": [{"target": 80, "down_window_s": 300, "fast": False, "tolerance": 0.1},
                {"target": grid, "tolerance": 0.1, **scaled}],
        "keda": [{"queue": 10.0, "share": 0.9, "polling_s": 30, "tolerance": 0.1, "down_window_s": 300, "fast": False},
                 {"queue": 5.0, "share": 0.5, "polling_s": 10, "tolerance": 0.1, **scaled}],
        "predictive": [
            {"target": 80, "horizon_s": 120, "step_s": 30, "level": 0.5, "trend": 0.1, "damping": 0.9,
             "tolerance": 0.1, "down_window_s": 300, "fast": False},
            {"target": grid, "horizon_s": 60, "step_s": 10, "level": 0.5, "trend": 0.1, "damping": 0.9,
             "tolerance": 0.1, **scaled}],
        "demand": [{"headroom": 1.5, "spare": 0.5, "hold_s": 90}, {"headroom": 1.2, "spare": 0.5, "hold_s": 30}],
        CLAIRVOYANT: [{"headroom": 1.2, "spare": 0.5, "hold_s": 0, "ahead_s": 30},
                      {"headroom": 1.5, "spare": 0.5, "hold_s": 90, "ahead_s": 30}],
    }[rule]  # fmt: skip


def proposed(rule: str, trial: optuna.Trial, topology: ServiceGraph) -> dict[str, Any]:
    """The settings of a trial, in the rule's own words."""
    if rule in ("demand", CLAIRVOYANT):
        found: dict[str, Any] = {
            "headroom": trial.suggest_float("headroom", 1.0, 2.5), "spare": trial.suggest_float("spare", 0.0, 2.0),
            "hold_s": trial.suggest_int("hold_s", 0, 300),
        }  # fmt: skip
        return found | ({"ahead_s": trial.suggest_int("ahead_s", 10, 90)} if rule == CLAIRVOYANT else {})
    window = trial.suggest_int("down_window_s", 0, 300)
    behavior: dict[str, Any] = {"scaleDown": {"stabilizationWindowSeconds": window}}
    if trial.suggest_categorical("fast", [True, False]):
        behavior |= FAST
    found = {"behavior": behavior, "tolerance": trial.suggest_float("tolerance", 0.0, 0.2)}
    if rule == "keda":
        share = trial.suggest_float("share", 0.2, 1.0)
        rates = {name: round(share * one.throughput, 3) for name, one in topology.services.items()}
        return found | {
            "queue": trial.suggest_float("queue", 1.0, 20.0), "arrivals": rates,
            "polling_s": trial.suggest_int("polling_s", 10, 30),
        }  # fmt: skip
    found["target"] = trial.suggest_int("target", 20, 90)
    if rule == "predictive":
        found |= {
            "horizon_s": trial.suggest_int("horizon_s", 30, 240), "step_s": trial.suggest_int("step_s", 10, 60),
            "level": trial.suggest_float("level", 0.1, 0.9), "trend": trial.suggest_float("trend", 0.0, 0.5),
            "damping": trial.suggest_float("damping", 0.7, 1.0),
        }  # fmt: skip
    return found


def training_half(setup: Setup) -> Setup:
    """The setup with the first half of its trace alone, where it has one; of drawn loads the seeds keep days apart."""
    return _half(setup, first=True)


def reported_half(setup: Setup) -> Setup:
    """The same with the second half."""
    return _half(setup, first=False)


def _half(setup: Setup, *, first: bool) -> Setup:
    if setup.trace is None:
        return setup
    middle = len(setup.trace.rates) // 2
    rates = setup.trace.rates[:middle] if first else setup.trace.rates[middle:]
    return replace(setup, trace=replace(setup.trace, rates=rates))
