"""The placement suites through a mesh of so many agents (``conclave evaluate --suite SUITE --agents N``).

The same experiments, seeds, figures and names as with one decider, as far as a mesh has them: of ``thesis`` the
imbalance, by the metrics API and by sensors; of ``deepsets`` all but late and noisy views, which a mesh's own
accounting never has, on up to ``MOST_NODES`` nodes, shortened to ``SHARE``, and beside them what a mesh alone has: pods
whose use is not what they request, measured by sensors (``unlike_use.py``); of ``openb`` what is allocated at 130 % and
what is drawn on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lab.environments.placement_rewards import REWARDS
from lab.evaluation.results import Goal, Paired, Progress, ResultMetric, SuiteResult, silent
from lab.mesh import openb, thesis, unlike_use
from lab.mesh.measured import NOBODY, SENSORS
from lab.mesh.placement import MeshDecider, NamedPolicy
from lab.mesh.tidal import suite as tidal
from lab.mesh.world import Agents
from lab.suites import deepsets
from lab.suites.openb import power_goals, read_traces
from lab.suites.suites import SuiteInput
from lab.worlds.placement.gpu_power import power_metrics
from lab.worlds.placement.placement_rollout import PlacementRollout, roll_out
from shared.errors import ConfigError
from shared.policy.deepsets.policy import DEEP_SETS_POLICIES
from shared.policy.frag.power_policy import POWER
from shared.policy.frag.value import NAME as FRAG
from shared.policy.heuristics import KubeDefault
from shared.policy.registry import LEARNED, POLICIES
from shared.policy.weights import WeightsFile

MOST_NODES, SHARE = 100, 0.1
KUBE_DEFAULT = KubeDefault.name
THESIS_BOUND = 0.55
"""Of kube-default's imbalance."""
WORKLOADS = ("uniform", "random")
UNLIKE_USE = "unlike-use-8"
BY_REQUESTS = "by requests"
BESIDE: Mapping[str, str] = {"lb": "least-allocated", "ee": "most-allocated"}
"""Policies that are measured where use is not what is requested, each with the heuristic that pursues its aim."""
USE_BOUND, IN_USE_BOUND = 0.9, 1.05
"""Of the spread of real use that ``lb`` leaves by requests; of the nodes that most-allocated has in use."""
SENSED = {"": thesis.METRICS, "sensors/": thesis.SENSORS}


def run_suite(name: str, given: SuiteInput, agents: Agents, progress: Progress = silent) -> SuiteResult:
    """The suite, one of ``SUITES``. Raises ``ConfigError`` for a policy that no agent decides by."""
    return SUITES[name](given, agents, progress)


def _named(given: SuiteInput, wanted: tuple[str, ...]) -> dict[str, NamedPolicy]:
    """The policies that are measured. Raises ``ConfigError`` for one that no agent could decide by."""
    for name in wanted:
        if name not in POLICIES:
            raise ConfigError(f"--policies: {name!r} is none that agents decide by; choose among {', '.join(POLICIES)}")
    files = given.learned([name for name in wanted if name in LEARNED])
    return {name: NamedPolicy(name, files.get(name)) for name in wanted}


def _result(
    suite: str, given: SuiteInput, agents: Agents, found: Mapping[str, Mapping[str, ResultMetric]], goals: list[Goal],
    policies: Mapping[str, NamedPolicy], paired: Sequence[Paired] = (),
) -> SuiteResult:  # fmt: skip
    weights: dict[str, WeightsFile] = {name: one.weights for name, one in policies.items() if one.weights is not None}
    return SuiteResult(
        suite=suite,
        command=given.command,
        seeds=tuple(given.seeds),
        policies=found,
        paired=tuple(paired),
        goals=tuple(goals),
        card_digests={name: file.sha256 for name, file in weights.items()},
        notes=(f"decided by a mesh of agents: {agents}; coordinator, agents and binder are the services' own cores",),
    )


# --- thesis -----------------------------------------------------------------------------------------------------------


def _thesis(given: SuiteInput, agents: Agents, progress: Progress) -> SuiteResult:
    policies = _named(given, tuple(given.policies) or ("marl-dqn", KUBE_DEFAULT))
    found: dict[str, dict[str, ResultMetric]] = {name: {} for name in policies}
    runs = [(name, how, workload) for name in policies for how in SENSED for workload in WORKLOADS]
    for done, (name, how, workload) in enumerate(runs):
        progress(done, len(runs), f"{name}, {workload}, {how}{agents} agents")
        one = partial(thesis.episode, policies[name], workload, agents, SENSED[how])
        episodes = list(given.each(one, given.seeds))
        found[name][f"{workload}/{how}imbalance"] = ResultMetric.of([episode.imbalance for episode in episodes])
        found[name][f"{workload}/{how}offer bytes"] = ResultMetric.of([episode.offer_bytes for episode in episodes])
    goals = []
    if {"marl-dqn", KUBE_DEFAULT} <= found.keys():
        for metric in (f"{workload}/{how}imbalance" for workload in WORKLOADS for how in SENSED):
            share = found["marl-dqn"][metric].mean / found[KUBE_DEFAULT][metric].mean
            goals.append(Goal.at_most(f"{metric} of marl-dqn over {KUBE_DEFAULT}'s", share, THESIS_BOUND))
    return _result("thesis", given, agents, found, goals, policies)


