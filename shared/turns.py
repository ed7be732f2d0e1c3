"""What the core of every leader is told and says beside what is its own: one turn of it is events in, instructions out.

Each core's ``events`` and ``instructions`` name them among theirs; ``shared/runtime/leader_shell.py`` sends and obeys
them.
"""

from __future__ import annotations

from msgspec import Struct


class Tick(Struct, frozen=True):
    """The time has come at which the core wanted to be asked again."""


class Log(Struct, frozen=True, gc=False):
    """A line for the operator: constant event name, facts as pairs. Texts of others in them are quoted or cut."""

    event: str
    facts: tuple[tuple[str, object], ...] = ()
    level: str = "info"


class Stop(Struct, frozen=True):
    """Somebody else leads, or must begin anew: end the term, and the process with it (exit code 3)."""

    reason: str
