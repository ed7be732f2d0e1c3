"""Whether ``frag`` places a trace by its learned value or by FGD: both rehearse the experiment, on other orders.

The value was learned on openb's mixes. Where pods ask for something else altogether (next to no GPU pods, machines as a
whole, a few kinds in bulk) FGD can be better by a point, and nothing in one node's features tells. But the demand is
known, as FGD knows it: so orders that no seed of an evaluation can draw are played by both, and who allocates more
places the pods. On openb's own mixes the learned value wins every rehearsal.

It decides nothing about a single pod, and it never looks at the order that is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shared.policy.frag.features import model_share
from shared.policy.frag.fragmentation import Meeting, TypicalDemand
from shared.policy.frag.scorers import Fgd, Frag
from shared.policy.frag.value import NAME as FRAG
from shared.policy.rehearsal.episode import RehearsedEpisode, Scorer, run_episode
from shared.policy.rehearsal.submission import GpuNodes, GpuPods
from shared.policy.weights import WeightsFile

FGD = "fgd"
FIRST_SEED = 2**31
"""Orders of rehearsals; ``--seeds`` takes none of them."""
NODES, FEWEST, MOST = 2_400, 2, 12
"""Rehearsals play on so many nodes in all, but at least and at most so often: short lists differ more by the order."""
EARLY = 0.3
"""What a point at 100 % demand counts beside one at 130 %: the same as when the prices of ``frag`` were chosen."""
MARGIN = 0.1
"""Points that the learned value must be ahead by. The mean of two rehearsals on openb's nodes scatters by as much, and
where both are alike nothing is lost by FGD."""


@dataclass(frozen=True, slots=True)
class RehearsalTrace:
    """A node list, a pod list, and the demand that the pod list shows."""

    nodes: GpuNodes
    pods: GpuPods
    demand: TypicalDemand


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Points by which the learned value allocated more than FGD, mean over ``played`` orders."""

    gain_130: float
    gain_100: float
    played: int

    @property
    def policy(self) -> str:
        """Who places: FGD unless the learned value allocates more in the end, and not at the price of the way there."""
        return FRAG if min(self.gain_130, self.gain_130 + EARLY * self.gain_100) >= MARGIN else FGD

    def told(self) -> str:
        """One line for a report."""
        who = "the learned value" if self.policy == FRAG else "FGD"
        return (
            f"frag: {who} places, since in {self.played} rehearsals on other orders the learned value allocated "
            f"{self.gain_130:+.2f} points beside FGD at 130 % demand and {self.gain_100:+.2f} at 100 %"
        )


def rehearse(trace: RehearsalTrace, weights: WeightsFile, *, tick: Callable[[], None] = lambda: None) -> Rehearsal:
    """Play ``trace`` by both on some orders. ``tick``: called now and then, for progress or to stop by raising."""
    played = min(MOST, max(FEWEST, -(-NODES // len(trace.nodes.names))))
    gains = np.zeros(2)
    for seed in range(FIRST_SEED, FIRST_SEED + played):
        learned = play(trace, by_value(trace, weights), seed, tick=tick)
        other = play(trace, Fgd(trace.demand), seed, tick=tick)
        gains += learned.allocation() - other.allocation(), learned.allocation(1.0) - other.allocation(1.0)
    late, early = (gains / played).tolist()
    return Rehearsal(late, early, played)


def by_value(trace: RehearsalTrace, weights: WeightsFile) -> Frag:
    """The learned value, told the demand and the nodes of ``trace``."""
    return Frag(weights, trace.demand, model_share(trace.nodes.states))


def play(
    trace: RehearsalTrace, scorer: Scorer | None, seed: int, *, tick: Callable[[], None] = lambda: None
) -> RehearsedEpisode:
    """One episode of ``scorer`` on ``trace``; None places at random."""
    measure = Meeting(trace.demand).fragment
    return run_episode(trace.nodes, trace.pods, scorer, seed, measure=measure, tick=tick)
