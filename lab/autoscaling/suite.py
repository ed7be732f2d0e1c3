"""The ``autoscaling`` suite: policies that scale a service graph, on the same seeds, against HPA at its best.

Without files: the five scenarios at their frozen strengths, the attacker, and the sweeps of surges (1 to 8 times) and
failing pods (1 to 20 %). With a trace or a topology: that load, that graph, on a calm day (only what the file says
crashes) and on a mixed one. Metrics are named ``experiment/metric``; ``metrics.py`` says what each counts. Every policy
is compared with ``hpa`` on the same seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.autoscaling.episode import ATTACKER, CALM, Setup, StepsFile, play
from lab.autoscaling.metrics import finite
from lab.autoscaling.policies import BASELINE, digests, fits, make, names
from lab.evaluation.results import Goal, Paired, Progress, ResultMetric, SuiteResult, silent
from lab.suites.suites import SuiteInput, check_used
from lab.worlds.learned.model import LearnedTwin
from lab.worlds.services.loads import LoadTrace, parse_trace
from lab.worlds.services.scenarios import SCENARIOS, check_scenario, intensity_of
from lab.worlds.services.topology import ServiceGraph, default_topology, parse_topology
from shared.autoscaling.observation import Policy
from shared.errors import ConfigError

SUITE = "autoscaling"
OURS, SINGLE = "karma", ("karma-single", "dqn")
SURGES, FAILURES = (1.0, 2.0, 4.0, 8.0), (0.01, 0.05, 0.1, 0.2)
COMPARED = ("success", "latency_compliance", "availability", "replica_hours", "reward")
TRACE, TOPOLOGY = "trace", "topology"
"""Under which names ``SuiteInput.files`` holds a user's own."""
MISFIT = "{} is left out: its weights are for a graph of another size"


@dataclass(frozen=True, slots=True)
class ScalingExperiment:
    """One scenario at one strength."""

    name: str
    scenario: str
    intensity: float = 0.0


def experiments(
    *, own_files: bool, scenario: str | None = None, intensity: float | None = None
) -> list[ScalingExperiment]:
    """What is played. ``ConfigError``: no such scenario, or a strength that it does not have."""
    if scenario in SCENARIOS:
        strength = intensity_of(scenario) if intensity is None else intensity
        check_scenario(scenario, strength)
        return [ScalingExperiment(scenario, scenario, strength)]
    if scenario is not None and scenario not in (CALM, ATTACKER):
        known = ", ".join((*SCENARIOS, ATTACKER, CALM))
        raise ConfigError(f"--scenario: {scenario!r} is not known; choose one of {known}")
    if intensity is not None:
        raise ConfigError("--intensity: it is a scenario's strength; give --scenario beside it, one that has any")
    if scenario is not None:
        return [ScalingExperiment(scenario, scenario)]
    mixed = ScalingExperiment("mixed", "mixed", intensity_of("mixed"))
    if own_files:
        return [ScalingExperiment(CALM, CALM), mixed]
    found = [ScalingExperiment(name, name, intensity_of(name)) for name in SCENARIOS]
    found.append(ScalingExperiment(ATTACKER, ATTACKER))
    found += [ScalingExperiment(f"ddos-{surge:g}x", "ddos", surge) for surge in SURGES]
    found += [ScalingExperiment(f"failures-{share:.0%}", "failures", share) for share in FAILURES]
    return found


def experiments_in(twin: LearnedTwin, *, scenario: str | None, intensity: float | None) -> list[ScalingExperiment]:
    """What can be played in a learned twin: the scenarios of its series, as strong as they were recorded.
    ``ConfigError``: another one, or a strength."""
    if intensity is not None:
        raise ConfigError("--intensity: a learned twin plays what was recorded; leave it out")
    names = twin.header.scenarios if scenario is None else (scenario,)
    for name in names:
        twin.scenario(name)
    return [ScalingExperiment(name, name, intensity_of(name) if name in SCENARIOS else 0.0) for name in names]


