"""Which Kubernetes events are written, and when: at a bounded rate, the same again as a series, none without a trace.

    add --the same pod, reason and kind again--> one event's series (count)     +-- failed: again, after a pause --+
        --room--> waits: about pending pods and victims | about bound pods --next--> out --written--> series kept
        --no room--> counted together, by namespace and reason (one event for all of them)

An event of a bound pod costs the API server as much as its Binding does; so those wait until there is nothing more
urgent. While many Bindings are under way they are written at a tenth of their rate, until ``HELD_BACK`` wait: a load
that never ends would have them combined otherwise. Every pod gets its own while fewer than ``CAPACITY`` wait. Pure:
``now`` is monotonic seconds.

Nobody waits for an event, and none is kept over a change of leader: events are hints.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from services.coordinator.core.instructions import EmitEvent

EVENTS_PER_S, EVENTS_BURST = 100, 100
"""Written per second, after a burst: kube-scheduler's client is held to 50 requests a second, bursts of 100."""

CROWDED_S = 10 / EVENTS_PER_S
"""Between two events of bound pods while many Bindings are under way: those are what pods wait for."""

CAPACITY = 10_000
"""Events that wait, of pending pods and of bound ones each."""

HELD_BACK = CAPACITY // 2
"""So many events of bound pods are held back for Bindings; a change of leader loses them."""

SERIES_KEPT = 8_192
"""Events that another of the same may still join (client-go keeps 4,096)."""

REFRESH_S = 600.0
"""A series is written at its second event, then after so long at the earliest."""

COMBINE_S = 5.0
"""Events for which there is no room are counted for so long, then written as one."""

COMBINED_GROUPS = 1_000
"""Namespaces and reasons so counted at a time."""

TRIES = 8
"""After so many failures an event is lost, and counted."""

PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
"""Pause of all events after a failure; doubles with each in a row."""

TINY = 1e-6
"""So much less than a whole token is a whole one: times are floats."""

COMBINED = "combined"

Key: TypeAlias = tuple[str, str, frozenset[str]]


@dataclass(slots=True)
class EventSeries:
    """An event and how often it was seen. ``name``: of the object, once somebody has tried to create it."""

    event: EmitEvent
    first_at: float
    last_at: float
    count: int = 1
    name: str = ""
    written: int = 0
    """The count that the API server has; 0: the event is not there."""
    written_at: float = 0.0
    tries: int = 0

    @property
    def key(self) -> Key:
        """What a later event has to agree in."""
        return (self.event.uid, self.event.reason, self.event.kind)


