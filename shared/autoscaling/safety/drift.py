"""Is what is seen like what the policy was trained on? If not, for some decisions in a row, HPA's rule decides. Pure.

A policy may bring an *envelope*: the range of each of its inputs in its training. A decision is outside when an input
of any service is outside its range, widened by a tenth of itself. The share of decisions that are is smoothed, and two
thresholds keep the answer from flapping: four in a row are drift, five to eight within end it. Source of the guard:
KARMA's TCC, "drift(s) <= delta, else HPA". What is unlikely together, and each by itself usual, is not noticed.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

Envelope = Mapping[str, tuple[float, float]]
"""By input: smallest and largest value of any service in training."""
Inputs = Mapping[str, Mapping[str, float]]
"""By service and input: what the policy saw in its last decision."""

SMOOTHING = 0.2
ENTER = 0.5
LEAVE = 0.2
MARGIN = 0.1
SHOWN = 3


def envelope_of(policy: object) -> Envelope | None:
    """What a policy was trained on, where it has an attribute ``envelope``; None: it does not know."""
    found = getattr(policy, "envelope", None)
    return found if isinstance(found, Mapping) else None


def inputs_of(policy: object) -> Inputs:
    """What a policy with an envelope saw in its last decision: its attribute ``inputs``; empty where it has none."""
    found = getattr(policy, "inputs", None)
    return found if isinstance(found, Mapping) else {}


class Drift(Struct, frozen=True):
    """What is remembered between decisions."""

    score: float = 0.0
    drifting: bool = False
    outside: tuple[str, ...] = ()
    """Inputs that were outside last, in words."""

    @property
    def why(self) -> str:
        """ "" while all is as in training."""
        return f"unlike its training: {', '.join(self.outside)}" if self.drifting else ""


def after(before: Drift, inputs: Inputs, envelope: Envelope) -> Drift:
    """What is remembered after one more decision; without an input that the envelope knows, nothing changes."""
    known = [
        (service, name, value, envelope[name])
        for service, values in inputs.items()
        for name, value in values.items()
        if name in envelope
    ]
    if not known:
        return before
    outside = tuple(
        f"{service} {name} {value:.3g}, trained on {low:.3g} to {high:.3g}"
        for service, name, value, (low, high) in known
        if not _inside(value, low, high)
    )[:SHOWN]
    score = (1 - SMOOTHING) * before.score + SMOOTHING * bool(outside)
    drifting = score > (LEAVE if before.drifting else ENTER)
    return Drift(score, drifting, outside or (before.outside if score > LEAVE else ()))


def _inside(value: float, low: float, high: float) -> bool:
    margin = MARGIN * max(high - low, abs(high), 1e-9)
    return low - margin <= value <= high + margin
