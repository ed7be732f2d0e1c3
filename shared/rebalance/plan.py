"""A plan of moves as people and machines read it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class GoalName(StrEnum):
    """What a cluster is to come nearer to."""

    LOAD = "load"
    FRAGMENTATION = "fragmentation"
    EMPTY_NODES = "empty-nodes"
    LATENCY = "latency"
    UNBLOCK = "unblock"


class Move(Struct, frozen=True):
    """One pod from ``source`` to ``target``. ``gain``: by how much the goal comes nearer; ``batch``: from 1;
    ``disturbs``: whose budgets it takes from, and the workload; ``after``: keys of pods that have to leave first;
    ``why``: why it is in this batch; ``group``: moves that win nothing unless all of them are made, "" none."""

    uid: str
    namespace: str
    name: str
    workload: str
    source: str
    target: str
    gain: float
    batch: int
    disturbs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    why: str = ""
    group: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def step(self) -> str:
        """Tells this move from another of the same pod."""
        return f"{self.uid}/{self.batch}"


class LeftOut(Struct, frozen=True):
    """A move that was wanted and is not made."""

    pod: str
    source: str
    target: str
    why: str


class MovePlan(Struct, frozen=True):
    """``before`` and ``after``: the goal's measure (less is nearer) in ``unit``. ``stopped``: why there is no further
    move. ``protected``: how many pods each protection holds. ``notes``: what was not known, and what else is to say."""

    goal: str
    unit: str
    before: float
    after: float
    moves: tuple[Move, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    stopped: str = ""
    protected: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()
    """Nodes that nothing but DaemonSets stands on afterwards, and did before."""
    unblocked: dict[str, str] = {}
    """Of the unit that had no room: where each member has it afterwards."""

    @property
    def batches(self) -> list[tuple[Move, ...]]:
        """The moves, batch by batch."""
        count = max((move.batch for move in self.moves), default=0)
        return [tuple(move for move in self.moves if move.batch == number) for number in range(1, count + 1)]
