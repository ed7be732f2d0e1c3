"""The scheduling unit: what is placed together."""

from __future__ import annotations

from msgspec import Struct

from shared.model.pod import Pod


class SchedulingUnit(Struct, frozen=True, gc=False):
    """One pod, or a gang of which at least ``min_member`` are committed or none.

    ``number`` counts up within a coordinator's term and identifies the unit on the wire; with the term it is the
    ``cause_id`` that every hop logs.
    """

    number: int
    pods: tuple[Pod, ...]
    min_member: int = 1

    def cause_id(self, term: int) -> str:
        """The id under which every service logs this unit."""
        return f"{term:x}-{self.number:x}"
