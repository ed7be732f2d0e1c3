"""Progress of long work on stderr: one line that is rewritten on a terminal, a line now and then elsewhere.

stdout stays free for what the command prints. It shows what it is told and refuses to know what the work is.
"""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Self

BAR_CELLS = 20
REDRAW_EVERY_S = 0.1
PLAIN_EVERY_S = 5.0


class RunProgress:
    """Context manager; call it as often as you like with (done, total, doing)."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._started_s = time.monotonic()
        self._shown_s = float("-inf")
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    def __call__(self, done: int, total: int, doing: str) -> None:
        """Show it when it is time, and the end always."""
        now_s = time.monotonic()
        every_s = REDRAW_EVERY_S if self._live else PLAIN_EVERY_S
        if self._quiet or (now_s - self._shown_s < every_s and done < total):
            return
        self._shown_s = now_s
        line = line_of(done, total, doing, elapsed_s=now_s - self._started_s)
        if self._live:
            width = shutil.get_terminal_size((100, 24)).columns - 1
            sys.stderr.write(f"\r\x1b[2K{line[:width]}")
            self._drawn = True
        else:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def line_of(done: int, total: int, doing: str, *, elapsed_s: float) -> str:
    """The bar, the count, the time spent and the time left if the rest is as fast as what is done."""
    share = min(max(done / total, 0.0), 1.0) if total > 0 else 0.0
    full = int(share * BAR_CELLS)
    left = "" if not 0 < done < total else f", about {_time(elapsed_s * (total - done) / done)} left"
    return f"[{'#' * full}{'.' * (BAR_CELLS - full)}] {done}/{total} after {_time(elapsed_s)}{left}  {doing}"


def _time(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60:02d} s" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    )
