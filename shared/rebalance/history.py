"""What was moved before, so that nobody moves twice within a time, nor back to where its workload was moved from."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from shared.errors import ConfigError

MOST = 2000
"""Moves that are remembered, the newest."""


class PastMove(Struct, frozen=True):
    """``uid``: of the pod that came in the place of the one that left ``source`` at ``at_s`` (seconds since 1970); ""
    where it was not seen to come (yet); ``run``: who moved it, and may correct this."""

    workload: str
    source: str
    target: str
    at_s: float
    uid: str = ""
    run: str = ""


class MoveHistory(Struct, frozen=True):
    """``again_after_s``: for so long a pod that came by a move stays, and its workload goes not back."""

    moves: tuple[PastMove, ...] = ()
    again_after_s: float = 3600.0

    def moved_lately(self, now: float) -> frozenset[str]:
        """Uids of pods that came by a move."""
        return frozenset(one.uid for one in self.moves if one.uid and self._young(one, now))

    def closed(self, now: float) -> dict[str, frozenset[str]]:
        """By workload the nodes that pods of it were moved away from lately."""
        found: dict[str, set[str]] = {}
        for one in self.moves:
            if self._young(one, now):
                found.setdefault(one.workload, set()).add(one.source)
        return {workload: frozenset(nodes) for workload, nodes in found.items()}

    def within(self, seconds: float, now: float) -> int:
        """Moves of the last so many seconds."""
        return sum(now - one.at_s < seconds for one in self.moves)

    def after(self, moves: Iterable[PastMove]) -> MoveHistory:
        """With these made since, and what is too much forgotten."""
        return msgspec.structs.replace(self, moves=(*self.moves, *moves)[-MOST:])

    def _young(self, one: PastMove, now: float) -> bool:
        return now - one.at_s < self.again_after_s


def encode_moves(history: MoveHistory) -> str:
    """As text, to be kept in the cluster."""
    return msgspec.json.encode(history.moves).decode()


def decode_moves(text: str, where: str) -> tuple[PastMove, ...]:
    """The moves that ``encode_moves`` wrote. ``ConfigError``: it did not, as ``where`` names it."""
    try:
        return msgspec.json.decode(text or "[]", type=tuple[PastMove, ...])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}; delete it: the next run begins another history") from None
