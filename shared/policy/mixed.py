"""Why a mixture of policies chose as it did: each member's part in the score of the node and of the best other one.

A function of a policy that has ``parts`` and an observation; whoever explains need not know which policy that is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.policy.hybrid.policy import Hybrid, WeighedMember
from shared.policy.observation import Observation, Policy


class _Middle:
    """What a member that draws is handed: an explanation has no chance in it."""

    def random(self) -> float:
        return 0.5


class MemberPart(Struct, frozen=True, kw_only=True):
    """A member's part in a node's score. ``weight``: its share in this decision; ``raw``: its own score, ``score`` the
    same on 0..100, None where it was not asked or ``left_out`` (why); ``product``: weight times score."""

    policy: str
    role: str
    weight: float
    raw: float | None
    score: float | None
    product: float
    refuses: bool
    left_out: str


class MixedNode(Struct, frozen=True, kw_only=True):
    """A candidate; ``score``: of the mixture, 0..100, the sum of its members' products."""

    row: int
    score: float
    members: list[MemberPart]


class Mixed(Struct, frozen=True, kw_only=True):
    """``class_name``: by which class's weights, "" for pods of none; ``runner_up`` None: there was one candidate."""

    class_name: str
    chosen: MixedNode
    runner_up: MixedNode | None
    ahead_by: float


def is_mixed(policy: Policy) -> bool:
    """Whether ``mixed_of`` tells anything of it."""
    return isinstance(policy, Hybrid)


def mixed_of(policy: Policy, observation: Observation, row: int | None = None) -> Mixed | None:
    """The parts of the choice of ``row``, None: of the candidate that it would choose now. None where no member is left
    that counts, or the policy is no mixture."""
    if not isinstance(policy, Hybrid):
        return None
    class_name, parts = policy.parts(observation, _Middle())
    total = policy.sum_of(parts, len(observation.rows))
    best = total.best()
    if best is None or not any(part.weight for part in parts):
        return None
    place = best if row is None else int(np.searchsorted(observation.rows, row))
    second = total.best(but=place)
    return Mixed(
        class_name=class_name,
        chosen=_node(observation, parts, total.score, place),
        runner_up=None if second is None else _node(observation, parts, total.score, second),
        ahead_by=0.0 if second is None else float(total.score[place] - total.score[second]),
    )


def _node(
    observation: Observation, parts: Sequence[WeighedMember], score: NDArray[np.float64], place: int
) -> MixedNode:
    members = [
        MemberPart(
            policy=part.policy,
            role=part.role,
            weight=part.weight,
            raw=None if part.raw is None else float(part.raw[place]),
            score=None if part.score is None else float(part.score[place]),
            product=0.0 if part.score is None else part.weight * float(part.score[place]),
            refuses=part.refuses is not None and bool(part.refuses[place]),
            left_out=part.failure,
        )
        for part in parts
    ]
    return MixedNode(row=int(observation.rows[place]), score=float(score[place]), members=members)
