"""What of a learned policy can be looked into: the named features it decides by, and what it makes of them.

Explaining a decision and learning from it need more than verdicts. A policy offers this by having ``feature_names``,
``features`` and ``q_values`` (see ``Lens``); one that offers nothing decides all the same, and is neither explained nor
trained while running.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.policy.marl.features import FEATURES
from shared.policy.marl.policy import MarlDqn
from shared.policy.observation import Observation, Policy

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Lens:
    """``features``: observation to float32 [candidates, len(names)]; ``q_values``: these to float32 [candidates, 2],
    Q(reject) and Q(accept). The score is their difference."""

    names: Sequence[str]
    features: Callable[[Observation], Floats]
    q_values: Callable[[Floats], Floats]


def _marl(policy: MarlDqn) -> Lens:
    return Lens(FEATURES, lambda seen: policy.observer.of(seen.table, seen.pod_class, seen.rows), policy.q_values)


def lens_of(policy: Policy) -> Lens | None:
    """The policy's lens; None where it offers none."""
    if isinstance(policy, MarlDqn):
        return _marl(policy)
    names, features, q_values = (getattr(policy, name, None) for name in ("feature_names", "features", "q_values"))
    if names is None or features is None or q_values is None:
        return None
    return Lens(tuple(names), features, q_values)
