"""What people are told about a pod that is not placed: per pod one newest condition, written when its turn comes.

    tell --> news? --> waits: nominations | first notices | new reasons | newer counts --room--> out (PatchCondition)
     ^                   ^                                                                         |
     |                   +-- later: counts that differ, after ``notice_repeat_s``; failures, after a backoff
     +-- the newest news of a pod replace those not out yet; one patch of a pod is out at a time --+

A pod that fits is written once, by its Binding; so what waits for a pod that goes into a plan is taken back, until the
plan gives it up. A message of the same kind (reason and plugins' words; its counts differ) is no news before
``notice_repeat_s`` have passed, and then it goes with what it is by then. Everything is bounded by the pending pods,
and an event costs the same however many wait.

Nothing that was told is dropped, and nothing is written that the pod says already.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from services.coordinator.core.events import ConditionFailed
from services.coordinator.core.instructions import EmitEvent, PatchCondition
from services.coordinator.core.state import NEVER, CoordinatorState
from shared.backoff import backoff_s
from shared.model.pod import Pod
from shared.model.units.unit import cause_id
from shared.scheduling.reasons import NOT_READY
from shared.wire.messages import Placement

MAX_NOTE_CHARS = 1024
"""The API server's bound on an event's note; a condition's message is cut alike."""

FIRST_AFTER_S = 1.0
"""So long whoever may take back what his queue lent is not told that he waits: most are helped by then."""

NOT_READY_AFTER_S = 5.0
"""So long a pod must have waited before it is told a reason that no node helps, as the first that it is told at all:
most go on by then, and need no write (KEP-5501)."""

NOMINATIONS_MORE = 8
"""Nominations that may be out beyond ``notices_in_flight``: they wait for nobody."""

NOMINATION_TRIES = 3
"""After so many failures in a row a pod's status is not told where it is to go; what keeps it is told still."""

BACKOFF_S, MAX_BACKOFF_S = 0.25, 30.0
"""Pause after a patch that failed; doubles. ``Retry-After`` makes it longer."""

REPEATS_PER_S = 20
"""Patches per second of messages whose counts alone changed; where thousands wait they would be most of all."""

NOMINATION, FIRST, REASON, COUNTS = range(4)
"""The tiers, most urgent first."""


class _News(NamedTuple):
    """What a condition says. ``kind``: what of the message is its reason."""

    reason: str
    kind: frozenset[str]
    message: str


@dataclass(slots=True)
class _Notice:
    """One pod. ``shown``: what the API server has, as far as is known; ``nominated``: still to be written."""

    pod: Pod
    news: _News
    shown: _News | None
    nominated: str | None = None
    announced: _News | None = None
    """The news of the newest event about it."""
    tier: int | None = None
    due: float = 0.0
    """Not before."""
    timer: float = 0.0
    failures: int = 0
    written_at: float = float("-inf")
    named: bool = False
    """Its status may have a nomination."""
    placed: bool = False
    """On its way to a node: nothing is written."""
    since: float = 0.0
    """When it got news that are not written yet."""


class _Out(NamedTuple):
    """A patch on its way."""

    news: _News
    nominated: str | None
    since: float


