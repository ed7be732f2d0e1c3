"""The ``thesis`` suite: marl-dqn on the 105 pods of the thesis, against what it must beat and what nobody can (T3).

Every policy meets the same pods, seed by seed, in both workloads. Metrics are named ``workload/metric``: ``imbalance``
(targets T3), ``completed_work``, ``cpu`` and ``highest part`` utilisation, ``all_rejected``; with a condition between
for the robustness columns (old or noisy measurements, none at all, a node that dies) and for 100 nodes. Those are
told; the promises are the goals. Baselines are the mesh's own policies; ``greedy`` and ``clairvoyant`` are bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import numpy as np

from lab.environments.thesis import EpisodeResult, NodeFault, ThesisSettings
from lab.evaluation.deciders.thesis import Clock, Decider, DecisionTally, clairvoyant, greedy, policy_decider
from lab.evaluation.results import Goal, Paired, Progress, ResultMetric, SuiteResult, silent
from lab.suites.suites import SuiteInput
from lab.worlds.placement.thesis_session import Session
from shared.errors import ConfigError
from shared.policy.heuristics import KubeDefault, LeastAllocated, Random
from shared.policy.marl.policy import NAME, PUBLISHED, MarlDqn
from shared.policy.marl.single_dqn import NAME as SINGLE
from shared.policy.marl.single_dqn import SingleDqn
from shared.policy.observation import Policy
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.weights import WeightsFile, shipped

SUITE = "thesis"
WORKLOADS = ("uniform", "random")
KUBE_BOUND, SINGLE_BOUND, GREEDY_BOUND, STRETCH_BOUND = 0.8, 0.9, 1.1, 1 / 3
P_BOUND = 0.01
WORK_BOUND = 0.999
"""Equal completed work: no less than this share of kube-default's."""
P99_4_MS, P99_1000_MS = 8.0, 20.0
MANY_NODES = 1_000
TIMED_DECISIONS = 500
"""How many decisions are timed at 1,000 nodes, per seed."""

Make = Callable[[UtilisationStore], Policy]
LEARNED: Mapping[str, Callable[[WeightsFile, UtilisationStore], Policy]] = {
    NAME: MarlDqn,
    SINGLE: SingleDqn,
    PUBLISHED: MarlDqn,
}


def _blind(policy: Callable[[], Policy], store: UtilisationStore) -> Policy:  # noqa: ARG001
    """A policy that does not look at use."""
    return policy()


HEURISTICS: Mapping[str, Make] = {
    "kube-default": partial(_blind, KubeDefault),
    "least-allocated": partial(_blind, LeastAllocated),
    "random": partial(_blind, Random),
}
BOUNDS: Mapping[str, Decider] = {"greedy": greedy, "clairvoyant": clairvoyant}
POLICIES = (*LEARNED, *HEURISTICS, *BOUNDS)


@dataclass(frozen=True, slots=True)
class ThesisCondition:
    """A column: how episodes differ from the experiment as fixed, and for whom it is run."""

    name: str
    settings: ThesisSettings
    metrics: bool = True
    only: tuple[str, ...] = POLICIES
    workloads: tuple[str, ...] = WORKLOADS


_COMPARED = ("marl-dqn", "single-dqn", "kube-default", "greedy")
_ANY_SIZE = ("marl-dqn", "kube-default", "greedy")
_FAULT = NodeFault(node=0, at_s=150.0, for_s=120.0)

CONDITIONS = (
    ThesisCondition("", ThesisSettings()),
    *(
        ThesisCondition(f"lag {lag_s:g} s/", ThesisSettings(lag_s=lag_s), only=_COMPARED[:2])
        for lag_s in (30.0, 75.0, 150.0)
    ),
    ThesisCondition("noise 10 %/", ThesisSettings(noise=0.1), only=_COMPARED[:2]),
    ThesisCondition("lag 75 s, noise 10 %/", ThesisSettings(lag_s=75.0, noise=0.1), only=_COMPARED[:2]),
    ThesisCondition("no measurements/", ThesisSettings(), metrics=False, only=_COMPARED[:2]),
    ThesisCondition("node 1 dies/", ThesisSettings(faults=(_FAULT,)), only=_COMPARED),
    ThesisCondition("100 nodes/", ThesisSettings(nodes=100), only=_ANY_SIZE, workloads=("uniform",)),
)


