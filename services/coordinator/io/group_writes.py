"""What the coordinator writes on pod groups: the condition of the API that a group comes from, and an event.

    tell --the newest of a group replaces what waits--> waits --room--> out --> written | not there: the end of it
                                                          ^              |
                                                          +-- later: 429 (Retry-After), no answer, contested,
                                                                     409 (read anew first), 403 (after minutes)

Kubernetes' own PodGroups have a condition, named by version; those of the scheduler plug-ins a phase, of which only the
steps up to Scheduled are ours (a controller of the plug-ins may say what runs and ends); a Job has an event alone.
Pods' writes never wait for these. What somebody else keeps overwriting is written more and more rarely, then no more.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from services.coordinator.core.instructions import EmitEvent, TellPodGroup
from shared.backoff import backoff_s
from shared.errors import KubeError, KubeRejected, KubeUnknown
from shared.kube import pod_groups as kube
from shared.kube.resources import Resource
from shared.model.units.pod_group import GroupSource, PodGroup
from shared.ports import Clock, KubeApi

log = structlog.get_logger()

IN_FLIGHT = 4

PAUSE_S, MAX_PAUSE_S = 0.25, 30.0
"""Pause of all these writes after one that got no answer; doubles. ``Retry-After`` makes it longer."""

REMEMBERED = 8_192
"""Groups of which it is known what was written last."""

CONTESTED_S, CONTESTED_TRIES = 5.0, 6
"""Saying again what was written already, because somebody overwrote it: after so long, doubling; so often at most."""

CONFLICT_S, MAX_CONFLICT_S = 0.25, 30.0
"""Pause of one group after the API server found that it is not what was written about; doubles."""

FORBIDDEN_S, MAX_FORBIDDEN_S = 60.0, 900.0
"""Pause of one group after a write that is not permitted; doubles. Whoever grants the right restarts nobody."""

NEVER = float("inf")

MAX_MESSAGE_CHARS = 1024

OUR_PHASES = frozenset({"", "Pending", "PreScheduling", "Scheduling", "Scheduled"})
"""Phases of the plug-ins' PodGroup that a scheduler may replace; the others say what became of running members."""

FAILURES = frozenset({"Unschedulable", "SchedulerError", "NotReadyForScheduling"})
"""Reasons of the condition; the event about them is FailedScheduling, as of pods."""

_RESOURCES: dict[str, Resource[Any]] = {
    one.api_version: one for one in (kube.PODGROUPS, kube.PODGROUPS_V1ALPHA2, kube.PLUGINS_PODGROUPS)
}
_DIGITS = re.compile(r"\d+")


class Cancellable(Protocol):
    """What ``call_later`` returns."""

    def cancel(self) -> None:
        """It is not to happen."""
        ...


@dataclass(slots=True)
class _Told:
    """What was said of a group last."""

    condition: tuple[str, str, str]
    uid: str = ""
    """Of the group's object: one that is made anew under its name was told nothing yet."""
    announced: bool = False
    """There is an event about it."""
    writes: int = 0
    again_at: float = 0.0
    """Before this it is not written a second time."""
    refused: int = 0
    """How often in a row it was not taken."""


