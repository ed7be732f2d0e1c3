"""What every leader runs on: the shell of one term (``leading.py``: what terms come from).

    post -> inbox -> turn: do we still lead? --> core.handle(events, now) --> instructions, carried out in order
              ^                                                                   |
              +---- the core's next deadline, what became of background tasks <---+

Everything that arrived since the last turn of the loop is one batch, so a lone event is handled at once and a burst
costs one pass. Leadership is asked for by the clock before each turn; on doubt nothing more goes out. The shell decides
nothing; the core does.
"""

from __future__ import annotations

import asyncio
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import structlog
from msgspec import Struct

from shared.errors import LeadershipLost
from shared.ports import Clock
from shared.turns import Log, Stop, Tick

E = TypeVar("E")
I = TypeVar("I")  # noqa: E741  the counterpart of E: instructions

log = structlog.get_logger()


class Validity(Protocol):
    """What a leader is asked before each turn, and before each write that no transaction fences (``Leadership``)."""

    def is_valid(self, now: float | None = None) -> bool:
        """Whether this process may act as leader now."""
        ...


class Turn(Struct, frozen=True, gc=False):
    """What one turn took. ``waited_s``: from the post that asked for it; ``cpu_s``: of this thread."""

    ended: float
    events: int
    waited_s: float
    took_s: float
    cpu_s: float


class LeaderShell(ABC, Generic[E, I]):
    """One term's shell. ``run`` lasts until the term ends, by an error.

    ``handle`` is the core's, which is told a ``Tick`` when the time of ``wake_at`` has come; ``term`` is on each line
    that it logs; a turn takes ``most_events`` at most. ``leadership`` None: no other process may act in our place.
    """

    def __init__(
        self,
        handle: Callable[[Sequence[E], float], Iterable[I]],
        clock: Clock,
        leadership: Validity | None,
        *,
        term: int = 0,
        most_events: int = sys.maxsize,
    ) -> None:
        self.log = log.bind(term=term)
        self._handle = handle
        self._clock = clock
        self._leadership = leadership
        self._most_events = most_events
        self._inbox: list[E] = []
        self._turning = False
        self._posted_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[None] | None = None

    @abstractmethod
    def carry_out(self, instruction: I) -> None:
        """Do it, or ``start`` what does it; an error ends the term. ``Log`` and ``Stop`` are carried out here."""

    def turned(self, turn: Turn) -> None:
        """After each turn."""

    def post(self, events: Iterable[E]) -> None:
        """Events for the next turn of the loop."""
        self._inbox.extend(events)
        if self._inbox and not self._turning:
            self._turning, self._posted_at = True, self._clock()
            asyncio.get_running_loop().call_soon(self._turn)

    def post_one(self, event: E) -> None:
        """One event for the next turn of the loop."""
        self.post((event,))

    def hold(self) -> None:
        """Take no turn before ``resume``: what is posted meanwhile waits."""
        self._turning = True

    def resume(self, first: E) -> None:
        """Go on with ``first``, then with what was posted meanwhile."""
        self._inbox.insert(0, first)
        self._turning = False
        self.post(())

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside everything else; its error ends the term."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def wake_at(self, at: float | None) -> None:
        """Post the tick at this time of the clock instead of any earlier request; None: not at all."""
        if at == self._timer_at:
            return
        self._timer_at = at
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at - self._clock()), self._due)

    @property
    def over(self) -> bool:
        """Whether the term has ended."""
        return self._ended is not None and self._ended.done()

    def end(self, error: BaseException) -> None:
        """End the term with this error, unless it has ended already."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    async def run(self) -> None:
        """Eternal; raises what ends the term: ``LeadershipLost``, ``StoreFenced``, or a bug's error."""
        self._ended = asyncio.get_running_loop().create_future()
        self.post(())  # what came before
        try:
            await self._ended
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()

    def _turn(self) -> None:
        self._turning = False
        if self._ended is None or self._ended.done():
            return
        if self._leadership is not None and not self._leadership.is_valid():
            self.end(LeadershipLost("the lease may have ended"))
            return
        events, self._inbox = self._inbox[: self._most_events], self._inbox[self._most_events :]
        began, began_cpu_s = self._clock(), time.thread_time()
        try:
            for instruction in self._handle(events, began):
                match instruction:
                    case Log():
                        getattr(self.log, instruction.level)(instruction.event, **dict(instruction.facts))
                    case Stop():
                        self.end(LeadershipLost(instruction.reason))
                    case _:
                        self.carry_out(instruction)
            ended = self._clock()
            self.turned(
                Turn(ended, len(events), began - self._posted_at, ended - began, time.thread_time() - began_cpu_s)
            )
        except Exception as error:  # noqa: BLE001  the shell's one guard: it ends the term with this error
            self.end(error)
            return
        self.post(())  # the rest of a large batch, after whatever else waits for the loop

    def _due(self) -> None:
        self._timer_at = None
        self.post_one(Tick())  # type: ignore[arg-type]  # among the events of every core that asks for a time

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.end(error)
