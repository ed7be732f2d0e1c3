"""Who places the pods of the thesis' experiment: policies as the mesh asks them, and two that see what nobody can.

``greedy`` is the offline greedy of targets T3: it sees the true use of every node and of the pod and keeps the spread
over nodes as small as it can at once. ``clairvoyant`` knows besides when every run will end and keeps the mean spread
small over the pod's whole life: what is left for a policy that places without moving. Both are bounds, not policies.
Ties fall by lot, as in the mesh. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lab.environments.node_load import FloatArray
from lab.worlds.placement.thesis_session import Session
from shared.policy.observation import Policy, Rng
from shared.policy.ranking import usable

Decider = Callable[[Session, Rng], int]
Clock = Callable[[], float]
TIE = 1e-12


@dataclass(slots=True)
class DecisionTally:
    """What one policy's decisions were like, beside where pods went. ``cpu_s``: one per decision, given a clock."""

    all_rejected: int = 0
    unusable: int = 0
    """Verdicts with NaN or of another shape: counted, and the first feasible node is taken."""
    infeasible: int = 0
    cpu_s: list[float] = field(default_factory=list)


def policy_decider(policy: Policy, tally: DecisionTally, clock: Clock | None = None) -> Decider:
    """A decider around a policy that reads the session's store. Accepted nodes go before rejected ones."""

    def decide(session: Session, rng: Rng) -> int:
        observation = session.observation()
        started_s = clock() if clock else 0.0
        verdicts = policy.decide(observation, rng)
        if clock:
            tally.cpu_s.append(clock() - started_s)
        rows = observation.rows
        if not usable(verdicts, len(rows)):
            tally.unusable += 1
            return int(rows[0])
        score = verdicts.score
        if verdicts.accept is not None:
            if verdicts.accept.any():
                score = np.where(verdicts.accept, score, -np.inf)
            else:
                tally.all_rejected += 1
        node = int(rows[pick(score, rng)])
        tally.infeasible += not session.mask[node]
        return node

    return decide


def pick(score: FloatArray, rng: Rng, *, tie: float = 0.0) -> int:
    """The index of the highest score; among equals (within ``tie``) by lot."""
    best = np.flatnonzero(score >= score.max() - tie)
    return int(best[0] if len(best) == 1 else best[int(rng.random() * len(best))])


def greedy(session: Session, rng: Rng) -> int:
    """The node after which the variance over nodes of each one's highest utilisation is least."""
    env = session.env
    now = env.true_utilisation()
    before = now.max(axis=1)
    after = (now + env.true_usage()).max(axis=1)
    return pick(-_variance_if(before, after, env.healthy, env.mask), rng, tie=TIE)


def _variance_if(
    before: FloatArray, after: FloatArray, counted: NDArray[np.bool_], allowed: NDArray[np.bool_]
) -> FloatArray:
    """[nodes]: the variance over the counted nodes if that node gets the pod; infinite where it may not."""
    live = before[counted]
    count, total, squares = len(live), live.sum(), (live * live).sum()
    mean = (total - before + after) / count
    variance: FloatArray = (squares - before * before + after * after) / count - mean * mean
    return np.where(allowed, variance, np.inf)


def clairvoyant(session: Session, rng: Rng) -> int:
    """The node for which the mean spread until this pod's end is least, all ends known, no later pod coming."""
    env = session.env
    assert env.pending is not None
    end_s = env.now_s + env.settings.start_delay_s + env.pending.duration_s
    ends = sorted(env.true_ends(), key=lambda item: item[1])
    use, load = env.true_usage(), env.true_utilisation()
    moments_s, loads = [env.now_s], [load.copy()]
    for node, at_s, delta in ends:
        if at_s >= end_s:
            break
        load[node] -= delta
        moments_s.append(at_s)
        loads.append(load.copy())
    lasting = np.diff([*moments_s, end_s])
    series = np.stack(loads)
    highest = series.max(axis=2)
    cost = np.full(env.settings.nodes, np.inf)
    for row in np.flatnonzero(env.mask):
        tried = highest.copy()
        tried[:, row] = (series[:, row] + use).max(axis=1)
        cost[row] = float(tried[:, env.healthy].std(axis=1) @ lasting)
    return pick(-cost, rng, tie=TIE)