# --- deepsets ---------------------------------------------------------------------------------------------------------


def _deepsets(given: SuiteInput, agents: Agents, progress: Progress) -> SuiteResult:
    names = tuple(given.policies) or DEEP_SETS_POLICIES
    for name in names:
        if name not in DEEP_SETS_POLICIES:
            raise ConfigError(f"--policies: {name!r} is not compared here; choose from {', '.join(DEEP_SETS_POLICIES)}")
    policies = _named(given, names)
    sizes = [nodes for nodes in deepsets.SIZES if nodes <= MOST_NODES]
    drawn = deepsets.experiments(sizes, share=SHARE, objectives=names)
    planned = [one for one in drawn if one.promised and not one.scenario.filled]  # a mesh begins empty
    found: dict[str, dict[str, ResultMetric]] = {name: {} for name in names}
    goals: list[Goal] = []
    for done, one in enumerate(planned):
        progress(done, len(planned), f"{one.objective}/{one.name}, {agents} agents")
        runs = list(given.each(partial(play, one, policies[one.objective], agents), given.seeds))
        best = list(given.each(partial(play_oracle, one), given.seeds))
        told = {name: [getattr(run, name) for run in runs] for name in deepsets.TOLD[one.objective] if name != "regret"}
        told["regret"] = [deepsets.regret(run.reward, other.reward) for run, other in zip(runs, best, strict=True)]
        where = f"{one.objective}/{one.name}"
        found[one.objective] |= {f"{where}/{name}": ResultMetric.of(values) for name, values in told.items()}
        goals += deepsets.goals_of(one, found[one.objective])
    paired: list[Paired] = []
    for name in names:
        if name in BESIDE:
            progress(len(planned), len(planned), f"{name}/{UNLIKE_USE}, {agents} agents")
            goals.append(_unlike_use(name, policies[name], given, agents, found, paired))
    return _result("deepsets", given, agents, found, goals, policies, paired)


def _unlike_use(
    name: str, policy: NamedPolicy, given: SuiteInput, agents: Agents, found: dict[str, dict[str, ResultMetric]],
    paired: list[Paired],
) -> Goal:  # fmt: skip
    """By sensors, by requests, and by heuristics, on the same pods."""
    blind, beside = f"{name} {BY_REQUESTS}", BESIDE[name]
    where = f"{name}/{UNLIKE_USE}"
    for title, who, sensing in (
        (name, policy, SENSORS), (blind, policy, NOBODY), (beside, NamedPolicy(beside), NOBODY),
        (KUBE_DEFAULT, NamedPolicy(KUBE_DEFAULT), NOBODY),
    ):  # fmt: skip
        runs = list(given.each(partial(unlike_use.episode, who, agents, sensing), given.seeds))
        told = {figure: [getattr(run, figure) for run in runs] for figure in ("use_spread", "nodes_in_use", "unplaced")}
        found.setdefault(title, {}).update({f"{where}/{key}": ResultMetric.of(values) for key, values in told.items()})
    spread, nodes = f"{where}/use_spread", f"{where}/nodes_in_use"
    metric, other, bound = (spread, blind, USE_BOUND) if name == "lb" else (nodes, beside, IN_USE_BOUND)
    if len(given.seeds) > 1:
        paired += [Paired.of(metric, found, a=name, b=against) for against in (blind, beside, KUBE_DEFAULT)]
    share = found[name][metric].mean / found[other][metric].mean
    return Goal.at_most(f"{metric} over that of {other}", share, bound)


def play(experiment: deepsets.DeepSetsExperiment, policy: NamedPolicy, agents: Agents, seed: int) -> PlacementRollout:
    """One run, decided by a mesh."""
    return roll_out(experiment.scenario, seed, MeshDecider(policy, agents, seed), REWARDS[experiment.objective])


def play_oracle(experiment: deepsets.DeepSetsExperiment, seed: int) -> PlacementRollout:
    """The same by who takes the best one decision ahead."""
    return roll_out(experiment.scenario, seed, experiment.oracle, experiment.reward)


# --- openb ------------------------------------------------------------------------------------------------------------


def _openb(given: SuiteInput, agents: Agents, progress: Progress) -> SuiteResult:
    policies = _named(given, tuple(given.policies) or ("frag", "fgd", KUBE_DEFAULT))
    traces = read_traces(given.files)
    found: dict[str, dict[str, ResultMetric]] = {name: {} for name in policies}
    runs = [(name, trace) for name in policies for trace in traces]
    for done, (name, trace) in enumerate(runs):
        progress(done, len(runs), f"{name} on {trace}, {agents} agents")
        one = partial(openb.episode, traces[trace], policies[name], agents)
        episodes = list(given.each(one, given.seeds))
        found[name][f"{trace}/allocated_130"] = ResultMetric.of([each.allocation() for each in episodes])
        found[name] |= power_metrics(traces[trace], episodes, f"{trace}/")
    goals = [goal for trace in traces if {POWER, FRAG} <= found.keys() for goal in power_goals(found, trace)]
    return _result("openb", given, agents, found, goals, policies)


SUITES: Mapping[str, Callable[[SuiteInput, Agents, Progress], SuiteResult]] = {
    "thesis": _thesis,
    "deepsets": _deepsets,
    "openb": _openb,
    "tidal": lambda given, agents, progress: tidal.run_suite(given, progress, agents),
}
