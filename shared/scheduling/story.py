"""What happened to each pod in this term, in order: what was heard of it, where it moved and why, what was asked for.

Why: an invariant that breaks says where a pod is, never how it came there. A core writes one line per event, move and
instruction of a pod; ``of`` picks one pod's lines out again, for ``conclave explain --story``, for the text of an
``InvalidTransition`` and for a failing test. (dask's worker state machine does the same.)

Limits: one bounded ring per core, so the oldest lines go first, whoever they are about. A line costs one call; its
text is made when it is read. All lines lie flat in one row: as a tuple each, all of them were what the garbage
collector had to visit, up to 125 ms in a turn; it came seldom, as each new tuple replaced an old one, and late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

STORY_LINES = 16_384
"""Lines kept: some 4 MiB; eight to ten tell of a pod that is placed at once."""

_WIDTH = 9
"""A line's: its time, its pod, its text, six facts."""

FACT_CHARS = 160
"""Writers of a line cut a message to this."""

Fact = str | int | float | Enum | type
"""What a line is made with; of an enum its value is told, of a type its name."""


class Story:
    """The lines of one core. ``now``: seconds of the core's clock, set by the core at each turn."""

    __slots__ = ("_flat", "now")

    def __init__(self, size: int = STORY_LINES) -> None:
        self.now = 0.0
        self._flat: deque[Any] = deque(maxlen=size * _WIDTH)

    def add(
        self, uid: str, text: str, a: Fact = "", b: Fact = "", c: Fact = "", d: Fact = "", e: Fact = "", f: Fact = ""
    ) -> None:
        """One line about a pod; ``text`` is a format string for as many facts as it names, used when somebody reads
        it."""
        self._flat.extend((self.now, uid, text, a, b, c, d, e, f))

    def of(self, uid: str, group: str = "") -> list[tuple[float, str]]:
        """(seconds of the core's clock, text) of every line about the pod that is still kept, oldest first.

        ``group``: the key of the one it belongs to, under which stands what happened to all members at once."""
        told = {uid, group}
        return [(at, text.format(*map(_shown, facts))) for at, of, text, *facts in self._all() if of in told]

    def lines(self, uid: str, group: str = "") -> list[str]:
        """The same as text, for people; times in seconds of the core's clock."""
        return [f"{at:.3f} s  {text}" for at, text in self.of(uid, group)]

    def told(self, problems: Sequence[str]) -> list[str]:
        """The problems, each pod that they name followed by its lines."""
        uids = dict.fromkeys(uid for _, uid, *_ in self._all())
        named = [uid for uid in uids if any(uid in problem for problem in problems)]
        return [*problems, *(f"{uid}: {line}" for uid in named for line in self.lines(uid))]

    def _all(self) -> Iterator[tuple[Any, ...]]:
        parts = iter(self._flat)
        return zip(*[parts] * _WIDTH, strict=True)


def _shown(fact: Fact) -> Fact:
    return fact.value if isinstance(fact, Enum) else fact.__name__ if isinstance(fact, type) else fact