def run_suite(
    given: SuiteInput,
    progress: Progress = silent,
    *,
    planned: Sequence[ScalingExperiment] | None = None,
    steps: StepsFile | None = None,
    seconds: int = 1800,
    decide_s: int = 10,
    twin: LearnedTwin | None = None,
) -> SuiteResult:
    """Play every experiment by every policy on every seed. ``given.policies`` empty: all there are; ``hpa`` is always
    among them, to compare with. ``given.files``: ``trace`` and ``topology``, text of a user's own. ``twin``: play in
    this learned one, in the experiments of ``experiments_in``.

    Raises ``ConfigError`` for a policy that is not known, or a file that cannot be used.
    """
    chosen = tuple(dict.fromkeys((*(given.policies or names()), BASELINE)))
    check_used(given.weights, chosen)
    topology, trace = _files(given.files)
    made: dict[str, Policy] = {name: make(name, given.weights.get(name)) for name in chosen}
    misfits = [] if given.policies else [name for name, one in made.items() if not fits(one, len(topology.services))]
    policies = {name: one for name, one in made.items() if name not in misfits}
    plan = list(planned) if planned is not None else experiments(own_files=bool(given.files))
    total = len(plan) * len(policies) * len(given.seeds)
    values: dict[str, dict[str, list[float]]] = {name: {} for name in policies}
    done = 0
    for experiment in plan:
        setup = Setup(topology, experiment.scenario, experiment.intensity, trace, seconds, decide_s, twin=twin)
        for name, policy in policies.items():
            for seed in given.seeds:
                doing = f"{experiment.name} {name} seed {seed}"
                progress(done, total, doing)
                note = steps.of(experiment.name, name, seed) if steps is not None else None
                played = play(setup, policy, seed, clock=given.clock, note=note)
                done += 1
                for metric, value in played.figures.items():
                    values[name].setdefault(f"{experiment.name}/{metric}", []).append(value)
    progress(total, total, "done")
    metrics = {
        name: {key: ResultMetric.of(series) for key, series in finite(own).items()} for name, own in values.items()
    }
    return SuiteResult(
        suite=SUITE,
        command=given.command,
        seeds=tuple(given.seeds),
        policies=metrics,
        paired=tuple(_paired(plan, metrics)) if len(given.seeds) > 1 else (),
        goals=tuple(_goals(metrics)) if not given.files and twin is None else (),
        card_digests=digests(policies),
        notes=(*_notes(topology, trace, plan, decide_s, twin), *(MISFIT.format(name) for name in misfits)),
    )


def _files(files: Mapping[str, str]) -> tuple[ServiceGraph, LoadTrace | None]:
    topology = parse_topology(files[TOPOLOGY], "--topology") if TOPOLOGY in files else default_topology()
    return topology, parse_trace(files[TRACE], "--trace") if TRACE in files else None


def _paired(plan: Sequence[ScalingExperiment], metrics: Mapping[str, Mapping[str, ResultMetric]]) -> list[Paired]:
    return [
        Paired.of(f"{experiment.name}/{metric}", metrics, a=name, b=BASELINE)
        for experiment in plan
        for name in metrics
        if name != BASELINE
        for metric in COMPARED
    ]


def _goals(metrics: Mapping[str, Mapping[str, ResultMetric]]) -> list[Goal]:
    """Issue 14's numbers for the scenarios that were played (targets T5)."""
    own, other = metrics.get(OURS, {}), metrics[BASELINE]
    if "mixed/success" not in own:
        return []
    goals = [
        Goal.at_least("mixed/success over hpa, points", own["mixed/success"].mean - other["mixed/success"].mean, 26.0),
        *_over_single(own, metrics),
        Goal.at_least("mixed/latency_compliance", own["mixed/latency_compliance"].mean, 86.0),
        Goal.at_most("mixed/pending", own["mixed/pending"].mean, 5.9),
        Goal.at_least("mixed/availability", own["mixed/availability"].mean, 91.0),
        Goal.at_most(
            "mixed/replica_hours over hpa's", own["mixed/replica_hours"].mean / other["mixed/replica_hours"].mean, 1.1
        ),
        Goal.at_most("mixed/reward, s.d. in % of it", 100 * own["mixed/reward"].sd / own["mixed/reward"].mean, 5.3),
    ]
    if "mixed/recovery_s" in own:
        goals.append(Goal.at_most("mixed/recovery_s", own["mixed/recovery_s"].mean, 33.0))
    goals += [
        Goal.at_least(f"{name}/success", own[f"{name}/success"].mean, 72.0)
        for name in ("ddos-8x", "failures-20%")
        if f"{name}/success" in own
    ]
    if "mixed/decision_ms" in own:
        goals.append(Goal.at_most("mixed/decision_ms", own["mixed/decision_ms"].mean, 28.0))
    return goals


def _over_single(own: Mapping[str, ResultMetric], metrics: Mapping[str, Mapping[str, ResultMetric]]) -> list[Goal]:
    """Beside the best of the agents that decide for the whole graph alone."""
    single = [metrics[name]["mixed/success"].mean for name in SINGLE if name in metrics]
    if not single:
        return []
    gain = own["mixed/success"].mean - max(single)
    return [Goal.at_least("mixed/success over the best single agent, points", gain, 10.0)]


def _notes(
    topology: ServiceGraph,
    trace: LoadTrace | None,
    plan: Sequence[ScalingExperiment],
    decide_s: int,
    twin: LearnedTwin | None,
) -> list[str]:
    found = [
        f"decisions every {decide_s} s; {topology.name} answers at most {topology.capacity():.0f} requests/s",
        *(f"{one.name}: strength {one.intensity:g}" for one in plan if one.scenario in SCENARIOS),
    ]
    if trace is not None and trace.step_s < trace.told_s:
        found.append(f"{trace.name}: a step of {trace.told_s:g} s is replayed in {trace.step_s:g} s")
    if twin is not None:
        found.append(f"played in a learned twin of {twin.header.graph}; what it is worth: --suite learned-twin")
    return found
