"""Live progress of a demo: a table that redraws itself on a terminal, one line now and then elsewhere.

It shows what it is given and refuses to know where that comes from.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

PLAIN_EVERY_S = 2.0


@dataclass(slots=True)
class Snapshot:
    """What is shown. ``rate``: pods bound per second over the last seconds."""

    phase: str = "starting"
    elapsed_s: float = 0.0
    submitted: int = 0
    planned: int = 0
    pending: int = 0
    bound: int = 0
    running: int = 0
    finished: int = 0
    unschedulable: int = 0
    rate: float = 0.0
    leader: str = ""
    term: int = 0
    binder: str = ""
    agents: int = 0
    restarts: int = 0
    notes: list[str] = field(default_factory=list)


class Progress:
    """Context manager; call ``show`` as often as you like."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live: Live | None = None
        self._last_plain_s = 0.0
        self._noted = 0

    def __enter__(self) -> Self:
        if not self._quiet and sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        """Draw it, or print a line when there is no terminal and it is time."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(_table(snapshot))
            return
        for note in snapshot.notes[self._noted :]:
            print(f"[{snapshot.elapsed_s:6.1f} s] {note}", flush=True)
        self._noted = len(snapshot.notes)
        if time.monotonic() - self._last_plain_s >= PLAIN_EVERY_S:
            self._last_plain_s = time.monotonic()
            print(line_of(snapshot), flush=True)


def line_of(s: Snapshot) -> str:
    """One line with everything that matters."""
    return (
        f"[{s.elapsed_s:6.1f} s] {s.phase}: submitted {s.submitted}/{s.planned}, pending {s.pending}, bound {s.bound}, "
        f"running {s.running}, finished {s.finished}, unschedulable {s.unschedulable}, {s.rate:.0f} pods/s, "
        f"leader {s.leader or 'nobody'} (term {s.term}), agents {s.agents}, restarts {s.restarts}"
    )


def _table(s: Snapshot) -> Table:
    from rich.table import Table

    table = Table(title=f"conclave demo: {s.phase}, {s.elapsed_s:.0f} s", show_header=False, min_width=60)
    rows = (
        ("submitted", f"{s.submitted} of {s.planned}"),
        ("pending", str(s.pending)),
        ("bound", f"{s.bound} ({s.rate:.0f} pods/s)"),
        ("running", str(s.running)),
        ("finished", str(s.finished)),
        ("unschedulable", str(s.unschedulable)),
        ("coordinator", f"{s.leader or 'nobody leads'} (term {s.term})"),
        ("binder", s.binder or "nobody leads"),
        ("agents", str(s.agents)),
        ("restarts", str(s.restarts)),
    )
    for name, value in rows:
        table.add_row(name, value)
    for note in s.notes[-5:]:
        table.add_row("", note)
    return table
