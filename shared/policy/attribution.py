"""Why a learned policy chose as it did: Q-values, the features that moved the choice most, and what lost.

By *ablation*: a feature of the chosen node is put at what the other candidates have on average, everything else
staying; the change of the node's score is what the feature moved (the occlusion of Zeiler and Fergus 2014, section 3.2,
with the other candidates as the reference, so that it answers why this node and not those). Effects of features that
act together do not add up to the score; they are not claimed to. Pure; a function of a lens and an observation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from shared.policy.networks import Floats
from shared.policy.observation import Observation, Policy

MOST = 5
"""Features told by default."""


class Lens(Struct, frozen=True):
    """What of a learned policy can be looked into, to explain its decisions and to learn from them.

    ``features``: observation to float32 [candidates, len(names)]; ``q_values``: these to float32 [candidates, 2],
    Q(reject) and Q(accept). The score is their difference. ``inputs``: so many features a network is given, what is
    beyond stands outside of it. Columns beyond ``names`` are no features: they stay as they are. ``network``: the name
    of the one that judged, by the row of features; None: there is but one.
    """

    names: Sequence[str]
    features: Callable[[Observation], Floats]
    q_values: Callable[[Floats], Floats]
    inputs: int | None = None
    network: Callable[[Floats], str] | None = None


def lens_of(policy: Policy) -> Lens | None:
    """Of a policy that has ``feature_names``, ``features`` and ``q_values``; None: it decides all the same, and is
    neither explained nor trained while running."""
    names, features, q_values = (getattr(policy, name, None) for name in ("feature_names", "features", "q_values"))
    if names is None or features is None or q_values is None:
        return None
    return Lens(
        tuple(names), features, q_values, getattr(policy, "inputs", None), getattr(policy, "network_named", None)
    )


class Moved(Struct, frozen=True):
    """One feature of the chosen node: its ``value``, what the others have on average (``reference``), and by how much
    its being so raised (above 0) or lowered the node's score."""

    feature: str
    value: float
    reference: float
    effect: float


@dataclass(frozen=True, slots=True)
class NodeCandidate:
    """One feasible node as the policy saw it. ``score`` = ``q_accept`` - ``q_reject``; accepted above 0. ``network``:
    which one judged it; "": there is but one."""

    row: int
    score: float
    q_accept: float
    q_reject: float
    network: str = ""


ROUNDING = 1e-5
"""Of a score: what float32 makes of the same features in another batch is less."""


class Attribution(Struct, frozen=True):
    """``moved``: strongest first. ``runner_up``: the best other candidate, None where there is none; ``lost_by``: how
    far it was behind, and ``decisive``: the features without whose difference it would have been closest."""

    chosen: NodeCandidate
    moved: tuple[Moved, ...]
    runner_up: NodeCandidate | None
    lost_by: float
    decisive: tuple[Moved, ...]


def attribute(lens: Lens, observation: Observation, row: int | None = None, *, most: int = MOST) -> Attribution:
    """Explain the choice of ``row``, None: of the best-scored candidate. Raises ``ValueError``: it was no candidate."""
    features = lens.features(observation)
    candidates = _candidates(lens, features, observation.rows)
    if not candidates:
        raise ValueError("no candidate: there is no choice to explain")
    place = _place(observation.rows, row) if row is not None else int(np.argmax([c.score for c in candidates]))
    chosen = candidates[place]
    others = [index for index in range(len(candidates)) if index != place]
    reference = features[others].mean(axis=0) if others else np.zeros(features.shape[1], np.float32)
    moved = _ablate(lens, features, place, reference)[:most]
    if not others:
        return Attribution(chosen, tuple(moved), None, 0.0, ())
    second = max(others, key=lambda index: candidates[index].score)
    decisive = _ablate(lens, features, place, features[second])[:most]
    lost_by = chosen.score - candidates[second].score
    if abs(lost_by) <= ROUNDING * abs(chosen.score):
        lost_by = 0.0
    return Attribution(chosen, tuple(moved), candidates[second], lost_by, tuple(decisive))


def _ablate(lens: Lens, features: Floats, place: int, reference: Floats) -> list[Moved]:
    """What each feature of the candidate at ``place`` moved against ``reference`` [features], strongest first.

    All ablations are one batch; the other candidates' rows are not part of a score of this kind of policy.
    """
    mine, told = features[place], len(lens.names)
    ablated = np.repeat(mine[None], told + 1, axis=0)
    np.fill_diagonal(ablated[1:], reference[:told])
    scores = _scores(lens.q_values(ablated))
    effects = scores[0] - scores[1:]
    least = ROUNDING * float(np.abs(scores).max())
    found = [
        Moved(name, float(mine[index]), float(reference[index]), float(effects[index]))
        for index, name in enumerate(lens.names)
        if mine[index] != reference[index] and abs(effects[index]) > least
    ]
    return sorted(found, key=lambda moved: -abs(moved.effect))


def _scores(q_values: Floats) -> Floats:
    difference: Floats = q_values[:, 1] - q_values[:, 0]
    return difference


def _candidates(lens: Lens, features: Floats, rows: Sequence[int] | np.ndarray) -> list[NodeCandidate]:
    q_values = lens.q_values(features)
    networks = ["" if lens.network is None else lens.network(one) for one in features]
    return [
        NodeCandidate(int(row), float(score), float(q[1]), float(q[0]), network)
        for row, score, q, network in zip(rows, _scores(q_values), q_values, networks, strict=True)
    ]


def _place(rows: np.ndarray, row: int) -> int:
    places = np.flatnonzero(rows == row)
    if not len(places):
        raise ValueError(f"row {row} was no candidate of this decision")
    return int(places[0])
