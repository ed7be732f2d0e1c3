"""Past use of queues over a change of leaders: read once, gone on from when the queue is seen, kept for the next."""

from __future__ import annotations

from services.coordinator.core.state import CoordinatorState
from shared.wire.records import QueueHistoryRecord


class PastUse:
    """Carries past use over. What was read of a queue waits until its object is there: they come in any order."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self._kept: QueueHistoryRecord | None = None
        self._read_time, self._read_at = 0, 0.0

    def read(self, record: QueueHistoryRecord, time: int, now: float) -> None:
        """What an earlier leader kept; ``time``: seconds since 1970, ``now``: of the core's clock."""
        self._kept, self._read_time, self._read_at = record, time, now

    def resume(self) -> None:
        """Go on from what was kept of queues that are there by now."""
        kept, state = self._kept, self._state
        if kept is None or not kept.past:
            return
        found = {
            name: queue.half_life_s
            for name, queue in state.queues.queues.items()
            if queue.half_life_s is not None and name in kept.past
        }
        if not found:
            return
        time = self._read_time + round(state.now - self._read_at)
        state.queues.history.resume(kept, found, time, state.now)
        rest = {name: past for name, past in kept.past.items() if name not in found}
        self._kept = QueueHistoryRecord(time=kept.time, past=rest, term=kept.term)

    def record(self, time: int) -> QueueHistoryRecord | None:
        """What the next leader goes on with; None: nobody counts any past. What was read of queues that are not there
        is handed on as if it had been seen now: a definition that comes late loses nothing."""
        state = self._state
        made = state.queues.history.record(state.term, time)
        waiting = dict(self._kept.past) if self._kept is not None else {}
        past = {**waiting, **{name: amounts for name, amounts in made.past.items() if amounts}}
        return QueueHistoryRecord(time=time, past=past, term=state.term) if past else None
