"""A user's own reward in the placement experiments of ``ee``, ``lb`` and ``el``: features, and what becomes of a fault.

``reward(features)`` is an expression or a plug-in. It judges each placement in place of the shipped reward; no
placement ends an episode then, since which ones should is the shipped rewards' idea. Where it raises, is not finite or
lacks a signal, the shipped reward's number counts for that placement, is counted, and the reason is told once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lab.environments.placement_rewards import Reward, RewardedPlacement, RewardWorth, latency_reward

Judge = Callable[[Mapping[str, float]], float]
Report = Callable[[str], None]

FEATURES: Mapping[str, str] = {
    "load": "of the chosen node before the pod: mean requested share of cpu and memory",
    "load_least": "the same of the least loaded candidate",
    "load_mean": "mean over the candidates",
    "load_most": "of the most loaded candidate",
    "candidates": "how many nodes could take the pod",
    "nodes": "how many nodes there are",
    "nodes_used": "nodes with a pod, after it",
    "pods": "on all nodes, after it",
    "pods_most": "on the node that has most, after it",
    "pods_least": "on the node that has fewest, after it",
    "latency_ms": "of the chosen node; -1: not known",
    "latency_soft_ms": "the pod's limits; 0: none",
    "latency_hard_ms": "",
    "latency_kept": "1 within the soft limit, 0.5 within the hard one, else 0",
    "hour": "of the day, 0 to 24, with fractions: of the twin's day, which begins at midnight",
}
"""What a reward may read of one placement, beside the signals."""

DECISION_S = 4.0
"""A placement each so many seconds of the twin's day: the thesis' pace."""
DAY_H = 24.0


def silent(text: str) -> None:
    """Tell nobody."""


@dataclass
class OwnReward:
    """Judges as ``judge`` says. ``signals``: their values now; ``faults``: how often the shipped one stood in."""

    judge: Judge
    shipped: Reward
    signals: Callable[[], Mapping[str, float]] = dict
    report: Report = silent
    faults: Counter[str] = field(default_factory=Counter)
    judged: int = 0
    valued: int = 0
    """Of those judged: how many had a value of their own."""
    total: float = 0.0
    """The sum of these values."""
    instead: str = "the shipped reward counts"

    def anew(self) -> OwnReward:
        """The same at the beginning of a day; its faults are counted with ours."""
        return OwnReward(self.judge, self.shipped, self.signals, self.report, self.faults, instead=self.instead)

    def __call__(self, placement: RewardedPlacement) -> RewardWorth:
        """The placement's worth."""
        features = features_of(placement, self.judged * DECISION_S) | dict(self.signals())
        self.judged += 1
        try:
            value = float(self.judge(features))
            fault = "" if math.isfinite(value) else f"is {value:g}"
        except Exception as error:  # noqa: BLE001  whatever a user's code raises, training goes on and it is told
            value, fault = 0.0, f"{type(error).__name__}: {error}"
        if not fault:
            self.valued, self.total = self.valued + 1, self.total + value
            return RewardWorth(value, terminated=False)
        if fault not in self.faults and len(self.faults) < MOST_TOLD:
            self.report(f"reward: {fault}; {self.instead} for such a placement")
        self.faults[fault if fault in self.faults or len(self.faults) < MOST_TOLD else "other"] += 1
        return RewardWorth(self.shipped(placement).reward, terminated=False)


class Beside:
    """The shipped reward counts, and the user's own is measured beside it."""

    def __init__(self, shipped: Reward, own: OwnReward) -> None:
        self._shipped = shipped
        self._own = own
        self._total = 0.0

    def __call__(self, placement: RewardedPlacement) -> RewardWorth:
        """What the shipped one says."""
        self._total += self._own(placement).reward
        return self._shipped(placement)

    @property
    def mean(self) -> float:
        """Of the user's own, over the placements so far."""
        return self._total / max(self._own.judged, 1)


MOST_TOLD = 16
"""Different faults that are told."""


def features_of(placement: RewardedPlacement, at_s: float) -> dict[str, float]:
    """``FEATURES`` of a placement, ``at_s`` seconds of the twin's day."""
    load, pods = placement.load, placement.pods
    return {
        "load": float(load[placement.chosen]),
        "load_least": float(load.min()),
        "load_mean": float(load.mean()),
        "load_most": float(load.max()),
        "candidates": float(len(load)),
        "nodes": float(len(pods)),
        "nodes_used": float((pods > 0).sum()),
        "pods": float(pods.sum()),
        "pods_most": float(pods.max()),
        "pods_least": float(pods.min()),
        "latency_ms": placement.latency_us / 1000 if placement.latency_us >= 0 else -1.0,
        "latency_soft_ms": placement.latency_soft_us / 1000,
        "latency_hard_ms": placement.latency_hard_us / 1000,
        "latency_kept": latency_reward(placement),
        "hour": at_s / 3600 % DAY_H,
    }
