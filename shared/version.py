"""Which Conclave this is, and which others it works with. Pure.

Services of one major version understand each other (messages and records are only ever appended to); those of another
are refused before anything is exchanged. ``pyproject.toml`` says the same version; a test holds the two together.
"""

from __future__ import annotations

CONCLAVE_VERSION = "0.1.0"


def major_of(version: str) -> str:
    """The part that must agree; empty for a version that says nothing (a process from before versions were told)."""
    return version.partition(".")[0]


def compatible(one: str, other: str) -> bool:
    """Whether processes of these versions may work in one mesh. What says nothing is taken as it is."""
    return not one or not other or major_of(one) == major_of(other)
