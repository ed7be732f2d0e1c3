"""The scheduling unit: what is placed together, and the name of its way through the services."""

from __future__ import annotations

from dataclasses import dataclass

from shared.model.pod import Pod


def cause_id(term: int, unit: int) -> str:
    """The name of a unit's way, ``1a-3f``: the coordinator's term and the unit's number within it, in hex. The one
    form of it in every service's log, annotation, trace and event."""
    return f"{term:x}-{unit:x}"


@dataclass(slots=True)
class Unit:
    """A pod's attempt to be placed. ``number`` counts up within a coordinator's term and names it on the wire;
    ``since``: seconds of the coordinator's clock at which it was first seen, or woken last if no node took it
    before."""

    number: int
    pod: Pod
    since: float
