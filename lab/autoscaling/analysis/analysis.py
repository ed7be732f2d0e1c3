"""The whole analysis of a policy on a twin, and what it recommends: go or no go, with each reason. Pure.

Trees are learned on seeds of their own (``TAUGHT_SEEDS``, those that policies are chosen on); everything else is of the
seeds that are reported. A recommendation is a comparison with thresholds that were set beforehand, nothing more: the go
itself is the operator's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from lab.autoscaling.analysis.alignment import Alignment, alignment
from lab.autoscaling.analysis.clusters import Behaviours, behaviours
from lab.autoscaling.analysis.counterfactuals import Counterfactuals, counterfactuals
from lab.autoscaling.analysis.trajectories import Trajectory, stretches, trajectory
from lab.autoscaling.analysis.trees import Tree, fidelity, trees
from lab.autoscaling.checks import Check, at_least, at_most
from lab.autoscaling.episode import Setup, play
from lab.autoscaling.judging import TwinGoals, TwinJudgement, not_judged
from lab.autoscaling.policies import BASELINE, make
from lab.evaluation.results import Progress, silent
from shared.autoscaling.networks.karma import KarmaPolicy
from shared.autoscaling.observation import Policy
from shared.autoscaling.safety.drift import Drift, Envelope, after
from shared.errors import ConfigError

TAUGHT_SEEDS = tuple(range(100, 110))
COMPARED = ("success", "latency_compliance", "availability", "replica_hours", "reward")
Share = Annotated[float, Meta(ge=0, le=1)]


class Thresholds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a go asks for. Shares are 0 to 1."""

    alignment: Share = 0.96
    """At least: decisions that the roles explain, by the network alone."""
    purity: Share = 0.89
    """At least: stretches whose role is their behaviour's."""
    stability: Share = 0.77
    """At least: adjusted Rand index of the behaviours over seeds."""
    fidelity: Share = 0.9
    """At least: decisions on other seeds that the trees take as the policy does."""
    success: Annotated[float, Meta(ge=-100, le=100)] = 0.0
    """At least: points of success over HPA's, on the same seeds."""
    cost: Annotated[float, Meta(gt=0, le=100)] = 1.1
    """At most: replica hours over HPA's."""
    alarms: Share = 0.01
    """At most: decisions on this twin that the drift guard would take away from the policy."""


class DayCost(Struct, frozen=True):
    """A day at the pace of the episodes, by policy (it and HPA): replica hours, and minutes in which fewer than 90 % of
    the requests were answered well."""

    replica_hours: dict[str, float]
    minutes_lost: dict[str, float]


class Analysis(Struct, frozen=True, kw_only=True):
    """What a policy does on a twin. ``figures``: by policy (it and HPA) and metric, a value per seed."""

    policy: str
    weights: str
    """sha256 of the weights file."""
    topology: str
    scenario: str
    intensity: float
    seeds: list[int]
    taught_seeds: list[int]
    go: bool
    checks: list[Check]
    day: DayCost
    alignment: Alignment
    behaviours: Behaviours
    counterfactuals: Counterfactuals
    trees: list[Tree]
    figures: dict[str, dict[str, list[float]]]
    command: str = ""