@dataclass(slots=True)
class StatusReporter:
    """What each pending pod was told last, and what is still to be told."""

    _state: CoordinatorState
    notices: dict[str, _Notice] = field(default_factory=dict)
    """What each pending pod was told, or is to be told, by uid."""
    _tiers: tuple[dict[str, None], ...] = field(default_factory=lambda: ({}, {}, {}, {}))
    _out: dict[str, _Out] = field(default_factory=dict)
    _timers: list[tuple[float, str]] = field(default_factory=list)
    _room: int = 0
    """How many may be out now; halved when the API server is throttled or silent. 0: none was out yet."""
    _counts_at: float = 0.0
    """When the next patch of newer counts may go."""

    # --- what is told -------------------------------------------------------------------------------------------

    def tell(
        self, pod: Pod, reason: str, message: str, *, nominated: str | None = None, after_s: float = 0.0,
        first_after_s: float | None = None,
    ) -> None:  # fmt: skip
        """Say why the pod is pending, unless it says so already. ``nominated``: its nominated node becomes this; that
        is written ``after_s`` from now, what else is to be told waits for it and goes with it. ``first_after_s``: the
        first that is told of the pod at all is written so much later, as what it is then, unless what follows is to be
        told sooner; None: as its reason has it."""
        notice = self.notices.get(pod.uid)
        if first_after_s is None:
            first_after_s = NOT_READY_AFTER_S if reason == NOT_READY else 0.0
        news = _news(reason, message)
        if notice is None:
            shown = _news(*pod.condition[1:]) if pod.condition[0] == "False" else None
            notice = self.notices[pod.uid] = _Notice(pod, news, shown, due=self._state.now + first_after_s)
        elif notice.shown is None and not notice.failures and not notice.nominated:
            notice.due = min(notice.due, self._state.now + first_after_s)
        notice.pod, notice.news = pod, news
        if nominated is not None:
            notice.nominated, notice.due, notice.failures = nominated, self._state.now + after_s, 0
        self._file(notice)

    def clear_nomination(self, pod: Pod) -> None:
        """The pod is nominated nowhere any more; what it was told last stays. One told nothing buys nothing."""
        notice = self.notices.get(pod.uid)
        reason, message = (notice.news.reason, notice.news.message) if notice is not None else pod.condition[1:]
        self.tell(pod, reason or NOT_READY, message, nominated="")
        self.notices[pod.uid].named = True

    def withdraw_nomination(self, pod: Pod) -> None:
        """The pod is nominated nowhere any more: nor is its status told so, unless it was, or that is on its way."""
        notice, out = self.notices.get(pod.uid), self._out.get(pod.uid)
        if (out is not None and out.nominated) or (notice is not None and notice.named):
            self.clear_nomination(pod)
        elif notice is not None and notice.nominated:
            notice.nominated, notice.due = None, notice.due if notice.failures else 0.0
            self._file(notice)

    def has_told(self, uid: str, node: str) -> bool:
        """Whether a status with this nomination is what was told in this term, and stays: nothing else is on its way,
        nor to be told. One that a leader before told may be taken back yet, by a write of his that comes late."""
        notice, out = self.notices.get(uid), self._out.get(uid)
        if notice is None:
            return False
        if out is not None and out.nominated is not None:
            return out.nominated == notice.nominated == node
        return notice.named and notice.nominated is None

    def tell_by(self, uid: str, at: float) -> None:
        """The nomination that waits to be told of the pod, if one does, is told at that time at the latest."""
        notice = self.notices.get(uid)
        if notice is not None and notice.nominated and not notice.failures and notice.due > at:
            notice.due = at
            self._file(notice)

    def placing(self, uid: str) -> None:
        """The pod goes into a plan: what it was to be told waits, lest it change the version its Binding names."""
        notice = self.notices[uid]
        notice.placed = True
        self._file(notice)

    def unplaced(self, uid: str) -> None:
        """The pod is in no plan any more: if it is still pending, its news are told."""
        notice = self.notices[uid]
        if notice.placed:
            notice.placed = False
            self._file(notice)

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._unfile(self.notices.pop(uid))

    # --- what became of a patch ---------------------------------------------------------------------------------

    def written(self, uid: str) -> None:
        """The patch got through, or the pod is bound or gone and needs none."""
        out = self._out.pop(uid, None)
        self._room = min(self._room + 1, self._state.settings.notices_in_flight)
        self._state.agenda.telling = self._state.now  # there is room for the next
        notice = self.notices.get(uid)
        if notice is None or out is None:
            return
        notice.shown, notice.failures, notice.written_at = out.news, 0, self._state.now
        notice.named = notice.named if out.nominated is None else bool(out.nominated)
        if notice.nominated == out.nominated:
            notice.nominated = None
        self._file(notice)

    def failed(self, event: ConditionFailed) -> None:
        """The patch did not get through; it is made again."""
        state, out = self._state, self._out.pop(event.uid, None)
        state.stats.conditions_failed += 1
        state.agenda.telling = state.now
        if event.throttled:
            self._room = max(1, self._room // 2)
        notice = self.notices.get(event.uid)
        if notice is None or out is None:
            return
        notice.failures += 1
        if out.nominated and not event.refused:
            notice.named = True  # it may have been written all the same
        given_up = bool(out.nominated) and (event.refused or notice.failures >= NOMINATION_TRIES)
        if given_up and notice.nominated == out.nominated:
            notice.nominated = None
        pause_s = backoff_s(notice.failures, first_s=BACKOFF_S, most_s=MAX_BACKOFF_S)
        notice.due = state.now + max(pause_s, event.retry_after_s or 0.0)
        self._file(notice)

    # --- whose turn it is ---------------------------------------------------------------------------------------

    def step(self) -> None:
        """Send what is due, while there is room."""
        now, settings = self._state.now, self._state.settings
        while self._timers and self._timers[0][0] <= now:
            notice = self.notices.get(heapq.heappop(self._timers)[1])
            if notice is not None and notice.timer <= now:
                notice.timer = 0.0
                self._file(notice)
        self._room = self._room or settings.notices_in_flight
        for tier, waiting in enumerate(self._tiers):
            room = self._room + (NOMINATIONS_MORE if tier == NOMINATION else 0)
            while waiting and len(self._out) < room:
                if tier == COUNTS:
                    if now < self._counts_at:
                        break
                    self._counts_at = max(self._counts_at + 1 / REPEATS_PER_S, now)
                self._send(self.notices[next(iter(waiting))])
        self._state.agenda.telling = self.wake_at()

    def wake_at(self) -> float:
        """When something is due by itself."""
        times = [self._timers[0][0]] if self._timers else []
        if self._tiers[COUNTS] and len(self._out) < self._room:
            times.append(self._counts_at)
        return min(times, default=NEVER)

    @property
    def waiting(self) -> int:
        """Pods whose news are not written yet, those on their way included; not those whose counts alone changed."""
        return len(self._out) + sum(len(tier) for tier in self._tiers[:COUNTS])

    def backlog(self, now: float) -> tuple[int, float]:
        """(``waiting``, seconds for which the oldest of them has waited, as near as their order tells)."""
        first = [self.notices[uid].since for tier in self._tiers[:COUNTS] for uid in islice(tier, 1)]
        first += [out.since for out in islice(self._out.values(), 1)]
        return self.waiting, now - min(first, default=now)

    # --- inside -------------------------------------------------------------------------------------------------

    def _file(self, notice: _Notice) -> None:
        """Into the tier where its news belong (what waits there already keeps its place), or the timer, or nowhere."""
        tier, due = self._tier_of(notice)
        if tier is not None and due > self._state.now:
            if notice.timer != due:
                notice.timer = due
                heapq.heappush(self._timers, (due, notice.pod.uid))
                self._state.agenda.telling = min(self._state.agenda.telling, due)
            tier = None
        if tier != notice.tier:
            notice.since = notice.since if notice.tier is not None else self._state.now
            self._unfile(notice)
            notice.tier = tier
            if tier is not None:
                self._tiers[tier][notice.pod.uid] = None
                self._state.agenda.telling = self._state.now

    def _tier_of(self, notice: _Notice) -> tuple[int | None, float]:
        """Where it belongs, and from when on."""
        shown, news = notice.shown, notice.news
        if notice.placed or notice.pod.uid in self._out:
            return None, 0.0
        if notice.nominated is not None:
            return NOMINATION, notice.due
        if shown is None:
            return FIRST, notice.due
        if (news.reason, news.kind) != (shown.reason, shown.kind):
            return REASON, notice.due
        if news.message != shown.message:
            return COUNTS, max(notice.due, notice.written_at + self._state.settings.notice_repeat_s)
        return None, 0.0

    def _unfile(self, notice: _Notice) -> None:
        if notice.tier is not None:
            self._tiers[notice.tier].pop(notice.pod.uid, None)
            notice.tier = None

    def _send(self, notice: _Notice) -> None:
        self._unfile(notice)
        state, pod, news = self._state, notice.pod, notice.news
        told = notice.shown is not None or pod.condition[0] == "False"
        self._out[pod.uid] = _Out(news, notice.nominated, notice.since)
        state.stats.conditions += 1
        state.out.append(
            PatchCondition(pod.uid, pod.namespace, pod.name, news.reason, news.message, told, notice.nominated)
        )
        if news == notice.announced or news == notice.shown:
            return
        notice.announced = news
        state.stats.events += 1
        state.out.append(
            EmitEvent(
                pod.uid, pod.namespace, pod.name, pod.resource_version, "Warning", "FailedScheduling", "Scheduling",
                news.message, kind=news.kind,
            )
        )  # fmt: skip


def scheduled_event(placement: Placement, node: str, term: int) -> EmitEvent:
    """The event about a pod that is bound."""
    uid, namespace, name = placement.uid, placement.namespace, placement.name
    note = f"Successfully assigned {namespace}/{name} to {node}"
    return EmitEvent(
        uid, namespace, name, "", "Normal", "Scheduled", "Binding", note, cause_id(term, placement.unit)
    )  # fmt: skip


_DIGITS, _PARTS = re.compile(r"\d+"), re.compile(r"[:,.](?:\s|$)")


@lru_cache(maxsize=1024)
def _news(reason: str, message: str) -> _News:
    """Cut, and with what makes it a new reason: its parts without their counts, in whatever order they come."""
    message = message if len(message) <= MAX_NOTE_CHARS else message[: MAX_NOTE_CHARS - 3] + "..."
    return _News(reason, frozenset(part.strip() for part in _PARTS.split(_DIGITS.sub("", message))), message)
