"""A screen that is redrawn in place; rich draws it, on the alternate screen, so that what was there comes back.

Where standard output is no terminal, or a dumb one, the same blocks are printed one after the other, with an empty line
between them. It leaves the terminal as it was, however the command ends.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.live import Live


class Screen:
    """``with Screen() as screen: screen.draw(lines)``."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.is_terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._live: Live | None = None
        self._drawn = 0

    def __enter__(self) -> Self:
        if self.is_terminal:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, force_terminal=True, color_system="standard", highlight=False)
            self._live = Live(
                console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def size(self) -> tuple[int, int]:
        """(columns, lines)."""
        found = shutil.get_terminal_size((100, 30))
        return found.columns, found.lines

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines instead of the last ones; what does not fit is cut."""
        if self._live is not None:
            from rich.text import Text

            text = Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop", end="")
            self._live.update(text, refresh=True)
        else:
            self._stream.write(("\n" if self._drawn else "") + "".join(f"{line}\n" for line in lines))
        self._drawn += 1
        self._stream.flush()
