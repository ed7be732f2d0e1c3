"""A queue as the scheduler sees it: a share of the cluster that scheduling units wait for, in a tree of queues.

Not the scheduling queue (``shared/scheduling/queue.py``), which holds the pending pods. Amounts are in the model's
units (``shared/model/resources.py``); a resource that a limit does not name is not limited by it.
"""

from __future__ import annotations

from enum import Enum
from fractions import Fraction

from msgspec import Struct

QUEUE_LABEL = "conclave.io/queue"
"""On a pod or a pod group: the name of its queue; without it the queue that its namespace is bound to decides."""

MAX_DEPTH = 4
"""Levels of the tree, the top included."""


class UnitOrder(Enum):
    """Which unit of one queue comes first."""

    PRIORITY = "Priority"
    """The highest priority, then the first to arrive; what a quota holds back lets others pass."""
    FIFO = "FIFO"
    """The first to arrive; where a quota holds it back, those behind it in its queue wait too."""


class QueueStrategy(Enum):
    """Which of a queue's children comes first, once each has what it is guaranteed."""

    DRF = "DRF"
    """The lowest dominant share divided by its weight (NSDI 2011)."""
    FAIR = "WeightedFairShare"
    """The lowest share of what it borrowed, divided by its weight."""


class ReclaimUpTo(Enum):
    """How much a queue may take back by eviction."""

    GUARANTEED = "Guaranteed"
    """What it is guaranteed, from those that borrowed it."""
    FAIR_SHARE = "FairShare"
    """Beyond that, from those whose share of the borrowed is larger than its own would be."""


class QueueCondition(Struct, frozen=True, gc=False):
    """One condition of a Queue's status; ``status`` is True or False."""

    type: str
    status: str
    reason: str
    message: str


class QueueStatus(Struct, frozen=True, gc=False):
    """What a Queue's status says: units that wait (``pending``) or that a quota holds back (``held``), and what its
    pods use, in quantities as people write them."""

    conditions: tuple[QueueCondition, ...] = ()
    used: dict[str, str] = {}
    pending: int = 0
    held: int = 0
    generation: int = 0


class Queue(Struct, frozen=True, gc=False):
    """One Queue object at one generation.

    ``parent`` "": below the root. ``guaranteed``: nominal quota, ``maximum``: never more, ``borrowing``: at most so
    much above what is guaranteed, ``lending``: at most so much of what is guaranteed goes to others; None: no such
    limit. ``reclaim``: what was borrowed from it is taken back by eviction, after ``reclaim_after_s``, from pods that
    have run for ``min_run_s`` (of the borrower), as far as ``reclaim_up_to`` says. ``preempts_within``: where its own
    limit holds back a unit, pods of lower priority in the same queue make room. ``half_life_s``: past use counts,
    halved every so many seconds; None: it does not. ``problem``: why it cannot be used as it is written; its units wait
    and are told so. ``written``: its status as last seen, so that an unchanged one costs no write; ``times``: since
    when each of its conditions is as it is.
    """

    name: str
    parent: str = ""
    weight: Fraction = Fraction(1)
    order: UnitOrder = UnitOrder.PRIORITY
    strategy: QueueStrategy = QueueStrategy.DRF
    namespaces: tuple[str, ...] = ()
    guaranteed: dict[str, int] = {}
    maximum: dict[str, int] = {}
    borrowing: dict[str, int] | None = None
    lending: dict[str, int] | None = None
    reclaim: bool = False
    reclaim_after_s: float = 0.0
    reclaim_up_to: ReclaimUpTo = ReclaimUpTo.GUARANTEED
    preempts_within: bool = False
    min_run_s: float = 0.0
    half_life_s: float | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deleting: bool = False
    problem: str = ""
    written: QueueStatus = QueueStatus()
    times: dict[str, str] = {}