@dataclass(slots=True)
class EventRecorder:
    """Events that wait, are out, or may be continued."""

    combined: int = 0
    """Events that were counted together, there being no room for each."""
    lost: int = 0
    """Events that the API server refused, or did not take in ``TRIES`` tries."""
    _told: dict[Key, EventSeries] = field(default_factory=dict)
    _bound: dict[Key, EventSeries] = field(default_factory=dict)
    _out: dict[Key, tuple[EventSeries, int]] = field(default_factory=dict)
    _kept: OrderedDict[Key, EventSeries] = field(default_factory=OrderedDict)
    _groups: dict[tuple[str, str], EventSeries] = field(default_factory=dict)
    _tokens: float = EVENTS_BURST
    _refilled_at: float = 0.0
    _paused_until: float = 0.0
    _bound_from: float = 0.0
    """When the next event of a bound pod may be written."""
    _failures: int = 0

    @property
    def waiting(self) -> int:
        """Events not written yet."""
        return len(self._told) + len(self._bound) + len(self._out) + len(self._groups)

    def add(self, event: EmitEvent, now: float) -> bool:
        """Take an event in. False: there is no room for it; it is counted together with its like."""
        key = (event.uid, event.reason, event.kind)
        queue = self._told if event.type == "Warning" or event.reason != "Scheduled" else self._bound
        known = queue.get(key) or self._kept.get(key) or (self._out[key][0] if key in self._out else None)
        if known is not None:
            known.count += 1
            known.last_at = now
            self._continue(known, now)
            return True
        if len(queue) < CAPACITY:
            queue[key] = EventSeries(event, now, now)
            return True
        self.combined += 1
        group = self._groups.get((event.namespace, event.reason))
        if group is not None:
            group.count += 1
            group.last_at = now
        elif len(self._groups) < COMBINED_GROUPS:
            self._groups[event.namespace, event.reason] = EventSeries(event, now, now)
        else:
            self.lost += 1
        return False

    def next(self, now: float, crowded: Callable[[], bool] = lambda: False) -> EventSeries | None:
        """The event whose turn it is, which is out from now on; None: nothing waits, or not yet. ``crowded``: whether
        many Bindings are under way, asked before an event of a bound pod."""
        self._tokens = min(EVENTS_BURST, self._tokens + max(0.0, now - self._refilled_at) * EVENTS_PER_S)
        self._refilled_at = now
        if self._tokens < 1 - TINY or now < self._paused_until:
            return None
        series = self._take(now, crowded)
        if series is not None:
            self._tokens -= 1
            self._out[series.key] = (series, series.count)
        return series

    def _take(self, now: float, crowded: Callable[[], bool]) -> EventSeries | None:
        for group, series in self._groups.items():
            if now >= series.first_at + COMBINE_S:
                del self._groups[group]
                note = f"(combined from similar events of {series.count} pods) {series.event.note}"[:1024]
                # an earlier one of the same pod and reason may still be out: no two are the same event
                series.event = replace(series.event, note=note, kind=frozenset({COMBINED, str(self.combined)}))
                series.count = 1
                return series
            break  # they are in the order in which they began
        if self._told:
            return self._told.pop(next(iter(self._told)))
        if self._bound and now >= self._bound_from - TINY:
            held_back = len(self._bound) <= HELD_BACK and crowded()
            self._bound_from = now + CROWDED_S if held_back else now
            return self._bound.pop(next(iter(self._bound)))
        return None

    def wake_at(self) -> float | None:
        """When ``next`` may have something; None: not before something happens."""
        due = []
        if self._told:
            due.append(0.0)
        if self._bound:
            due.append(self._bound_from)
        if self._groups:
            due.append(next(iter(self._groups.values())).first_at + COMBINE_S)
        if not due:
            return None
        refilled = self._refilled_at + max(0.0, 1 - self._tokens) / EVENTS_PER_S
        return max(min(due), refilled, self._paused_until)

    def written(self, series: EventSeries, now: float) -> None:
        """The API server has it."""
        _, count = self._out.pop(series.key)
        series.written, series.written_at, series.tries, self._failures = count, now, 0, 0
        if series.event.type == "Warning":
            self._kept[series.key] = series
            self._kept.move_to_end(series.key)
            self._continue(series, now)
            while len(self._kept) > SERIES_KEPT:
                self._kept.popitem(last=False)

    def failed(
        self, series: EventSeries, now: float, *, refused: bool = False, retry_after_s: float | None = None
    ) -> None:
        """It did not get through: again, after a pause for all. ``refused``: for good."""
        del self._out[series.key]
        series.tries += 1
        if refused or series.tries >= TRIES:
            self.lost += 1
        else:
            self._told[series.key] = series
        if not refused:
            self._failures += 1
            pause_s = min(PAUSE_S * 2.0 ** min(self._failures - 1, 16), MAX_PAUSE_S)
            self._paused_until = max(self._paused_until, now + max(pause_s, retry_after_s or 0.0))

    def vanished(self, series: EventSeries) -> None:
        """The event that was to be continued is gone (it lives for an hour): it is created anew."""
        del self._out[series.key]
        series.name, series.written = "", 0
        self._told[series.key] = series

    def _continue(self, series: EventSeries, now: float) -> None:
        """A kept series that has grown is written when it is time."""
        grown = series.count > series.written
        if grown and series.key in self._kept and (series.written == 1 or now >= series.written_at + REFRESH_S):
            self._told[series.key] = self._kept.pop(series.key)
        elif series.key in self._kept:
            self._kept.move_to_end(series.key)