def run_suite(
    given: SuiteInput, progress: Progress = silent, *, conditions: Sequence[ThesisCondition] = CONDITIONS
) -> SuiteResult:
    """The suite on the seeds given; no ``clock``: decisions are not timed.

    Raises ``ConfigError`` for a policy it does not compare, or for weights of one.
    """
    wanted, seeds, clock = tuple(given.policies) or POLICIES, given.seeds, given.clock
    for name in wanted:
        if name not in POLICIES:
            raise ConfigError(f"--policies: {name!r} is not compared here; choose among {', '.join(POLICIES)}")
    files = given.learned([name for name in wanted if name in LEARNED])
    makers = {**HEURISTICS, **{name: maker(name, file) for name, file in files.items()}}
    jobs = [
        (condition, workload, name)
        for condition in conditions
        for workload in condition.workloads
        for name in wanted
        if name in condition.only
    ]
    found: dict[str, dict[str, ResultMetric]] = {name: {} for name in wanted}
    infeasible: dict[str, list[int]] = {name: [0] * len(seeds) for name in wanted}
    for done, (condition, workload, name) in enumerate(jobs):
        progress(done, len(jobs), f"{name}, {workload}, {condition.name.rstrip('/') or 'as fixed'}")
        one = partial(episode, name, workload, condition=condition, clock=clock, makers=makers)
        episodes = list(given.each(one, seeds))
        found[name] |= _metrics(workload, condition, episodes, timed=clock is not None)
        for index, (_, tally) in enumerate(episodes):
            infeasible[name][index] += tally.infeasible + tally.unusable
    for name in wanted:
        found[name]["infeasible or unusable"] = ResultMetric.of(infeasible[name])
    if clock is not None and "marl-dqn" in wanted:
        progress(len(jobs), len(jobs), f"marl-dqn, decision time at {MANY_NODES} nodes")
        times = [_p99_ms(_many(seed, clock, makers)) for seed in seeds]
        found["marl-dqn"]["decision p99 ms, 1000 nodes"] = ResultMetric.of(times)
    return SuiteResult(
        suite=SUITE,
        command=given.command,
        seeds=tuple(seeds),
        policies=found,
        paired=_paired(found) if len(seeds) > 1 else (),
        goals=tuple(_goals(found)),
        card_digests={name: file.sha256 for name, file in files.items()},
        notes=(
            "imbalance: time mean of the s.d. over nodes of the highest of cpu, memory, disk and network utilisation",
            "greedy and clairvoyant see true use (clairvoyant: ends too) and are bounds, not policies",
        ),
    )


def maker(name: str, weights: WeightsFile | None = None) -> Make:
    """Makes the learned policy ``name`` with ``weights``, None: the shipped ones."""
    return partial(LEARNED[name], weights if weights is not None else shipped(name))


def episode(
    name: str,
    workload: str,
    seed: int,
    condition: ThesisCondition,
    clock: Clock | None = None,
    *,
    makers: Mapping[str, Make] = HEURISTICS,
) -> tuple[EpisodeResult, DecisionTally]:
    """One policy's episode of one seed, the policy made by ``makers``."""
    tally = DecisionTally()
    session = Session.of(workload, seed, condition.settings, metrics=condition.metrics)
    decide, rng = _decider(name, session, tally, clock, makers), np.random.default_rng(seed)
    while not session.over:
        session.place(decide(session, rng))
    return session.env.result(), tally


def _decider(
    name: str, session: Session, tally: DecisionTally, clock: Clock | None, makers: Mapping[str, Make]
) -> Decider:
    return BOUNDS[name] if name in BOUNDS else policy_decider(makers[name](session.store), tally, clock)


