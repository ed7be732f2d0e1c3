"""Somebody else writes what we write: found out, told, and answered so that nobody is short of replicas. Pure.

What is expected of a target is a set: what we wrote, and what it was before while the outcome of the write is unknown.
Anything else is somebody else's word: a hand on the scale, or a manifest with replicas that was applied.

    found --for GRACE_S nothing is written--> spec.foreignWriter correct: it counts as ours, and all is as ever
                                              hold, below need: risen over, and with that it is ours again
                                              hold, else: KEPT, nothing falls below it until a new go

A number below need takes replicas from those who use the service, so it is risen over either way; one above it costs
money alone, and may be there for a reason that only people know. A new go takes things as they are.

Who writes too few again and again (``LOOP``) is no hand that needs time, but a loop that applies a manifest: the third
such write in a while has no grace. Above need it has, or pods would come and go with each round.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from shared.model.controllers.autoscaler import ForeignWriter, Go

GRACE_S = 30.0
"""So long a number that somebody else wrote stands, whatever it is: who applies several things is done by then, and
whoever switches us off for what he is about to do has the time."""


LOOP, LOOP_S = 3, 600.0
"""So many writes within so long are a loop."""


class Earlier(Struct, frozen=True):
    """Writes of others that were found before. ``times``: how many; ``at``: when the last of them were, as many as a
    loop has but one."""

    times: int = 0
    at: tuple[float, ...] = ()

    def then(self, wall_s: float) -> Earlier:
        """With one more."""
        return Earlier(self.times + 1, (*self.at, wall_s)[1 - LOOP :])


NONE_EARLIER = Earlier()


class Foreign(Struct, frozen=True):
    """A write that was not ours. ``value``: what it set; ``go``: the operator's word that was in force; ``at_s``: when
    it was found, seconds since 1970; ``times``: how often such a write was found; ``kept``: it is a floor; ``loops``:
    it is one of many within a while."""

    value: int
    by: str
    go: Go
    at_s: float = 0.0
    times: int = 1
    kept: bool = False
    loops: bool = False

    def holds(self, allowed: int, wall_s: float) -> bool:
        """Whether nothing may be written yet over it; ``allowed``: what would be."""
        return self.stands(wall_s) and not (self.loops and allowed > self.value)

    def stands(self, wall_s: float) -> bool:
        """Whether its grace lasts. A clock that was set back ends it at the latest after as long again."""
        return abs(wall_s - self.at_s) < GRACE_S


class Expected(Struct, frozen=True):
    """What a target may show without anybody else having written it."""

    values: tuple[int, ...]


def seen(
    expected: Expected | None,
    shown: int,
    *,
    by: str,
    go: Go,
    before: Foreign | None,
    wall_s: float,
    earlier: Earlier = NONE_EARLIER,
) -> Foreign | None:
    """What is known of foreign writers after a reading. ``expected`` None: nothing was written by us yet, or not since
    ``before`` was found; ``earlier``: such writes, also those that are dealt with."""
    ours = expected is not None and shown in expected.values
    if before is not None and before.go == go:
        if ours or (expected is None and shown == before.value):
            return before  # the same write, seen again
        return found(shown, by or before.by, go, wall_s, earlier)
    if before is not None or expected is None or ours:
        return None  # nothing, or a new go
    return found(shown, by, go, wall_s, earlier)


def found(shown: int, by: str, go: Go, wall_s: float, earlier: Earlier) -> Foreign:
    """One more such write."""
    loops = len(earlier.at) >= LOOP - 1 and abs(wall_s - earlier.at[0]) <= LOOP_S
    return Foreign(shown, by, go, wall_s, earlier.times + 1, loops=loops)


def settled(found: Foreign, *, allowed: int, shown: int, answer: ForeignWriter, wall_s: float) -> Foreign | None:
    """What is left of it once a decision is made; None: the number is ours again. ``allowed``: what may be written."""
    if found.stands(wall_s):
        return found
    if answer is ForeignWriter.CORRECT or (max(allowed, shown) > found.value and not found.kept):
        return None
    return replace(found, kept=True)


def text(found: Foreign, answer: ForeignWriter, wall_s: float, *, off: bool = False) -> str:
    """What the operator is told. ``off``: what was set switches the service off (``bounds.off``)."""
    who = f" by {found.by!r}"[:80] if found.by else ""
    again = f" ({found.times} such writes so far)" if found.times > 1 else ""
    said = f"somebody else set {found.value}{who}{again}"
    remedy = "; take replicas out of what is applied, or let it ignore them" if found.times > 1 else ""
    if off:
        return f"{said}, which switches it off; scale it up by hand to switch it on"
    if found.stands(wall_s):
        then = (
            "then it is corrected" if answer is ForeignWriter.CORRECT else "then it is risen over where it is too few"
        )
        if found.loops:
            then += f"; too few are risen over at once after {LOOP - 1} such writes within {LOOP_S / 60:g} min"
        return f"{said}; it stands for {GRACE_S:g} s, {then}{remedy}"
    held = (
        "nothing falls below it until it is approved again (conclave autoscale approve)"
        " or with spec.foreignWriter: correct"
    )
    return f"{said}; {held}{remedy}"
