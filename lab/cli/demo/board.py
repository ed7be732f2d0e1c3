"""What the demo knows of the pods it submitted, from its own watch, and how it is shown while it runs.

The board is pure: changes in, counts and bindings out; ``now_s`` is passed in. It serves progress and recovery times
only: the figures of the report come from the audit file. Progress is a table that redraws itself on a terminal, one
line now and then elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from shared.kube import objects as api

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

PENDING, BOUND, RUNNING, FINISHED, UNSCHEDULABLE = "pending", "bound", "running", "finished", "unschedulable"
RATE_WINDOW_S = 3.0


@dataclass(frozen=True, slots=True)
class PlacedOnBoard:
    """A pod got its node: when it was submitted, when that was seen, and where."""

    submitted_s: float
    seen_s: float
    node: str


class PodBoard:
    """State per pod, by name: the demo's pods are in one namespace and names are its own."""

    def __init__(self) -> None:
        self._submitted_s: dict[str, float] = {}
        self._state: dict[str, str] = {}
        self._counts: dict[str, int] = dict.fromkeys((PENDING, BOUND, RUNNING, FINISHED, UNSCHEDULABLE), 0)
        self._recent: deque[float] = deque()
        self.changed_s = 0.0
        """When anything changed last."""

    def submitted(self, name: str, now_s: float) -> None:
        """The API server has taken the pod."""
        if name not in self._submitted_s:
            self._submitted_s[name] = now_s
            self._move(name, PENDING, now_s)

    def seen(self, pod: api.KubePod, now_s: float) -> PlacedOnBoard | None:
        """The pod as the watch shows it; the binding, the first time it has a node."""
        name = pod.metadata.name
        # The watch may be faster than the answer to our own POST.
        self.submitted(name, now_s)
        before = self._state[name]
        state = state_of(pod)
        if state == before:
            return None
        self._move(name, state, now_s)
        if before in (PENDING, UNSCHEDULABLE) and pod.spec.node_name:
            self._recent.append(now_s)
            return PlacedOnBoard(self._submitted_s[name], now_s, pod.spec.node_name)
        return None

    def gone(self, name: str, now_s: float) -> None:
        """The pod was deleted: it counts as finished."""
        if name in self._submitted_s:
            self._move(name, FINISHED, now_s)

    def _move(self, name: str, state: str, now_s: float) -> None:
        before = self._state.get(name)
        if before is not None:
            self._counts[before] -= 1
        self._state[name] = state
        self._counts[state] += 1
        self.changed_s = now_s

    def count(self, *states: str) -> int:
        """How many pods are in these states now."""
        return sum(self._counts[state] for state in states)

    @property
    def total(self) -> int:
        """Pods submitted so far."""
        return len(self._submitted_s)

    @property
    def placed(self) -> int:
        """Pods that have had a node."""
        return self.count(BOUND, RUNNING, FINISHED)

    def rate(self, now_s: float) -> float:
        """Pods bound per second over the last ``RATE_WINDOW_S``."""
        while self._recent and self._recent[0] < now_s - RATE_WINDOW_S:
            self._recent.popleft()
        return len(self._recent) / RATE_WINDOW_S


def state_of(pod: api.KubePod) -> str:
    """One of the five states."""
    if pod.status.phase in ("Succeeded", "Failed"):
        return FINISHED
    if pod.spec.node_name:
        return RUNNING if pod.status.phase == "Running" else BOUND
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return UNSCHEDULABLE
    return PENDING


PLAIN_EVERY_S = 2.0


class DemoProgress:
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

    def show(self, phase: str, elapsed_s: float, figures: Mapping[str, str], notes: Sequence[str]) -> None:
        """Draw it, or print a line when there is no terminal and it is time. ``notes``: all so far."""
        if self._quiet:
            return
        if self._live is not None:
            shown = (*figures.items(), *(("", note) for note in notes[-5:]))
            self._live.update(_table(f"conclave demo: {phase}, {elapsed_s:.0f} s", shown))
            return
        for note in notes[self._noted :]:
            print(f"[{elapsed_s:6.1f} s] {note}", flush=True)
        self._noted = len(notes)
        if time.monotonic() - self._last_plain_s >= PLAIN_EVERY_S:
            self._last_plain_s = time.monotonic()
            told = ", ".join(f"{name} {value}" for name, value in figures.items())
            print(f"[{elapsed_s:6.1f} s] {phase}{': ' if told else ''}{told}", flush=True)

    def draw(self, title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, plain: str) -> None:
        """Draw a table of several columns, or print ``plain`` when there is no terminal and it is time."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(_table(title, rows, head))
        elif time.monotonic() - self._last_plain_s >= PLAIN_EVERY_S:
            self._last_plain_s = time.monotonic()
            print(f"{title}: {plain}", flush=True)


def _table(title: str, rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> Table:
    from rich.table import Table

    table = Table(*head, title=title, show_header=bool(head), min_width=60)
    for row in rows:
        table.add_row(*row)
    return table
