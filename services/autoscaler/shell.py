"""What a leading autoscaler does about its core's instructions; inbox, turns and timer are ``LeaderShell``'s."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from services.autoscaler.core.core import AutoscalerCore
from services.autoscaler.core.events import Event
from services.autoscaler.core.instructions import (
    Announce,
    CommitRecord,
    Forget,
    Instruction,
    ReadRound,
    Sweep,
    TellStatus,
    Write,
)
from services.autoscaler.io.reads import Reads
from services.autoscaler.io.writes import ApiWrites, StoreWrites
from shared.errors import InvalidState
from shared.ports import Clock
from shared.runtime.leader_shell import LeaderShell, Turn, Validity
from shared.runtime.observe.metrics import ReservoirQuantiles


class ScalerShell(LeaderShell[Event, Instruction]):
    """One term's shell. ``run`` lasts until the term ends, by an error."""

    def __init__(
        self,
        core: AutoscalerCore,
        *,
        clock: Clock,
        leadership: Validity | None,
        validate: bool = False,
        turn_ms: ReservoirQuantiles | None = None,
    ) -> None:
        super().__init__(self._handle_all, clock, leadership, term=core.state.term)
        self.core = core
        self.draining = False
        self._validate = validate
        self._turn_ms = turn_ms
        self._idle = asyncio.Event()
        self._reads: Reads | None = None
        self._store_writes: StoreWrites | None = None
        self._api_writes: ApiWrites | None = None

    def connect(self, reads: Reads, store_writes: StoreWrites, api_writes: ApiWrites) -> None:
        """What carries instructions out; they post to this shell, so they come after it."""
        self._reads, self._store_writes, self._api_writes = reads, store_writes, api_writes

    def silences(self) -> Mapping[str, float]:
        """How long each kind's watch has said nothing."""
        return self._reads.silences() if self._reads is not None else {}

    def _handle_all(self, events: Sequence[Event], now: float) -> list[Instruction]:
        out = self.core.handle_all(events, now)
        if self._validate and (broken := self.core.validate()):
            raise InvalidState(broken)
        return out

    async def drain(self) -> None:
        """Begin nothing more; return when what was decided is written."""
        self.draining = True
        while self.core.busy and not self.over:
            self._idle.clear()
            await self._idle.wait()

    def turned(self, turn: Turn) -> None:
        """Ask for the core's next deadline."""
        if self._turn_ms is not None:
            self._turn_ms.record(turn.took_s * 1000)
        self.wake_at(None if self.draining else self.core.wake_at())
        if self.draining and not self.core.busy:
            self._idle.set()

    def end(self, error: BaseException) -> None:
        """End the term with this error; nobody drains it any more."""
        super().end(error)
        self._idle.set()

    def carry_out(self, instruction: Instruction) -> None:
        """Each call runs beside the others and ends in an event."""
        assert self._reads is not None, "connected first"
        assert self._store_writes is not None, "connected first"
        assert self._api_writes is not None, "connected first"
        match instruction:
            case ReadRound():
                if not self.draining:
                    self.start(self._round(instruction))
            case CommitRecord():
                self.start(self._store_writes.commit(instruction))
            case Write():
                self.start(self._api_writes.write(instruction))
            case TellStatus():
                self.start(self._api_writes.tell(instruction))
            case Announce():
                self.start(self._api_writes.announce(instruction))
            case Forget():
                self.start(self._store_writes.forget(instruction))
            case Sweep():
                self.start(self._store_writes.sweep(instruction))

    async def _round(self, work: ReadRound) -> None:
        assert self._reads is not None, "connected first"
        self.post_one(await self._reads.round(work))
