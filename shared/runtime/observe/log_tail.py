"""The last lines of this process's log, for dumps: a bounded ring beside the log itself.

It sees lines as they are written, after secrets and long values were cut, and changes nothing. It refuses to keep more
than ``LINES`` lines of ``LINE_CHARS``.
"""

from __future__ import annotations

from collections import deque

LINES = 500
LINE_CHARS = 2048


class LogTail:
    """Keeps what was written last."""

    def __init__(self, lines: int = LINES) -> None:
        self._lines: deque[str] = deque(maxlen=lines)

    def keep(self, line: str) -> None:
        """One rendered line."""
        self._lines.append(line[:LINE_CHARS])

    def lines(self) -> list[str]:
        """Oldest first."""
        return list(self._lines)
