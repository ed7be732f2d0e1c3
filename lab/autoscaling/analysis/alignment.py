"""Alignment: how many of a policy's decisions its roles explain. Pure.

- by itself: the step that the network would take if only the bounds held is one that the service's role allows. It is
  the figure that counts: with hard roles the mask makes all others impossible, so that what was done says nothing.
- as acted: the same of the step that was taken.

Most decisions are of services without a role (``otherwise``); ``in_roles`` counts the others alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from lab.autoscaling.analysis.trajectories import Trajectory, role_of
from shared.autoscaling.networks.features import STEPS, features
from shared.autoscaling.networks.karma import KarmaPolicy
from shared.autoscaling.roles.organisation import NO_ROLE, NOBODY


class RoleAlignment(Struct, frozen=True):
    """One role: decisions, and shares (0 to 1) of them."""

    decisions: int
    by_itself: float
    acted: float


class Alignment(Struct, frozen=True, kw_only=True):
    """Shares are 0 to 1; ``in_roles`` None: no service had a role."""

    by_itself: float
    acted: float
    in_roles: float | None
    roles: dict[str, RoleAlignment]


def alignment(policy: KarmaPolicy, trajectories: Sequence[Trajectory]) -> Alignment:
    """The alignment of all decisions."""
    hard = replace(policy.eyes.organisation, binding="hard")
    found: dict[str, list[tuple[bool, bool]]] = {}
    for moment in (moment for episode in trajectories for moment in episode.moments):
        within = np.array([NOBODY.mask(one, None) for one in moment.signals.values()])
        free = policy.chosen(features(moment.inputs), within)
        for (name, one), step in zip(moment.signals.items(), free.tolist(), strict=True):
            allowed = hard.mask(one, moment.roles[name])
            taken = moment.steps[name]
            acted = taken in STEPS and bool(allowed[STEPS.index(taken)])
            found.setdefault(role_of(moment, name), []).append((bool(allowed[step]), acted))
    every = [pair for pairs in found.values() for pair in pairs]
    in_roles = [pair for role, pairs in found.items() if role != NO_ROLE for pair in pairs]
    return Alignment(
        by_itself=_share(every, 0),
        acted=_share(every, 1),
        in_roles=_share(in_roles, 0) if in_roles else None,
        roles={
            role: RoleAlignment(len(pairs), _share(pairs, 0), _share(pairs, 1)) for role, pairs in sorted(found.items())
        },
    )


def _share(pairs: Sequence[tuple[bool, bool]], part: int) -> float:
    return sum(pair[part] for pair in pairs) / max(len(pairs), 1)
