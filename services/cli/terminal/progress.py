"""Progress of long work on stderr: rich's bar with a clock that goes on on a terminal, a line now and then elsewhere.

stdout stays free for what the command prints. It shows what it is told and does not know what the work is.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress

BAR_CELLS = 20
PLAIN_EVERY_S = 5.0


class RunProgress:
    """Context manager; call it as often as you like with (done, total, doing)."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar: Progress | None = None
        self._started_s = time.monotonic()
        self._shown_s = float("-inf")

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            doing = TextColumn("{task.description}", markup=False)
            columns = (BarColumn(BAR_CELLS), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), doing)
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("", total=None)
            self._bar.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int, doing: str) -> None:
        """Show it when it is time, and the end always."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total, description=doing)
            return
        now_s = time.monotonic()
        if self._quiet or (now_s - self._shown_s < PLAIN_EVERY_S and done < total):
            return
        self._shown_s = now_s
        print(line_of(done, total, doing, elapsed_s=now_s - self._started_s), file=sys.stderr, flush=True)


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
