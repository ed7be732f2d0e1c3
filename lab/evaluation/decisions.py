"""Recorded decisions to imitate: what the decider saw of each candidate, and which candidates it would have taken.

DL2's way in (Peng et al., TPDS 2021, section 4.2): a policy first learns to decide as the scheduler that is there does,
then goes on by itself. A policy as teacher shows all nodes it holds equally good; a cluster's history shows the one it
took. Features are whatever the learner gives a function for, so any set network can be taught. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.worlds.placement.replaying import jobs_of
from lab.worlds.placement.table_run import TableRun, repeat_history
from shared.errors import ConfigError
from shared.kube.pods.convert import node_from_api
from shared.model.constraints import PodClass
from shared.policy.observation import Observation, Policy, Rng, Verdicts
from shared.scheduling.state.node_table import IntArray, NodeTable
from twin.model.capture import Capture

Floats = NDArray[np.float32]
Featurise = Callable[[NodeTable, PodClass, IntArray], Floats]
"""float32 ``[candidates, features]`` of rows; as ``scheduling.node_features``."""

Example = tuple[Floats, Floats]
"""(features ``[candidates, features]``, target ``[candidates]``: how the teacher's choice is spread, summing to 1)."""


@dataclass(frozen=True)
class RecordedDecisions:
    """``features`` float32 [decisions, members, features]; ``present`` bool, ``target`` float32 [decisions, members].

    Rows beyond a decision's candidates are zero and not present.
    """

    features: Floats
    present: NDArray[np.bool_]
    target: Floats

    def __len__(self) -> int:
        return len(self.features)

    def check_valid(self) -> tuple[bool, str]:
        """(whether it can be learned from, why not)."""
        if not np.isfinite(self.features).all() or not np.isfinite(self.target).all():
            return False, "a feature or target is NaN or infinite"
        if (self.target[~self.present] != 0).any() or (self.target < 0).any():
            return False, "a target lies on what is no candidate, or is negative"
        if not np.allclose(self.target.sum(axis=1), 1.0, atol=1e-5):
            return False, "the targets of a decision do not sum to 1"
        return True, ""


def shared_best(verdicts: Verdicts) -> Floats:
    """The teacher's choice as a target: even over its best accepted candidates, as its ties fall at random."""
    score = verdicts.score
    if verdicts.accept is not None and verdicts.accept.any():
        score = np.where(verdicts.accept, score, -np.inf)
    best = score == score.max()
    target: Floats = (best / best.sum()).astype(np.float32)
    return target


def taught_by(policy: Policy, observation: Observation, featurise: Featurise, rng: Rng) -> Example:
    """One example: what ``policy`` would do here."""
    features = featurise(observation.table, observation.pod_class, observation.rows)
    return np.array(features, np.float32), shared_best(policy.decide(observation, rng))


def from_history(capture: Capture, featurise: Featurise) -> Iterator[Example]:
    """What the captured cluster's own scheduler did, where the filters of this one allow it.

    A decision with a single candidate teaches nothing and is left out.
    """
    jobs, _ = jobs_of(capture)
    for step in TableRun([node_from_api(node) for node in capture.nodes], jobs, repeat_history):
        seen = step.observation
        if len(seen.rows) > 1:
            target = np.zeros(len(seen.rows), np.float32)
            target[step.chosen] = 1.0
            yield np.array(featurise(seen.table, seen.pod_class, seen.rows), np.float32), target


def collect(examples: Iterable[Example], *, members: int, rng: np.random.Generator, source: str) -> RecordedDecisions:
    """Pad examples to ``members``; of a larger set ``members`` are drawn at random, one of the best always among them.

    Raises ``ConfigError`` naming ``source`` when there is no example, or one that cannot be learned from.
    """
    kept = [_thinned(features, target, members, rng) for features, target in examples]
    if not kept:
        raise ConfigError(f"--warm-up: {source} holds no decision between two nodes; give a longer capture")
    width = kept[0][0].shape[1]
    found = RecordedDecisions(
        np.zeros((len(kept), members, width), np.float32),
        np.zeros((len(kept), members), np.bool_),
        np.zeros((len(kept), members), np.float32),
    )
    for number, (features, target) in enumerate(kept):
        found.features[number, : len(features)] = features
        found.present[number, : len(features)] = True
        found.target[number, : len(features)] = target
    valid, why = found.check_valid()
    if not valid:
        raise ConfigError(f"--warm-up: {source}: {why}; correct the features or give another source")
    return found


def _thinned(features: Floats, target: Floats, members: int, rng: np.random.Generator) -> Example:
    if len(features) <= members:
        return features, target
    best = int(rng.choice(np.flatnonzero(target > 0)))
    others = rng.choice(np.delete(np.arange(len(features)), best), members - 1, replace=False)
    rows = np.sort(np.append(others, best))
    share = target[rows]
    return features[rows], share / share.sum()
