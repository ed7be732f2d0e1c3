"""Replicas by demand: what each service needs for what would come to it, within what the cluster has. A plain rule.

The learned policy begins by imitating it, and it is a baseline to compare with. In turn:

1. wanted = demand * ``HEADROOM`` / per_replica, and enough more to answer what waits within ``DRAIN_S``;
2. down only when the most wanted in the last ``HOLD_S`` is lower (a window as HPA's, shorter);
3. for replicas that are stuck others are asked for, and then, or before where there is no room, they are given up;
4. while pods are pending, and for ``TIGHT_S`` after, there is no room: the cores that there are then go replica by
   replica to the service that has the least of its need, so that none is short for what another has to spare.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import ceil
from typing import Annotated

from msgspec import Meta, Struct

from shared.autoscaling.networks.signals import ServiceSignals, SignalReader
from shared.autoscaling.observation import LOAD, Decision, ScalingObservation

HEADROOM, SPARE, DRAIN_S, HOLD_S = 1.5, 0.5, 20.0, 90.0
TIGHT_S = 60.0
"""How long after a pod was pending there is taken to be no more room than there was."""
ROUNDING = 0.05
"""So much of a replica may be missing."""


class DemandSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How careful it is."""

    headroom: Annotated[float, Meta(ge=1, le=10)] = HEADROOM
    """Replicas over what the demand takes exactly, as a factor."""
    spare: Annotated[float, Meta(ge=0, le=10)] = SPARE
    """Replicas beside, for those that may fail."""
    hold_s: Annotated[float, Meta(ge=0, le=3600)] = HOLD_S
    """Seconds for which the most wanted is kept."""


class DemandPolicy:
    """See the module. It keeps what it wanted lately, per service."""

    name = "demand"
    Settings = DemandSettings

    def __init__(self, settings: DemandSettings = DemandSettings()) -> None:  # noqa: B008 - frozen
        self._headroom, self._spare, self._hold_s = settings.headroom, settings.spare, settings.hold_s
        self._reader = SignalReader()
        self._wanted: dict[str, deque[tuple[float, int]]] = {}
        self._tight_until, self._room = -1.0, 0.0
        self.tight = False
        """Whether there is taken to be no more room."""

    def reset(self, seed: int) -> None:  # noqa: ARG002
        """Forget everything; it draws nothing."""
        self._reader.reset()
        self._wanted.clear()
        self._tight_until, self._room = -1.0, 0.0

    def needs(self, service: str) -> frozenset[str]:  # noqa: ARG002 - the protocol's
        """Without these it knows neither the load nor what a replica can answer."""
        return LOAD

    def decide(self, seen: ScalingObservation) -> Decision:
        """What it wants now."""
        return self.wanted(self._reader.read(seen), seen.now)

    def wanted(self, signals: Mapping[str, ServiceSignals], now: float) -> dict[str, int]:
        """The same for signals that somebody else has read."""
        targets = {name: self._target(name, one, now) for name, one in signals.items()}
        placed = sum((one.ready + one.unready) * one.cores for one in signals.values())
        if any(one.pending for one in signals.values()):
            self._tight_until, self._room = now + TIGHT_S, placed
        self.tight = now < self._tight_until
        if self.tight:
            self._room = max(self._room, placed)
            targets = _within_room(signals, targets, self._room)
        return {name: _replaced(one, targets[name], tight=self.tight) for name, one in signals.items()}

    def _target(self, name: str, one: ServiceSignals, now: float) -> int:
        if one.per_replica <= 0:
            return one.replicas
        exact = one.needed * self._headroom + self._spare + one.waiting_s * one.ready / DRAIN_S
        kept = self._wanted.setdefault(name, deque())
        kept.append((now, min(max(ceil(exact - ROUNDING), one.minimum), one.maximum)))
        while len(kept) > 1 and kept[0][0] <= now - self._hold_s:
            kept.popleft()
        return max(wanted for _, wanted in kept)


def _replaced(one: ServiceSignals, target: int, *, tight: bool) -> int:
    """The replicas to ask for so that ``target`` of them work, though some are stuck: more beside them where there is
    room, else fewer first, for those that are not Ready go before the others. Blind, it takes nothing away."""
    if one.missing:
        return max(target, one.replicas)
    if not one.stuck:
        return target
    beside, without = min(target + one.stuck, one.maximum), max(min(target, one.replicas - one.stuck), one.minimum)
    if one.replicas - one.stuck - one.pending >= target:
        return without
    roomy = target + one.stuck <= one.maximum and not tight
    return beside if roomy or without == one.replicas else without


def _within_room(signals: Mapping[str, ServiceSignals], targets: Mapping[str, int], room: float) -> dict[str, int]:
    """As much of the targets as fits into so many cores: replica by replica to the service that has the least of its
    need, until nothing more fits."""
    found = {name: max(one.minimum, 1) for name, one in signals.items()}
    left = room - sum(count * signals[name].cores for name, count in found.items())
    while True:
        short = [name for name, count in found.items() if count < targets[name] and signals[name].cores <= left + 1e-9]
        if not short:
            return found
        least = min(short, key=lambda name: found[name] / max(signals[name].needed, 1e-9))
        found[least] += 1
        left -= signals[least].cores
