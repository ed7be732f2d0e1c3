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


class Order(Enum):
    """Which unit of one queue comes first."""

    PRIORITY = "Priority"
    FIFO = "FIFO"


class Strategy(Enum):
    """Which of a queue's children comes first."""

    DRF = "DRF"
    """The lowest dominant share divided by its weight (NSDI 2011)."""
    FAIR = "WeightedFairShare"
    """What it is guaranteed first, then the rest by weight."""


class Queue(Struct, frozen=True, gc=False):
    """One Queue object at one generation.

    ``parent`` "": below the root. ``guaranteed``: nominal quota, ``maximum``: never more, ``borrowing``: at most so
    much above what is guaranteed, ``lending``: at most so much of what is guaranteed goes to others; None: no such
    limit. ``reclaim``: what was borrowed from it is taken back by eviction, after ``reclaim_after_s``, from pods that
    have run for ``min_run_s`` (of the borrower). ``half_life_s``: past use counts, halved every so many seconds; None:
    it does not. ``problem``: why it cannot be used as it is written; its units wait and are told so.
    """

    name: str
    parent: str = ""
    weight: Fraction = Fraction(1)
    order: Order = Order.PRIORITY
    strategy: Strategy = Strategy.DRF
    namespaces: tuple[str, ...] = ()
    guaranteed: dict[str, int] = {}
    maximum: dict[str, int] = {}
    borrowing: dict[str, int] | None = None
    lending: dict[str, int] | None = None
    reclaim: bool = False
    reclaim_after_s: float = 0.0
    min_run_s: float = 0.0
    half_life_s: float | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deleting: bool = False
    problem: str = ""
