"""A screen that is redrawn in place, without curses: three escape sequences that every terminal knows.

Where standard output is no terminal, or a dumb one, the same blocks are printed one after the other, with an empty line
between them. It leaves the terminal as it was, however the command ends.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TextIO

ENTER = "\x1b[?1049h\x1b[?25l"
"""The alternate screen, so that what was there comes back, and no cursor."""
LEAVE = "\x1b[?25h\x1b[?1049l"
HOME, TO_LINE_END, TO_SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"
_STYLED = re.compile(r"\x1b\[[0-9;]*m")


class Screen:
    """``with Screen() as screen: screen.draw(lines)``."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.is_terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = 0

    def __enter__(self) -> Self:
        if self.is_terminal:
            self._stream.write(ENTER)
            self._stream.flush()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self.is_terminal:
            self._stream.write(LEAVE)
            self._stream.flush()

    @property
    def size(self) -> tuple[int, int]:
        """(columns, lines)."""
        found = shutil.get_terminal_size((100, 30))
        return found.columns, found.lines

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines instead of the last ones."""
        if self.is_terminal:
            width, height = self.size
            self._stream.write(frame(lines, width, height))
        else:
            self._stream.write(("\n" if self._drawn else "") + "".join(f"{line}\n" for line in lines))
        self._drawn += 1
        self._stream.flush()


def frame(lines: Sequence[str], width: int, height: int) -> str:
    """What to write to a terminal of ``width`` x ``height``: from the top left, each line cut, the rest cleared."""
    fitting = [f"{cut(line, width)}{TO_LINE_END}" for line in lines[: max(height - 1, 1)]]
    return HOME + "\r\n".join(fitting) + "\r\n" + TO_SCREEN_END


def cut(line: str, width: int) -> str:
    """At most ``width`` characters of the line, styles not counted and closed."""
    if len(_STYLED.sub("", line)) <= width:
        return line
    kept, room, at = [], width, 0
    for found in _STYLED.finditer(line):
        text = line[at : found.start()][:room]
        kept += [text, found.group()]
        room, at = room - len(text), found.end()
    return "".join([*kept, line[at:][:room]])
