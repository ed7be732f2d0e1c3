"""What a policy is that keeps a memory: it is shown a moment, and says what it wants. Pure."""

from __future__ import annotations

from typing import Protocol, TypeVar

Seen_contra = TypeVar("Seen_contra", contravariant=True)
Decision_co = TypeVar("Decision_co", covariant=True)


class MemoryPolicy(Protocol[Seen_contra, Decision_co]):
    """Decides about all of a domain at once. Bounds are checked by whoever asked, not trusted to the policy."""

    name: str

    def reset(self, seed: int) -> None:
        """Begin anew: nothing is remembered, all draws follow from ``seed``."""
        ...

    def decide(self, seen: Seen_contra) -> Decision_co:
        """What it wants now."""
        ...