@dataclass(slots=True)
class GroupWrites:
    """Carries out ``TellPodGroup``. ``start`` runs a call beside everything else, ``emit`` takes the events."""

    _api: KubeApi
    _clock: Clock
    _start: Callable[[Coroutine[Any, Any, None]], None]
    _emit: Callable[[EmitEvent], None]
    _call_later: Callable[[float, Callable[[], None]], Cancellable] | None = None
    written: int = 0
    _ready: dict[str, TellPodGroup] = field(default_factory=dict)
    _later: dict[str, TellPodGroup] = field(default_factory=dict)
    """Of groups that are out, or contested and at rest: filed anew when that is over."""
    _rests: list[tuple[float, str]] = field(default_factory=list)
    _resting: set[str] = field(default_factory=set)
    """Those that stand in ``_rests``, once each."""
    _out: set[str] = field(default_factory=set)
    _told: OrderedDict[str, _Told] = field(default_factory=OrderedDict)
    _paused_until: float = 0.0
    _failures: int = 0
    _forbidden: bool = False
    """It was said that writing is not permitted."""
    _timer: Cancellable | None = None
    _closed: bool = False

    @property
    def waiting(self) -> int:
        """Groups whose news are not written yet."""
        return len(self._ready) + len(self._later) + len(self._out)

    def submit(self, work: TellPodGroup) -> None:
        """Say it when there is room; what the same group was to be told before is replaced."""
        key = work.group.key
        status, reason, message = work.condition
        if len(message) > MAX_MESSAGE_CHARS:
            message = message[: MAX_MESSAGE_CHARS - 3] + "..."
        work = TellPodGroup(work.group, (status, reason, message))
        told = self._told.get(key)
        if told is not None and told.uid != work.group.uid:
            told = None
        if told is None or told.condition != work.condition:
            same_event = told is not None and _gist(told.condition) == _gist(work.condition)
            self._told[key] = told = _Told(work.condition, work.group.uid, announced=same_event)
        self._told.move_to_end(key)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        if not told.announced:
            told.announced = True
            self._emit(_event(work))
        self._file(key, work if patch_of(work, "") is not None else None)
        self._pump()

    def close(self) -> None:
        """Nothing more is written."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    # --- whose turn it is ---------------------------------------------------------------------------------------

    def _file(self, key: str, work: TellPodGroup | None) -> None:
        """Where the group's news belong; None: there are none any more."""
        self._ready.pop(key, None)
        self._later.pop(key, None)
        told = self._told.get(key)
        rests_until = told.again_at if told is not None else 0.0
        if work is None or rests_until == NEVER:
            return
        if key in self._out:
            self._later[key] = work
        elif rests_until > self._clock():
            self._later[key] = work
            if key not in self._resting:
                self._resting.add(key)
                heapq.heappush(self._rests, (rests_until, key))
        else:
            self._ready[key] = work

    def _pump(self) -> None:
        """Write what is ready, while there is room; come again when something will be."""
        if self._closed:
            return
        now = self._clock()
        if now < self._paused_until:
            self._wake(self._paused_until - now)
            return
        while self._rests and self._rests[0][0] <= now:
            key = heapq.heappop(self._rests)[1]
            self._resting.discard(key)
            if key in self._later:
                self._file(key, self._later[key])
        while self._ready and len(self._out) < IN_FLIGHT:
            key = next(iter(self._ready))
            self._out.add(key)
            self._start(self._write(self._ready.pop(key)))
        if self._rests:
            self._wake(self._rests[0][0] - now)

    def _wake(self, after_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        call_later = self._call_later or asyncio.get_running_loop().call_later
        self._timer = call_later(max(0.0, after_s), self._pump)

    async def _write(self, work: TellPodGroup) -> None:
        group = work.group
        try:
            await self._patch(work)
        except KubeRejected as error:
            await self._refused(work, error)
        except KubeError as error:
            log.info("pod_group_status_failed", pod_group=group.key, error=error)
            self._again(work, error.retry_after_s if isinstance(error, KubeUnknown) else None)
        else:
            self._failures, self._forbidden = 0, False
            self.written += 1
            self._note(work)
        finally:
            self._out.discard(group.key)
        if group.key in self._later:
            self._file(group.key, self._later[group.key])
        self._pump()

    async def _patch(self, work: TellPodGroup) -> None:
        """Only what the API server has otherwise is sent; where that was wrong, all of it is, once."""
        group, now = work.group, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        resource = _RESOURCES[group.api_version]
        for known in (group, None):
            patch = patch_of(work, now, known=known)
            assert patch is not None
            try:
                await self._api.patch(
                    resource, namespace=group.namespace, name=group.name, patch=patch, subresource="status",
                    strategy="strategic" if group.source is GroupSource.NATIVE else "merge", wait_when_busy=False,
                )  # fmt: skip
            except KubeRejected as error:
                if error.status != 422 or known is None:
                    raise
            else:
                return

    async def _refused(self, work: TellPodGroup, error: KubeRejected) -> None:
        """The API server does not take it: what follows from why."""
        key, status = work.group.key, error.status
        if status == 429:
            self._again(work, error.retry_after_s)
            return
        self._failures = 0
        if status == 403:
            if not self._forbidden:
                self._forbidden = True
                remedy = "grant patch on podgroups/status"
                log.warning("pod_group_status_forbidden", pod_group=key, error=error, remedy=remedy)
            self._rest(work, first_s=FORBIDDEN_S, most_s=MAX_FORBIDDEN_S)
        elif status == 409:
            await self._read_again(work)
        else:
            log.warning("pod_group_status_refused", pod_group=key, status=status, error=error)

    async def _read_again(self, work: TellPodGroup) -> None:
        """The group is another than was known. One made anew under its name is told by whoever sees it."""
        known = work.group
        try:
            item = await self._api.get(_RESOURCES[known.api_version], namespace=known.namespace, name=known.name)
        except KubeError as error:
            log.info("pod_group_unread", pod_group=known.key, error=error)
            self._rest(work, first_s=CONFLICT_S, most_s=MAX_CONFLICT_S)
            return
        if item is None or (known.uid and item.metadata.uid != known.uid):
            return
        group = kube.plugins_group(item) if known.source is GroupSource.PLUGINS else kube.native_group(item)
        again = TellPodGroup(group, work.condition)
        if patch_of(again, "") is not None:
            self._rest(again, first_s=CONFLICT_S, most_s=MAX_CONFLICT_S)

    def _rest(self, work: TellPodGroup, *, first_s: float, most_s: float) -> None:
        """Once more after a while, unless there is something newer to say by then."""
        told = self._told.get(work.group.key)
        if told is not None and told.condition == work.condition:
            told.refused += 1
            told.again_at = self._clock() + backoff_s(told.refused, first_s=first_s, most_s=most_s)
            self._later.setdefault(work.group.key, work)

    def _again(self, work: TellPodGroup, retry_after_s: float | None) -> None:
        """Again after a pause, unless there is something newer to say by then."""
        self._failures += 1
        pause_s = backoff_s(self._failures, first_s=PAUSE_S, most_s=MAX_PAUSE_S)
        self._paused_until = max(self._paused_until, self._clock() + max(pause_s, retry_after_s or 0.0))
        self._later.setdefault(work.group.key, work)

    def _note(self, work: TellPodGroup) -> None:
        told = self._told.get(work.group.key)
        if told is None or told.condition != work.condition:
            return
        told.writes, told.refused = told.writes + 1, 0
        told.again_at = self._clock() + CONTESTED_S * 2.0 ** (told.writes - 1)
        if told.writes == CONTESTED_TRIES:
            told.again_at = NEVER
            log.warning("pod_group_contested", pod_group=work.group.key, remedy="find who else writes its status")


def patch_of(work: TellPodGroup, now: str, *, known: PodGroup | None = None) -> dict[str, Any] | None:
    """The patch of the group's status; None where its API has no place for it, or must not be told this.

    ``known``: the group whose ``condition`` the API server has, so that the time of the last transition stays.
    """
    group = work.group
    status, reason, message = work.condition
    if group.source is GroupSource.JOB:
        return None
    patch: dict[str, Any] = {"metadata": {"uid": group.uid}} if group.uid else {}
    if group.source is GroupSource.PLUGINS:
        phase = "Scheduled" if status == "True" else "Pending"
        if group.condition[1] not in OUR_PHASES or group.condition[1] == phase:
            return None
        return {**patch, "status": {"phase": phase}}
    if group.api_version == kube.PODGROUPS.api_version and group.condition[1] == "True" and status != "True":
        return None  # scheduled once is scheduled for ever, there
    if group.condition[1:] == work.condition:
        return None
    condition: dict[str, Any] = {
        "type": kube.CONDITION_TYPES[group.api_version], "status": status, "reason": reason, "message": message
    }  # fmt: skip
    if group.generation:
        condition["observedGeneration"] = group.generation
    if known is None or known.condition[1] != status:
        condition["lastTransitionTime"] = now
    return {**patch, "status": {"conditions": [condition]}}


def _gist(condition: tuple[str, str, str]) -> tuple[str, str, str]:
    """What makes it news: not its numbers."""
    return condition[0], condition[1], _DIGITS.sub("", condition[2])


def _event(work: TellPodGroup) -> EmitEvent:
    group = work.group
    status, reason, message = work.condition
    kind = "Job" if group.source is GroupSource.JOB else "PodGroup"
    type_, action = ("Normal", "Binding") if status == "True" else ("Warning", "Scheduling")
    return EmitEvent(
        group.uid, group.namespace, group.name, group.resource_version, type_,
        "FailedScheduling" if reason in FAILURES else reason, action, message or reason,
        kind=frozenset({_gist(work.condition)[2]}), regarding=(group.api_version, kind),
    )  # fmt: skip