def analyse(
    policy: KarmaPolicy,
    setup: Setup,
    *,
    seeds: Sequence[int],
    thresholds: Thresholds,
    taught_seeds: Sequence[int] = TAUGHT_SEEDS,
    judgement: TwinJudgement | None = None,
    goals: TwinGoals = TwinGoals(),  # noqa: B008 - frozen
    sources: Check | None = None,
    command: str = "",
    progress: Progress = silent,
) -> Analysis:
    """Play, analyse, recommend. In a learned twin what was found of that (``judgement``) is among the reasons, and
    without it there is no go; ``sources``: whether the object names where the readings come from, where there
    is one. ``ConfigError``: the policy has no roles, or seeds are used twice."""
    if not policy.eyes.organisation.roles:
        raise ConfigError(
            "binding: the policy has no roles, and the analysis compares with roles; bind them hard or soft"
        )
    if set(seeds) & set(taught_seeds):
        raise ConfigError(
            f"--seeds: {min(set(seeds) & set(taught_seeds))} is one that trees are learned on; leave it out"
        )
    total = 2 * len(seeds) + len(taught_seeds) + 1
    done = 0

    def told(doing: str) -> Callable[[], None]:
        def tick() -> None:
            progress(done, total, doing)

        return tick

    taught, asked, other = [], [], []
    for seed in taught_seeds:
        taught.append(trajectory(setup, policy, seed, tick=told(f"{policy.name} seed {seed}, for the trees")))
        done += 1
    for seed in seeds:
        asked.append(trajectory(setup, policy, seed, tick=told(f"{policy.name} seed {seed}")))
        done += 1
    baseline: Policy = make(BASELINE)
    for seed in seeds:
        other.append(play(setup, baseline, seed, tick=told(f"{BASELINE} seed {seed}")).figures)
        done += 1
    told("comparing stretches")()
    found = Findings(policy, taught, asked, other)
    checks = found.checks(thresholds)
    if setup.twin is not None:
        checks += judgement.checks(goals) if judgement is not None else not_judged()
    if sources is not None:
        checks.append(sources)
    progress(total, total, "done")
    return Analysis(
        policy=policy.weights.title, weights=policy.weights.sha256, topology=setup.topology.name,
        scenario=setup.scenario, intensity=setup.intensity, seeds=list(seeds), taught_seeds=list(taught_seeds),
        go=all(one.met for one in checks), checks=checks, day=found.day(setup.seconds),
        alignment=found.alignment, behaviours=found.behaviours,
        counterfactuals=counterfactuals(policy, asked), trees=found.trees, figures=found.figures, command=command,
    )  # fmt: skip


class Findings:
    """What was found of the episodes, before anything is compared with a threshold."""

    def __init__(
        self,
        policy: KarmaPolicy,
        taught: Sequence[Trajectory],
        asked: Sequence[Trajectory],
        other: Sequence[Mapping[str, float]],
    ) -> None:
        self.alignment = alignment(policy, asked)
        self.behaviours = behaviours(stretches(asked, policy.eyes.organisation))
        self.trees = trees(taught, asked)
        self.figures = {
            policy.name: {name: [one.figures[name] for one in asked] for name in COMPARED},
            BASELINE: {name: [one[name] for one in other] for name in COMPARED},
        }
        self._own, self._other = self.figures[policy.name], self.figures[BASELINE]
        self._alarms = alarms(asked, policy.envelope)

    def day(self, seconds: int) -> DayCost:
        """What a day at this pace costs."""
        share = 86_400.0 / seconds
        return DayCost(
            {name: share * float(np.mean(own["replica_hours"])) for name, own in self.figures.items()},
            {name: 14.4 * (100.0 - float(np.mean(own["availability"]))) for name, own in self.figures.items()},
        )

    def checks(self, wanted: Thresholds) -> list[Check]:
        """Every reason, in the order of the thresholds."""
        over = float(np.mean(self._own["success"]) - np.mean(self._other["success"]))
        hours = float(np.mean(self._own["replica_hours"])) / max(float(np.mean(self._other["replica_hours"])), 1e-9)
        least = [
            (
                "alignment",
                wanted.alignment,
                self.alignment.by_itself,
                "decisions that the roles explain without a mask",
            ),
            ("purity", wanted.purity, self.behaviours.purity, "stretches whose role is that of their behaviour"),
            ("stability", wanted.stability, self.behaviours.stability, "the same behaviours on every seed (ARI)"),
            ("fidelity", wanted.fidelity, fidelity(self.trees), "decisions that a tree of four questions takes alike"),
            ("success", wanted.success, over, "points of success over HPA's at its best, on the same seeds"),
        ]
        most = [
            ("cost", wanted.cost, hours, "replica hours over HPA's"),
            ("alarms", wanted.alarms, self._alarms, "decisions here that the drift guard would give to HPA's rule"),
        ]
        return [*(at_least(*one) for one in least), *(at_most(*one) for one in most)]


def alarms(trajectories: Sequence[Trajectory], envelope: Envelope | None) -> float | None:
    """Share of the decisions at which the drift guard would have stepped in; None: the policy has no envelope."""
    if envelope is None:
        return None
    drifting = decisions = 0
    for episode in trajectories:
        drift = Drift()
        for moment in episode.moments:
            drift = after(drift, moment.named_inputs(), envelope)
            drifting += drift.drifting
            decisions += 1
    return drifting / max(decisions, 1)