def _metrics(
    workload: str, condition: ThesisCondition, episodes: Sequence[tuple[EpisodeResult, DecisionTally]], *, timed: bool
) -> dict[str, ResultMetric]:
    prefix = f"{workload}/{condition.name}"
    metrics = {
        f"{prefix}imbalance": ResultMetric.of([result.imbalance for result, _ in episodes]),
        f"{prefix}completed work": ResultMetric.of([result.completed_work for result, _ in episodes]),
    }
    if not condition.name:
        metrics |= {
            f"{prefix}cpu utilisation": ResultMetric.of([result.cpu for result, _ in episodes]),
            f"{prefix}all rejected": ResultMetric.of([tally.all_rejected for _, tally in episodes]),
        }
        if timed and all(tally.cpu_s for _, tally in episodes):
            metrics[f"{prefix}decision p99 ms"] = ResultMetric.of([_p99_ms(tally.cpu_s) for _, tally in episodes])
    return metrics


def _many(seed: int, clock: Clock, makers: Mapping[str, Make]) -> list[float]:
    """CPU seconds of the first decisions at 1,000 nodes."""
    tally = DecisionTally()
    session = Session.of("uniform", seed, ThesisSettings(nodes=MANY_NODES))
    decide, rng = _decider("marl-dqn", session, tally, clock, makers), np.random.default_rng(seed)
    while len(tally.cpu_s) < TIMED_DECISIONS:
        session.place(decide(session, rng))
    return tally.cpu_s


def _p99_ms(cpu_s: Sequence[float]) -> float:
    return float(np.quantile(cpu_s, 0.99)) * 1e3


def _paired(found: Mapping[str, Mapping[str, ResultMetric]]) -> tuple[Paired, ...]:
    if "marl-dqn" not in found:
        return ()
    return tuple(
        Paired.of(f"{workload}/imbalance", found, a="marl-dqn", b=other)
        for workload in WORKLOADS
        for other in found
        if other != "marl-dqn" and f"{workload}/imbalance" in found[other]
    )


def _goals(found: Mapping[str, Mapping[str, ResultMetric]]) -> list[Goal]:
    goals: list[Goal] = []
    for workload in WORKLOADS:
        goals += _balance_goals(found, workload)
    ours = found.get("marl-dqn", {})
    for workload in WORKLOADS:
        p99 = ours.get(f"{workload}/decision p99 ms")
        if p99 is not None:
            goals.append(
                Goal.at_most(f"{workload}: p99 decision at 4 nodes, CPU ms, worst seed", max(p99.values), P99_4_MS)
            )
    p99 = ours.get("decision p99 ms, 1000 nodes")
    if p99 is not None:
        goals.append(Goal.at_most("p99 decision at 1,000 nodes, CPU ms, worst seed", max(p99.values), P99_1000_MS))
    if "infeasible or unusable" in ours:
        goals.append(Goal.exactly("infeasible choices of marl-dqn", sum(ours["infeasible or unusable"].values), 0))
    return goals


def _balance_goals(found: Mapping[str, Mapping[str, ResultMetric]], workload: str) -> list[Goal]:
    metric, work = f"{workload}/imbalance", f"{workload}/completed work"
    ours = found.get("marl-dqn", {}).get(metric)
    if ours is None:
        return []
    goals: list[Goal] = []
    for other, bound, tested in (
        ("kube-default", KUBE_BOUND, True), ("single-dqn", SINGLE_BOUND, True), ("greedy", GREEDY_BOUND, False),
    ):  # fmt: skip
        theirs = found.get(other, {}).get(metric)
        if theirs is None:
            continue
        goals.append(Goal.at_most(f"{workload}: imbalance over {other}'s", ours.mean / theirs.mean, bound))
        if tested and len(ours.values) > 1:
            test = Paired.of(metric, found, a="marl-dqn", b=other)
            goals.append(Goal.at_most(f"{workload}: p of the paired test against {other}", test.p, P_BOUND))
    kube = found.get("kube-default", {})
    if metric in kube:
        ratio = ours.mean / kube[metric].mean
        goals.append(Goal.at_most(f"{workload}: stretch, imbalance over kube-default's", ratio, STRETCH_BOUND))
        done = fmean(found["marl-dqn"][work].values) / fmean(kube[work].values)
        goals.append(Goal.at_least(f"{workload}: completed work over kube-default's", done, WORK_BOUND))
    return goals
