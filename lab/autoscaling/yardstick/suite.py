"""The ``autoscaling-calibrated`` suite: is a learned policy better than rules that somebody has tuned?

A workload is a pattern of load (``loads.PATTERNS``, or a trace of the user's) in a scenario (mixed and calm, or one).
For each of them every rule is calibrated (``search``) on training days with the same budget, the rule ``demand`` and
the clairvoyant among them. Then, on the reported seeds, each plays twice: with the settings that have the fewest
violations for no more replica hours than the *reference* had on the training days (``RULE@hours``), and with those
that have the fewest hours for no more violations (``RULE@violations``). The reference is ``karma``; it, and ``demand``
as it comes, play as they are. Every pair is compared on the same seeds, and the bound stands beside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.autoscaling.episode import CALM, Setup, play
from lab.autoscaling.metrics import finite
from lab.autoscaling.policies import digests, make
from lab.autoscaling.yardstick.bound import untroubled
from lab.autoscaling.yardstick.search import (
    RULES,
    TRAINING_DAYS,
    TRIALS,
    CalibratedRule,
    at_hours,
    at_violations,
    figures_of,
    made,
    reported_half,
    searched,
    training_half,
)
from lab.evaluation.results import Goal, Paired, Progress, ResultMetric, SuiteResult, silent
from lab.suites.suites import SuiteInput, check_used
from lab.worlds.services.loads import PATTERNS, parse_trace
from lab.worlds.services.scenarios import SCENARIOS, check_scenario, intensity_of
from lab.worlds.services.topology import default_topology, parse_topology
from shared.autoscaling.observation import Policy
from shared.errors import ConfigError

SUITE = "autoscaling-calibrated"
REFERENCE, AS_IT_COMES = "karma", "demand"
BOUND = "bound"
HOURS, VIOLATIONS = "hours", "violations"
COMPARED = ("success", "replica_hours")


@dataclass(frozen=True, slots=True)
class CalibratedLoad:
    """One workload."""

    name: str
    setup: Setup


def workloads(
    files: Mapping[str, str],
    *,
    scenario: str | None = None,
    intensity: float | None = None,
    load: str | None = None,
    seconds: int = 1800,
) -> list[CalibratedLoad]:
    """What is compared. ``ConfigError``: a file, a scenario or a strength that cannot be used."""
    topology = parse_topology(files["topology"], "--topology") if "topology" in files else default_topology()
    scenarios = (scenario,) if scenario is not None else ("mixed", CALM)
    strengths: dict[str, float] = {}
    for name in scenarios:
        if name not in (*SCENARIOS, CALM):
            raise ConfigError(f"--scenario: {name!r} is not known; choose one of {', '.join((*SCENARIOS, CALM))}")
        if name == CALM and intensity is not None:
            raise ConfigError("--intensity: a calm day has none; leave it out, or give --scenario")
        strengths[name] = 0.0 if name == CALM else intensity_of(name) if intensity is None else intensity
        if name != CALM:
            check_scenario(name, strengths[name])
    trace = parse_trace(files["trace"], "--trace") if "trace" in files else None
    if load is not None and (load not in PATTERNS or trace is not None):
        known = f"choose one of {', '.join(PATTERNS)}" if trace is None else "leave it out, or --trace"
        raise ConfigError(f"--load: {load!r} cannot be used; {known}")
    loads = ("trace",) if trace is not None else PATTERNS if load is None else (load,)
    return [
        CalibratedLoad(
            f"{load_name}/{name}",
            Setup(topology, name, strengths[name], trace, seconds)
            if trace is not None
            else Setup(topology, name, strengths[name], seconds=seconds, load=load_name),
        )
        for load_name in loads
        for name in scenarios
    ]


def run_suite(
    given: SuiteInput,
    progress: Progress = silent,
    *,
    planned: Sequence[CalibratedLoad] | None = None,
    trials: int = TRIALS,
    days: Sequence[int] = TRAINING_DAYS,
    rules: Sequence[str] = RULES,
) -> SuiteResult:
    """Calibrate and play. ``given.policies`` empty: the reference and ``demand`` as it comes; the reference is always
    among them. ``ConfigError``: a policy or a file that cannot be used, or reported seeds that are training days."""
    if common := sorted(set(given.seeds) & set(days)):
        raise ConfigError(f"--seeds: {common[0]} is a training day; report {days[0] - 1} and below")
    plan = list(planned) if planned is not None else workloads(given.files)
    names = tuple(dict.fromkeys((*(given.policies or (AS_IT_COMES,)), REFERENCE)))
    check_used(given.weights, names)
    policies = {name: make(name, given.weights.get(name)) for name in names}
    values: dict[str, dict[str, list[float]]] = {}
    notes: list[str] = [
        f"each rule: {trials} trials of Optuna's TPE on {len(days)} training days, seeds from {days[0]}"
    ]
    reached: set[tuple[str, str]] = set()
    work = _Work(given, progress, len(plan) * len(rules) * (trials + 2), values)
    for load in plan:
        training, reported = training_half(load.setup), reported_half(load.setup)
        for name, policy in policies.items():
            work.play(load.name, name, policy, reported)
        work.bound(load.name, reported)
        own = [figures_of(play(training, policies[REFERENCE], day).figures) for day in days]
        violations, hours = (sum(column) / len(own) for column in zip(*own, strict=True))
        for rule in rules:
            told = f"{load.name} {rule}"
            front = searched(rule, training, days=days, trials=trials, each=given.each, tick=work.ticker(told))
            chosen = {HOURS: at_hours(front, hours), VIOLATIONS: at_violations(front, violations)}
            for equal, one in chosen.items():
                name = f"{rule}@{equal}"
                notes.append(f"{load.name} {name}: {_told(one, equal)}")
                reached |= {(load.name, name)} if one.met else set()
                work.play(load.name, name, made(rule, one.trial.settings), reported)
                work.tick(told)
    progress(work.total, work.total, "done")
    metrics = {name: {key: ResultMetric.of(of) for key, of in finite(own).items()} for name, own in values.items()}
    return SuiteResult(
        suite=SUITE,
        command=given.command,
        seeds=tuple(given.seeds),
        policies=metrics,
        paired=tuple(_paired(plan, metrics)) if len(given.seeds) > 1 else (),
        goals=tuple(_goals(plan, metrics, reached)),
        card_digests=digests(policies),
        notes=tuple(notes),
    )


class _Work:
    """What is played, and how far it is."""

    def __init__(
        self, given: SuiteInput, progress: Progress, total: int, values: dict[str, dict[str, list[float]]]
    ) -> None:
        self._given, self._progress, self.total, self._values, self._done = given, progress, total, values, 0

    def tick(self, doing: str) -> None:
        self._done += 1
        self._progress(min(self._done, self.total - 1), self.total, doing)

    def ticker(self, doing: str) -> Callable[[int], None]:
        """To be told after each trial."""
        return lambda _: self.tick(doing)

    def play(self, load: str, name: str, policy: Policy, setup: Setup) -> None:
        own = self._values.setdefault(name, {})
        for played in self._given.each(_play_one, [(setup, policy, seed) for seed in self._given.seeds]):
            for metric, value in played.items():
                own.setdefault(f"{load}/{metric}", []).append(value)

    def bound(self, load: str, setup: Setup) -> None:
        own = self._values.setdefault(BOUND, {})
        for seed in self._given.seeds:
            for metric, value in untroubled(setup, seed).items():
                own.setdefault(f"{load}/{metric}", []).append(value)


def _play_one(job: tuple[Setup, Policy, int]) -> dict[str, float]:
    setup, policy, seed = job
    return play(setup, policy, seed).figures


def _told(one: CalibratedRule, equal: str) -> str:
    short = ", ".join(f"{name} {_short(value)}" for name, value in sorted(one.trial.settings.items()))
    missed = "" if one.met else f"; none of its settings keeps to the reference's {equal}, this one is nearest"
    return f"{short}{missed}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _paired(plan: Sequence[CalibratedLoad], metrics: Mapping[str, Mapping[str, ResultMetric]]) -> list[Paired]:
    """Everybody against the reference."""
    return [
        Paired.of(f"{load.name}/{metric}", metrics, a=name, b=REFERENCE)
        for load in plan
        for name in metrics
        if name not in (REFERENCE, BOUND)
        for metric in COMPARED
    ]


def _goals(
    plan: Sequence[CalibratedLoad],
    metrics: Mapping[str, Mapping[str, ResultMetric]],
    reached: Collection[tuple[str, str]],
) -> list[Goal]:
    """What was promised of the reference beside a calibrated HPA and beside the rule that it imitates. ``reached``:
    (workload, rule) of settings that keep to the reference's violations; hours of others are no comparison."""
    own, found = metrics[REFERENCE], []
    for load in plan:
        if f"{load.name}/success" not in metrics.get("hpa@hours", {}):
            continue
        success = {name: of[f"{load.name}/success"].mean for name, of in metrics.items()}
        hours = {name: of[f"{load.name}/replica_hours"].mean for name, of in metrics.items()}
        found += [
            Goal.at_least(
                f"{load.name}: success over the calibrated hpa's at its replica hours, points",
                success[REFERENCE] - success["hpa@hours"], 0.0,
            ),
        ]  # fmt: skip
        if (load.name, "hpa@violations") in reached:
            over = hours[REFERENCE] / max(hours["hpa@violations"], 1e-9)
            found.append(
                Goal.at_most(f"{load.name}: replica hours over the calibrated hpa's at its violations", over, 1.0)
            )
        if AS_IT_COMES in metrics:
            found.append(
                Goal.at_least(
                    f"{load.name}: success over the rule demand's, points",
                    success[REFERENCE] - success[AS_IT_COMES],
                    1.0,
                )
            )
    if "mixed" in {load.setup.scenario for load in plan} and "drawn/mixed/success" in own:
        found += [
            Goal.at_least("drawn/mixed/success", own["drawn/mixed/success"].mean, 95.0),
            Goal.at_least("drawn/mixed/latency_compliance", own["drawn/mixed/latency_compliance"].mean, 88.0),
            Goal.at_least("drawn/mixed/availability", own["drawn/mixed/availability"].mean, 91.0),
        ]
    return found
