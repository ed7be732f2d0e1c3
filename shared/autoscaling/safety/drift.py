"""Is what is seen like what the policy was trained on? If not, for some decisions in a row, HPA's rule decides. Pure.

A policy may bring an *envelope*: the range of each signal in its training. The score of one decision is the share of
readings outside their range, each range widened by a tenth of itself; it is smoothed, and two thresholds keep the
answer from flapping. Source of the guard: KARMA's TCC, "drift(s) <= delta, else HPA".
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from shared.autoscaling.observation import Observation

Envelope = Mapping[str, tuple[float, float]]
"""By signal (``arrivals``, ``latency_s``, ``usage:cpu``): smallest and largest value of any service in training."""

SMOOTHING = 0.3
ENTER = 0.5
LEAVE = 0.2
MARGIN = 0.1
_SIGNALS = ("arrivals", "served", "failed", "latency_s", "queue")


def envelope_of(policy: object) -> Envelope | None:
    """What a policy was trained on, where it has an attribute ``envelope``; None: it does not know."""
    found = getattr(policy, "envelope", None)
    return found if isinstance(found, Mapping) else None


class Drift(Struct, frozen=True):
    """What is remembered between decisions."""

    score: float = 0.0
    drifting: bool = False
    outside: tuple[str, ...] = ()
    """The worst readings, in words."""

    @property
    def why(self) -> str:
        """ "" while all is as in training."""
        return f"unlike its training: {', '.join(self.outside)}" if self.drifting else ""


def after(before: Drift, seen: Observation, envelope: Envelope) -> Drift:
    """What is remembered after one more observation; without a reading that the envelope knows, nothing changes."""
    values = [
        (f"{name} {signal}", value, envelope[signal])
        for name, service in seen.services.items()
        for signal, value in _values(service)
        if signal in envelope and value is not None
    ]
    if not values:
        return before
    outside = [name for name, value, (low, high) in values if not _inside(value, low, high)]
    score = (1 - SMOOTHING) * before.score + SMOOTHING * len(outside) / len(values)
    drifting = score > (LEAVE if before.drifting else ENTER)
    return Drift(score, drifting, tuple(outside[:3]) or (before.outside if drifting else ()))


def _values(service: object) -> list[tuple[str, float | None]]:
    usage: Mapping[str, float | None] = getattr(service, "usage", {})
    return [(signal, getattr(service, signal)) for signal in _SIGNALS] + [
        (f"usage:{name}", value) for name, value in usage.items()
    ]


def _inside(value: float, low: float, high: float) -> bool:
    margin = MARGIN * max(high - low, abs(high), 1e-9)
    return low - margin <= value <= high + margin
