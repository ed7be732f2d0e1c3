"""Past use of queues, halved every half-life, in integers: the same on every machine and after every restart.

What counts is the average use, weighted by 2^(-age / half-life): a queue that used an amount for ever has that amount
as its past, one that stopped a half-life ago has half of it. Kept in thousandths, and moved on in steps, at most every
1/64 of a half-life: between steps nothing changes, so the order of queues costs no look at the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt

from shared.scheduling.queues.nodes import QueueNode
from shared.wire.records import QueueHistoryRecord

SCALE = 1000
"""Past amounts are kept in thousandths."""

STEPS = 64
"""Past use is moved on at most so often per half-life, and at least a second apart."""

_BITS = 64
_ONE = 1 << _BITS
_PARTS = 10  # bits of a half-life's fraction: 1/1024


def _roots() -> list[int]:
    """2^(-1/2), 2^(-1/4), ... as fixed-point integers."""
    roots, value = [], _ONE >> 1
    for _ in range(_PARTS):
        value = isqrt(value << _BITS)
        roots.append(value)
    return roots


_ROOTS = _roots()


def remaining(elapsed_s: float, half_life_s: float) -> int:
    """2^(-elapsed / half-life) as a fixed-point integer of 64 bits behind the point; the time in 1/1024 half-lives."""
    steps = max(0, round(elapsed_s / half_life_s * (1 << _PARTS)))
    whole, parts = divmod(steps, 1 << _PARTS)
    if whole >= _BITS:
        return 0
    value = _ONE >> whole
    for bit, root in enumerate(_ROOTS):
        if parts >> (_PARTS - 1 - bit) & 1:
            value = value * root >> _BITS
    return value


class UsageHistory:
    """Past use of every queue with a half-life, by name and resource, in thousandths."""

    def __init__(self) -> None:
        self.past: dict[str, dict[str, int]] = {}
        self._moved_at: dict[str, float] = {}

    def advance(self, nodes: Mapping[str, QueueNode], now: float) -> bool:
        """Move on the queues whose step is due, as if what they use now was used since the last. True: some did.

        What is not a queue with a half-life any more has no past."""
        moved = False
        for name, node in nodes.items():
            half_life_s = node.queue.half_life_s
            if half_life_s is None:
                continue
            at = self._moved_at.setdefault(name, now)
            if now - at < max(1.0, half_life_s / STEPS):
                continue
            self._moved_at[name] = now
            self._move(name, node.used, remaining(now - at, half_life_s))
            moved = True
        for name in [name for name in self._moved_at if name not in nodes or nodes[name].queue.half_life_s is None]:
            del self._moved_at[name]
            self.past.pop(name, None)
        return moved

    def _move(self, name: str, used: Mapping[str, int], left: int) -> None:
        past = self.past.setdefault(name, {})
        for resource in {*past, *used}:
            target = used.get(resource, 0) * SCALE
            # Rounded: cut off, a use that rises would stop further below its target than one that falls stops above it.
            after = target + ((past.get(resource, 0) - target) * left + (_ONE >> 1) >> _BITS)
            if after > 0:
                past[resource] = after
            else:
                past.pop(resource, None)

    def load(self, past: Mapping[str, Mapping[str, int]], now: float) -> None:
        """Take over what an earlier leader kept (``decayed`` for the time in between)."""
        for name, amounts in past.items():
            self.past[name] = dict(amounts)
            self._moved_at[name] = now

    def record(self, term: int, time: int) -> QueueHistoryRecord:
        """What a later leader goes on with. ``time``: seconds since 1970."""
        # Copies: it is written later, and the sums go on changing.
        return QueueHistoryRecord(time=time, past={name: dict(past) for name, past in self.past.items()}, term=term)

    def resume(self, record: QueueHistoryRecord, half_lives: Mapping[str, float], time: int, now: float) -> None:
        """Go on from what an earlier leader wrote. In the time between, nobody counted: it only fades. Queues that
        count no past any more (``half_lives``, in seconds by name) are left out."""
        for name, amounts in record.past.items():
            if (half_life_s := half_lives.get(name)) is not None:
                # The record's time is by another host's clock: where that was ahead, past use must not grow.
                self.load({name: decayed(amounts, max(0, time - record.time), half_life_s)}, now)

    def count_in(self, nodes: Mapping[str, QueueNode]) -> None:
        """Tell each queue what its past counts as, in the resource's units."""
        for name, node in nodes.items():
            known = self.past.get(name) if node.queue.half_life_s is not None else None
            node.past = {resource: amount // SCALE for resource, amount in (known or {}).items()}


def decayed(amounts: Mapping[str, int], elapsed_s: float, half_life_s: float) -> dict[str, int]:
    """What is left of past amounts after a time in which nobody counted."""
    left = remaining(elapsed_s, half_life_s)
    return {name: after for name, amount in amounts.items() if (after := amount * left >> _BITS) > 0}
