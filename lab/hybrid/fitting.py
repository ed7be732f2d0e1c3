"""Fits a mixture's weights, class by class, on runs of the twin: a plain search over the simplex, without gradients.

    the mixture as given, each member alone --> proposals near the best, one class's weights moved --judged on training
    seeds--> the best few --judged on validation seeds--> the one that is kept

A run is the thesis' random workload on eight nodes (``behaviour.thesis_scene``), each pod of one of the mixture's
classes or of none, drawn by the seed. What a run was worth is an expression over ``FEATURES``. Nothing is kept that
is not better than the mixture as given on the validation seeds too; the test seeds are not touched. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from lab.evaluation.behaviour import costs_of, thesis_scene
from lab.worlds.placement.measured_world import MeasuredWorld, limits_of
from shared.errors import ConfigError
from shared.policy.hybrid.mixture import ClassRule, Floats, Mixture
from shared.policy.hybrid.policy import Hybrid
from shared.policy.observation import Policy, Supplies, supply

FEATURES: Mapping[str, str] = {
    "imbalance": "imbalance of true use",
    "highest": "highest use of a node",
    "nodes_used": "nodes in use",
    "energy_wh": "energy, Wh, empty nodes off",
    "unplaced": "pods without a node",
    "nodes": "",
    "pods": "",
}
"""What an objective may read of a run, and what ``conclave evaluate --behaviour`` calls it."""

OBJECTIVE = "-imbalance - 0.5 * nodes_used / nodes - unplaced / pods"
"""Spread over few nodes: what kube-default and packing want in turn."""
VALIDATION_SEEDS = range(500, 510)
TEST_SEEDS = range(42, 52)
"""Reported on, after everything was chosen."""
SCENES = 4
"""Runs of a seed by which a proposal is judged."""
FINALISTS = 3
SPREAD = 0.25
"""Standard deviation of a move of one weight."""

Judge = Callable[[Mapping[str, float]], float]
Make = Callable[[Mixture], Sequence[Policy]]


@dataclass(frozen=True, slots=True)
class Tried:
    """Weights, and their mean worth over the training seeds."""

    weights: Floats
    worth: float


@dataclass
class Fit:
    """One search. ``make``: the members' policies of a mixture; ``judge``: an objective over ``FEATURES``."""

    mixture: Mixture
    make: Make
    judge: Judge
    seed: int
    tried: list[Tried] = field(default_factory=list)
    validated: list[Tried] = field(default_factory=list)
    """The mixture as given first; ``worth`` over the validation seeds."""

    def search(self, proposals: int) -> Iterator[int]:
        """Try so many; yields how many were tried."""
        rng = np.random.default_rng(self.seed)
        starts = [self.mixture.weights, *self._corners()]
        for number in range(proposals):
            weights = starts[number] if number < len(starts) else self._near(self._best().weights, rng)
            self.tried.append(Tried(weights, self.worth(weights, self._training_seeds())))
            yield number + 1

    def validate(self) -> Tried:
        """The best of the finalists and the mixture as given, on the validation seeds."""
        finalists = sorted(self.tried[1:], key=lambda one: -one.worth)[:FINALISTS]
        self.validated = [
            Tried(one.weights, self.worth(one.weights, VALIDATION_SEEDS)) for one in (self.tried[0], *finalists)
        ]
        return max(self.validated, key=lambda one: one.worth)

    def worth(self, weights: Floats, seeds: Sequence[int]) -> float:
        """Mean over runs of these seeds."""
        return float(np.mean(self.worths(weights, seeds)))

    def worths(self, weights: Floats, seeds: Sequence[int]) -> list[float]:
        """What the run of each seed was worth."""
        mixture = self.mixture.with_weights(weights)
        return [self.judge(play(mixture, self.make(mixture), seed)) for seed in seeds]

    def compared(self, weights: Floats) -> list[tuple[str, Floats]]:
        """What ``weights`` are reported beside: the mixture as given, each member alone."""
        names = [f"{member.policy} alone" for member in self.mixture.members]
        return [("fitted", weights), ("as given", self.mixture.weights), *zip(names, self._corners(), strict=True)]

    def _training_seeds(self) -> range:
        return range(self.seed * SCENES, (self.seed + 1) * SCENES)

    def _best(self) -> Tried:
        return max(self.tried, key=lambda one: one.worth)

    def _corners(self) -> list[Floats]:
        rows, members = self.mixture.weights.shape
        return [np.tile(np.eye(members)[member], (rows, 1)) for member in range(members)]

    def _near(self, weights: Floats, rng: np.random.Generator) -> Floats:
        """One class's weights moved, and put back on the simplex."""
        moved = weights.copy()
        row = int(rng.integers(len(moved)))
        found = np.maximum(moved[row] + rng.normal(0.0, SPREAD, moved.shape[1]), 0.0)
        moved[row] = found / found.sum() if found.sum() > 0 else weights[row]
        return moved


def play(mixture: Mixture, members: Sequence[Policy], seed: int) -> dict[str, float]:
    """``FEATURES`` of one run of ``seed``."""
    scene, rng = thesis_scene(seed), np.random.default_rng((seed, 3))
    labels = [labels_for(rule) for rule in mixture.classes]
    jobs = []
    for job in scene.jobs:
        drawn = int(rng.integers(len(labels) + 1))
        own = labels[drawn - 1] if drawn else ()
        pod_class = msgspec.structs.replace(job.pod_class, labels=own)
        jobs.append(type(job)(job.uid, job.at_s, pod_class, job.duration_s))
    limits = limits_of(scene.nodes)
    world = MeasuredWorld(limits, scene.profiles)
    policy = Hybrid(mixture, members)
    supply(policy, Supplies(world.store))
    run = world.run_by(scene.nodes, jobs, policy, np.random.default_rng(seed))
    for step in run:
        world.bound(step)
    costs = costs_of(limits, world.placed, len(run.unplaced))
    found = {name: costs[told] for name, told in FEATURES.items() if told}
    return found | {"nodes": float(len(scene.nodes)), "pods": float(len(jobs))}


def labels_for(rule: ClassRule) -> tuple[tuple[str, str], ...]:
    """Labels of a pod of the class. Raises ``ConfigError`` where that cannot be said."""
    labels = dict(rule.selector.match_labels)
    for one in rule.selector.match_expressions:
        if one.operator == "In":
            labels.setdefault(one.key, one.values[0])
        elif one.operator == "Exists":
            labels.setdefault(one.key, "any")
        else:
            raise ConfigError(
                f"by_class: {rule.name}: no pod of it can be made, it asks {one.operator}; use In or Exists"
            )
    return tuple(sorted(labels.items()))
