"""Kills on a schedule, and the judgement of whether the mesh recovered from them.

Pure: ``--kill leader@5`` is parsed here, and a ``Recovery`` per kill is fed with what the demo saw. A kill has
recovered when the killed place is filled again (its process, or etcd, is back and ready) and a bind that needed it was
seen:

- of a pod created after the kill, or any bind after another authority had taken over (a new term, a new incarnation of
  the agent, etcd answering again), which the dead process cannot have caused;
- for an agent, such a bind on one of the nodes that were its own, or any of a pod created after the kill once it is
  back: nobody may want its nodes just now.

``recovery_s`` is the time from the kill to that bind. It refuses to call a kill recovered that did not happen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from shared.errors import ConfigError

VICTIMS = ("leader", "agent", "binder", "etcd")
MAX_KILLS = 1000


@dataclass(frozen=True, slots=True, order=True)
class Kill:
    """SIGKILL to ``victim``, ``at_s`` seconds after the first pod was submitted (real seconds)."""

    at_s: float
    victim: str


def parse_kill(text: str) -> Kill:
    """``leader@5`` as a Kill. ``ConfigError`` names the flag and the remedy."""
    victim, at, seconds = text.partition("@")
    try:
        at_s = float(seconds)
    except ValueError:
        at_s = math.nan
    if victim not in VICTIMS or not at or not (0 <= at_s < 86_400):
        raise ConfigError(f"--kill: {text[:64]!r} is not {'|'.join(VICTIMS)}@SECONDS, such as leader@5")
    return Kill(at_s, victim)


def schedule(texts: tuple[str, ...]) -> list[Kill]:
    """All kills in the order of their times. ``ConfigError``: one is malformed, or there are too many."""
    if len(texts) > MAX_KILLS:
        raise ConfigError(f"--kill: {len(texts)} kills; give at most {MAX_KILLS}")
    return sorted(parse_kill(text) for text in texts)


@dataclass(slots=True)
class Recovery:
    """One kill and what followed. Times are seconds of one monotonic clock; None: not yet."""

    kill: Kill
    process: str = ""
    nodes: frozenset[str] = field(default_factory=frozenset)
    killed_s: float | None = None
    turned_s: float | None = None
    back_s: float | None = None
    bound_s: float | None = None
    error: str = ""

    def happened(self, now_s: float, process: str, nodes: frozenset[str] = frozenset()) -> None:
        """The process was killed; ``nodes`` were an agent's own."""
        self.killed_s, self.process, self.nodes = now_s, process, nodes

    def failed(self, why: str) -> None:
        """There was nothing to kill."""
        self.error = why

    def turned(self, now_s: float) -> None:
        """Another authority than the killed one has taken over."""
        if self.killed_s is not None and self.turned_s is None:
            self.turned_s = now_s

    def back(self, now_s: float) -> None:
        """The killed place is filled and ready again."""
        if self.killed_s is not None and self.back_s is None:
            self.back_s = now_s

    def bound(self, now_s: float, created_s: float, node: str) -> None:
        """A pod was bound to ``node`` at ``now_s``; it had been created at ``created_s``."""
        if self.killed_s is None or self.bound_s is not None or now_s <= self.killed_s:
            return
        new_pod = created_s > self.killed_s
        after_turn = self.turned_s is not None and now_s >= self.turned_s
        if self.kill.victim == "agent" and node not in self.nodes:
            needed = new_pod and self.back_s is not None and now_s >= self.back_s
        else:
            needed = new_pod or after_turn
        if needed:
            self.bound_s = now_s

    @property
    def done(self) -> bool:
        """Whether the kill happened and the mesh recovered from it."""
        return self.bound_s is not None and self.back_s is not None

    def to_json(self) -> dict[str, Any]:
        """For the demo's JSON; ``recovery_s`` None: not recovered."""
        recovery = self.bound_s - self.killed_s if self.done and self.bound_s and self.killed_s is not None else None
        back = self.back_s - self.killed_s if self.back_s is not None and self.killed_s is not None else None
        return {
            "victim": self.kill.victim,
            "at_s": self.kill.at_s,
            "process": self.process,
            "killed": self.killed_s is not None,
            "recovery_s": None if recovery is None else round(recovery, 3),
            "back_s": None if back is None else round(back, 3),
            **({"error": self.error} if self.error else {}),
        }
