"""What people are shown of training jobs: which they are, where they ran and when, and when they may end. Pure data.

The leading jobs service makes it, the coordinator's admin API passes it on. Times are seconds since 1970.
"""

from __future__ import annotations

from msgspec import Struct


class JobRow(Struct, frozen=True, kw_only=True):
    """One job. ``gpus``: what it holds; ``ends``: when it is expected to, from ``ends_early`` to ``ends_late`` as far
    as its speed is known (one standard deviation), 0.0 where nothing is known; ``by``: from what it is expected
    (``speed``: work left by the speed it reports; ``progress``: as fast as so far; ""). ``candidate``: whether the
    policy that is rolled out decides for it."""

    name: str
    namespace: str
    phase: str
    workers: int
    target: int
    minimum: int
    maximum: int
    gpus: float
    priority: int = 0
    queue: str = ""
    progress: float | None = None
    restarts: int = 0
    failures: int = 0
    lost_steps: int = 0
    created: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    ends: float = 0.0
    ends_early: float = 0.0
    ends_late: float = 0.0
    by: str = ""
    reason: str = ""
    message: str = ""
    candidate: bool = False


class JobSpan(Struct, frozen=True, kw_only=True):
    """A worker or parameter server on a node. ``ended`` 0.0: it is there."""

    job: str
    pod: str
    node: str
    gpus: float
    began: float
    ended: float = 0.0


class JobChange(Struct, frozen=True, kw_only=True):
    """What became of a job: ``grew``, ``shrank``, ``started``, ``stopped``, ``restarted``, ``failed`` or ``ended``;
    ``before`` and ``after``: workers decided."""

    at: float
    job: str
    event: str
    before: int
    after: int


class Board(Struct, frozen=True, kw_only=True):
    """``leading`` False: nobody leads the jobs service, or it does not answer; ``problem``: what of its policy.
    ``nodes``: GPUs by node. ``since``: from when on spans and changes are kept; a new leader knows those that stand."""

    leading: bool = False
    policy: str = ""
    problem: str = ""
    now: float = 0.0
    since: float = 0.0
    jobs: tuple[JobRow, ...] = ()
    nodes: dict[str, int] = {}
    spans: tuple[JobSpan, ...] = ()
    changes: tuple[JobChange, ...] = ()
