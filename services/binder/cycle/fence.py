"""The fence: a key in etcd whose mod_revision every transaction compares, so that they happen in the order they were
made in.

A transaction that got no answer may still be applied after it was looked up, until a later one moves the fence: then it
never is. Who must know that nothing given up before can come any more waits for that (``pass_by``): what is lent is
told only then, since a late intent could still claim the room.

    move, pass_by --> the next transaction goes, though nothing is to be written --applied--> moved, told
                                                      \\--no answer--> looked up: that one moved it, or the next does
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.ports import Compare, ModRevisionIs


class Fence:
    """It is one leader's; nobody else moves it. ``at``: its mod_revision, as far as is known."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.at = 0
        self.moves = False
        """Whether the next transaction writes it."""
        self.at_once = False
        """Whether the next goes though nothing is to be written."""
        self.passing: dict[str, None] = {}
        """Units that wait for what was given up before them."""

    def move(self) -> None:
        """Make a transaction that lets none of before come after it, of ours or that rests on what we lent."""
        self.moves = self.at_once = True

    def pass_by(self, key: str) -> None:
        """Tell when everything that was given up until now cannot come any more."""
        self.passing[key] = None
        self.at_once = True

    def take(self, *, given_up: bool) -> tuple[str, ...]:
        """Who is told by the next transaction; nobody while something that was ``given_up`` is not in it."""
        taken = () if given_up else tuple(self.passing)
        for key in taken:
            del self.passing[key]
        self.at_once = bool(self.passing)
        return taken

    def moved(self, revision: int) -> None:
        """A transaction that moves it was applied."""
        self.at, self.moves = revision, False

    def looked_up(self, found: int, passes: Iterable[str]) -> None:
        """What etcd holds after a transaction without an answer; whom that should have told waits for the next."""
        # Unmoved, it may come yet, or never: the next one moves it, and then its compare fails for good.
        self.moves = found == self.at
        self.at = found  # where it is another: that transaction was applied, and moved it
        # Nobody is told on an unknown outcome: what was given up before them may still be applied.
        self.passing = dict.fromkeys((*passes, *self.passing))
        self.at_once |= bool(self.passing)

    def compares(self) -> list[Compare]:
        """That no transaction made before this one is applied after one made later."""
        return [ModRevisionIs(self.key, self.at)]
