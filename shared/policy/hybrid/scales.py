"""The usual scores of our policies that have no bounds, so that they can be members of a mixture.

``(low, high)``: the 1st and the 99th percentile of all scores that the shipped policy gave to candidates on the scenes
of seeds 1000-1003, rounded to two digits: ``python -m bench.policies.hybrid_scales`` prints them. A weight says how
much of such a range counts, not how far apart the candidates of one decision are; ``conclave train hybrid`` finds
weights where that matters, ``scales`` of a definition overrides.
"""

from __future__ import annotations

from collections.abc import Mapping

SCALES: Mapping[str, tuple[float, float]] = {
    "best-fit": (14, 82),
    "ee": (-11, 20),
    "el": (-1.7, 1.1),
    "fgd": (18, 53),
    "frag": (-97, 17),
    "lb": (-0.67, 4.9),
    "marl-dqn": (-8.4, 2.7),
    "marl-dqn-published": (0.21, 0.5),
}
