"""What a leading jobs service does about its core's instructions; inbox, turns and timer are ``LeaderShell``'s."""

from __future__ import annotations

from services.jobs.core.core import JobsCore
from services.jobs.core.events import Event
from services.jobs.core.instructions import (
    CreateObject,
    DeleteObject,
    Instruction,
    PatchMinimum,
    TellEvent,
    WriteRollout,
    WriteStatus,
)
from services.jobs.io.rollouts import Rollouts
from services.jobs.io.writes import ObjectWrites
from shared.ports import Clock, KubeApi
from shared.runtime.leader_shell import LeaderShell, Turn, Validity

EVENTS_PER_TURN = 512


class JobsShell(LeaderShell[Event, Instruction]):
    """One term's shell. ``run`` lasts until the term ends, by an error."""

    def __init__(
        self, core: JobsCore, *, api: KubeApi, leadership: Validity, clock: Clock, instance: str,
        rollouts: Rollouts | None = None,
    ) -> None:  # fmt: skip
        super().__init__(core.handle_all, clock, leadership, term=core.state.term, most_events=EVENTS_PER_TURN)
        self.core = core
        self._rollouts = rollouts
        self.writes = ObjectWrites(api, self.post_one, self.start, leadership=leadership, instance=instance)

    def turned(self, turn: Turn) -> None:  # noqa: ARG002
        """Ask for the core's next deadline."""
        self.wake_at(self.core.wake_at)

    def carry_out(self, instruction: Instruction) -> None:
        """Each call runs beside the others and ends in an event."""
        match instruction:
            case WriteRollout():
                if self._rollouts is not None:
                    self.start(self._rollouts.write(instruction))
            case TellEvent():
                self.writes.tell(instruction)
            case CreateObject() | DeleteObject() | PatchMinimum() | WriteStatus():
                self.writes.submit(instruction)
