"""The gate: a candidate must not be worse than the active policy on the twin before any agent hears of it.

Both play the same episodes of the thesis' experiment (targets T3) on validation seeds that nothing was trained on; the
figure is the mean imbalance. Gates are per policy: another policy is judged by what it is for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lab.evaluation.deciders.thesis import DecisionTally, policy_decider
from lab.worlds.placement.thesis_session import Session
from shared.errors import ConfigError
from shared.policy.marl.policy import NAME, PUBLISHED, MarlDqn
from shared.policy.weights import WeightsFile

GateFunction = Callable[[WeightsFile, WeightsFile, Sequence[int]], float]
"""(candidate, active, seeds) to the relative gain, above 0 where the candidate is better. ``ConfigError``: refused."""


def balance_gate(candidate: WeightsFile, active: WeightsFile, seeds: Sequence[int]) -> float:
    """Gain in mean imbalance over both workloads of the thesis, (active - candidate) / active."""
    theirs = np.mean([imbalance(active, workload, seed) for workload in WORKLOADS for seed in seeds])
    ours = np.mean([imbalance(candidate, workload, seed) for workload in WORKLOADS for seed in seeds])
    if not theirs > 0:  # perfect, or NaN: nothing can be better, and only the same is as good
        return 0.0 if ours == theirs else -math.inf
    return float((theirs - ours) / theirs)


WORKLOADS = ("uniform", "random")

GATES: Mapping[str, GateFunction] = {NAME: balance_gate, PUBLISHED: balance_gate}


def gate_of(policy: str) -> GateFunction:
    """The policy's gate. Raises ``ConfigError`` naming those there are."""
    gate = GATES.get(policy)
    if gate is None:
        raise ConfigError(
            f"policy: {policy} has no gate on the twin; it can be trained offline. Known: {', '.join(GATES)}"
        )
    return gate


def imbalance(file: WeightsFile, workload: str, seed: int) -> float:
    """Of one episode placed by these weights. Raises ``ConfigError`` when they cannot be used in it."""
    tally, rng = DecisionTally(), random.Random(seed)
    session = Session.of(workload, seed)
    decide = policy_decider(MarlDqn(file, session.store), tally)
    while not session.over:
        session.place(decide(session, rng))
    if tally.unusable:
        raise ConfigError(f"weights of {file.title}: {tally.unusable} unusable verdicts on the twin; train again")
    return session.env.result().imbalance
