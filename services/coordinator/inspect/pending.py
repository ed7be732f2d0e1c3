"""Why pods wait, grouped by reason, namespace, priority and class; what would help, and how many that would let in.

    queue entries --GROUPED a step--> groups, classes --each class once--> message, helps --packed--> helps for all

A picture is painted by a generator, so that whoever drives it gives the loop back every few milliseconds, however many
pods wait: nothing is done per pod and node, and a class is judged once, by its pod that has waited longest. Pods may
come, change and go meanwhile: it is a picture, not a snapshot. Pure; it reads the core and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from services.coordinator.core.core import Core
from services.coordinator.inspect.nodes import NAMES
from services.coordinator.inspect.waiting import waits_since
from shared.model.pod import Pod
from shared.scheduling.explain.failing import failing_rules, tally
from shared.scheduling.explain.helping import Help, copies, helps_for
from shared.scheduling.gates import gate_rejection, why_untried
from shared.scheduling.groups.quorum import reason_of as reason_of_group
from shared.scheduling.places import Place
from shared.scheduling.queue_entries import Entry
from shared.scheduling.queues.nodes import Blocked
from shared.scheduling.reasons import (
    ASK_LESS,
    BACKING_OFF,
    FIRST_GOES,
    GATED,
    GROUP_INVALID,
    GROUP_MISSING,
    IN_FLIGHT,
    IN_TURN,
    INCOMPLETE,
    NO_AGENTS,
    NO_NODES,
    PAUSED,
    QUOTA,
    UNSCHEDULABLE,
    UNUSABLE,
    means,
    of_limit,
    page,
    remedy,
)
from shared.scheduling.state.node_table import PODS_COLUMN, IntArray

GROUPED = 500
"""Entries looked at in one step: about a millisecond."""

MOST_CLASSES = 2000
"""Classes judged for one picture, those of most pods first; the others are counted."""

MOST_ROLLED_UP = 50
MOST_HELPS, MOST_HELPS_FOR_ALL, PACKED = 3, 10, 5

T = TypeVar("T")

UNTRIED = "unsupported"
"""Where pods are that are never tried: in no queue."""

UNJUDGED = frozenset({
    IN_TURN, IN_FLIGHT, QUOTA, UNUSABLE, UNSCHEDULABLE, INCOMPLETE, GROUP_MISSING, GROUP_INVALID,
})  # fmt: skip
"""Reasons that are not about one pod and the nodes: none was asked, or its pod group or a quota keeps it."""


RESUME = Help("resume_scheduling", "", "resume scheduling", None)


class HelpShown(Struct, frozen=True, kw_only=True):
    """A change that lets pods in; ``lets_in`` at most so many ``of`` those that wait. None: nobody can say."""

    kind: str
    target: str
    text: str
    lets_in: int | None
    of: int


class PendingGroup(Struct, frozen=True, kw_only=True):
    """Pods that wait for one reason. ``means``, ``remedy``, ``page``: what the reason says, what helps in general, and
    where it is explained; ``reasons``: how often each is the first, over all nodes. ``namespaces``, ``priorities``: all
    of them; of several, ``namespace`` is empty and ``priority`` the highest."""

    reason: str
    plugins: list[str]
    namespace: str
    priority: int
    namespaces: list[str]
    priorities: list[int]
    class_: str = msgspec.field(name="class")
    pods: int
    places: dict[str, int]
    oldest_s: float
    oldest_pod: str
    requests: dict[str, int]
    message: str
    reasons: dict[str, int]
    helps: list[HelpShown]
    means: str
    remedy: str
    page: str


class ByReason(Struct, frozen=True, kw_only=True):
    """Pods by reason."""

    reason: str
    pods: int
    oldest_s: float


class ByNamespace(Struct, frozen=True, kw_only=True):
    """Pods by namespace."""

    namespace: str
    pods: int
    oldest_s: float


class ByPriority(Struct, frozen=True, kw_only=True):
    """Pods by priority."""

    priority: int
    pods: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of one class."""

    message: str
    reasons: dict[str, int]
    helps: list[Help]


Judge = Callable[[Pod, int], Judged]
"""Of a class by one of its pods, and how many of them wait."""


@dataclass(slots=True)
class Class:
    """Pods that are judged alike. ``pod``: the one that has waited longest; ``refused``: those neither on their way
    nor in turn."""

    name: str
    pod: Pod
    since: float
    pods: int = 0
    refused: int = 0
    judged: Judged | None = None


@dataclass(slots=True)
class _Group:
    reason: str
    plugins: frozenset[str]
    namespace: str
    priority: int
    of: Class
    since: float
    oldest: str
    message: str = ""
    """Of pods that are never tried, and of members of a group that must not be."""
    remedy: str = ""
    """Where it is another than the reason's own."""
    places: Counter[str] = field(default_factory=Counter)
    others: list[_Group] = field(default_factory=list)
    """Groups that were merged into it."""


@dataclass(slots=True)
class PendingPicture:
    """Why pods wait, as it was at ``at``, seconds of the core's clock."""

    at: float
    pods: int = 0
    gated: int = 0
    classes: int = 0
    unjudged: int = 0
    groups: list[PendingGroup] = field(default_factory=list)
    grouped: list[_Group] = field(default_factory=list)
    """The same groups, to be merged."""
    by_reason: list[ByReason] = field(default_factory=list)
    by_namespace: list[ByNamespace] = field(default_factory=list)
    by_priority: list[ByPriority] = field(default_factory=list)
    helps: list[HelpShown] = field(default_factory=list)


def judge_of(core: Core) -> Judge:
    """Judges a class by all rules on all nodes, as things stand."""

    def judge(pod: Pod, wanted: int) -> Judged:
        state = core.state
        found = failing_rules(state.cluster, state.feasibility, pod)
        reasons, message = tally(state.cluster, state.feasibility, found)
        helps = helps_for(state.cluster, found, pod, tuple(reasons), wanted)
        if state.paused is not None:  # what fits now is tried again once it goes on, and not by itself
            helps = [RESUME if one.kind == "wait" else one for one in helps]
        return Judged(message, reasons, helps)

    return judge


def painted(core: Core, now: float, judge: Judge | None = None) -> Generator[None, None, PendingPicture]:
    """The picture, step by step: what ``yield`` gives back in between is the loop."""
    judge = judge or judge_of(core)
    grouping = _Grouping(core)
    entries = list(core.state.queue.entries.values())
    for start in range(0, len(entries), GROUPED):
        for entry in entries[start : start + GROUPED]:
            grouping.add(entry)
        yield
    for number, (pod, since) in enumerate(list(core.state.untried.values()), start=1):
        grouping.add_untried(pod, since)
        if number % GROUPED == 0:
            yield
    classes = sorted(grouping.classes.values(), key=lambda one: (-one.refused, one.since))
    refused = [one for one in classes if one.refused]
    for one in refused[:MOST_CLASSES]:
        one.judged = judge(one.pod, one.refused)
        yield
    pods = sum(one.pods for one in classes)
    picture = PendingPicture(now, pods, len(core.state.gated), len(classes), max(0, len(refused) - MOST_CLASSES))
    for number, found in enumerate(list(core.state.gated.values()), start=1):
        grouping.add_gated(found.pod, found.since, found.lacks)
        if number % GROUPED == 0:
            yield
    for place, group in enumerate(grouping.groups.values()):
        picture.groups.append(_shown(group, now))
        if place % GROUPED == GROUPED - 1:
            yield
    groups = picture.grouped = list(grouping.groups.values())
    picture.by_reason = _rolled(groups, "reason", ByReason, now)
    picture.by_namespace = _rolled(groups, "namespace", ByNamespace, now)
    picture.by_priority = _rolled(groups, "priority", ByPriority, now)
    yield
    picture.helps = yield from _for_all(core, refused[:MOST_CLASSES])
    return picture


class _Grouping:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.classes: dict[Hashable, Class] = {}
        self.groups: dict[Hashable, _Group] = {}

    def add(self, entry: Entry) -> None:
        gated = entry.place is Place.GATED
        message = why_gated(self._core, entry) if gated else ""
        group = self._group(entry.pod, entry.first_seen, reason_of(self._core, entry), message)
        if entry.place in (Place.UNSCHEDULABLE, Place.BACKOFF):
            group.plugins = entry.plugins
        if gated:
            group.remedy = remedy_of(self._core, entry)
        elif group.reason == UNSCHEDULABLE:
            group.message = entry.pod.condition[2] or "its pod group finds no room for its minimum"
        group.of.refused += group.reason not in UNJUDGED
        group.places[entry.place.value] += 1

    def add_untried(self, pod: Pod, since: float) -> None:
        reason, message = why_untried(pod)
        group = self._group(pod, since, reason, message)
        group.places[UNTRIED] += 1

    def add_gated(self, pod: Pod, since: float, lacks: str) -> None:
        """A pod with scheduling gates, or that lacks claims: beside those that wait for us."""
        rejection = gate_rejection(pod)
        group = self._group(pod, since, GATED, rejection.reasons[0] if rejection is not None else lacks)
        group.places[Place.GATED.value] += 1

    def _group(self, pod: Pod, since: float, reason: str, message: str = "") -> _Group:
        """The pod's group, with the pod counted in its class. ``message``: its own; another one is another group."""
        since = waits_since(self._core.state, pod, since)
        key = (pod.pod_class, pod.relations)
        of = self.classes.get(key)
        if of is None:
            of = self.classes[key] = Class(class_name(pod), pod, since)
        elif since < of.since:
            of.pod, of.since = pod, since
        of.pods += 1
        place = (reason, pod.namespace, pod.priority, key, message)
        group = self.groups.get(place)
        if group is None:
            group = self.groups[place] = _Group(reason, frozenset(), pod.namespace, pod.priority, of, since, pod.key)
            group.message = message
        elif since < group.since:
            group.since, group.oldest = since, pod.key
        return group


def reason_of(core: Core, entry: Entry) -> str:
    """By what a pod is grouped: the rules that refuse it, or why none does."""
    if entry.place is Place.IN_FLIGHT:
        return IN_FLIGHT
    if entry.place is Place.ACTIVE:
        return IN_TURN if core.state.paused is None else PAUSED
    if entry.place is Place.GATED:
        return gated_reason(core, entry)
    if entry.group is not None and (entry.place is Place.UNSCHEDULABLE or entry.plugins):
        return UNSCHEDULABLE  # a node may take each member, so many of them none do: nothing is said of one alone
    if entry.plugins:
        return "+".join(sorted(entry.plugins))
    if entry.place is Place.BACKOFF:
        return BACKING_OFF
    return NO_AGENTS if core.state.cache.table.row_of else NO_NODES


def gated_reason(core: Core, entry: Entry) -> str:
    """What a pod that must not be tried waits for, in a word: its queue, or its pod group."""
    blocked = held_back(core, entry)
    if blocked is not None:
        return of_limit(blocked.problem)
    groups, key = core.state.groups, core.state.groups.key_of.get(entry.pod.uid, entry.pod.group)
    return reason_of_group(groups.group(key), why_gated(core, entry), short_of_nodes=groups.short_of_nodes(key))


def held_back(core: Core, entry: Entry) -> Blocked | None:
    """The limit of a queue that holds back the pod, or its group; None: none does."""
    tree, group = core.state.queues, entry.pod.group
    return tree.held(entry.pod.uid) or (tree.held(group) if group else None)


def remedy_of(core: Core, entry: Entry) -> str:
    """What helps a pod that waits; where its queue holds it, by what it asks for there."""
    blocked = held_back(core, entry)
    return remedy_of_limit(blocked) if blocked is not None else remedy(reason_of(core, entry))


def remedy_of_limit(blocked: Blocked) -> str:
    """What helps a unit that its queue holds back."""
    if blocked.behind:
        return FIRST_GOES
    return ASK_LESS if blocked.never else remedy(of_limit(blocked.problem))


def why_gated(core: Core, entry: Entry) -> str:
    """What a pod that must not be tried waits for, in words: a quota, or its pod group."""
    blocked = held_back(core, entry)
    if blocked is not None:
        return blocked.text()
    members = core.state.groups.members.get(entry.pod.group)
    return members.why if members is not None and members.why else entry.pod.condition[2]


def class_name(pod: Pod) -> str:
    """The same in every process and term for pods that ask for the same."""
    return blake2b(msgspec.msgpack.encode((pod.pod_class, pod.relations)), digest_size=5).hexdigest()


def by_class(picture: PendingPicture, wanted: Callable[[PendingGroup], bool]) -> list[PendingGroup]:
    """The groups that are wanted, those that differ in namespace and priority alone as one: pods of one class that wait
    for one reason, with one sentence about it."""
    merged: dict[Hashable, _Group] = {}
    for group, shown in zip(picture.grouped, picture.groups, strict=True):
        if not wanted(shown):
            continue
        key = (group.reason, group.plugins, group.of.name, group.message)
        one = merged.get(key)
        if one is None:
            merged[key] = replace(group, places=Counter(group.places), others=[])
            continue
        one.others.append(group)
        one.places.update(group.places)
        if group.since < one.since:
            one.since, one.oldest = group.since, group.oldest
    return [_shown(group, picture.at) for group in merged.values()]


def _shown(group: _Group, now: float) -> PendingGroup:
    pods = group.places.total()
    judged = None if group.reason in UNJUDGED or group.message else group.of.judged
    helps = [_help(one, pods) for one in judged.helps[:MOST_HELPS]] if judged is not None else []
    if group.reason == PAUSED and (judged is None or judged.helps == [RESUME]):
        judged, helps = None, [_help(RESUME, pods)]
    namespaces = sorted({group.namespace, *(one.namespace for one in group.others)})
    priorities = sorted({group.priority, *(one.priority for one in group.others)})
    return PendingGroup(
        reason=group.reason,
        plugins=sorted(group.plugins),
        namespace=namespaces[0] if len(namespaces) == 1 else "",
        priority=priorities[-1],
        namespaces=namespaces,
        priorities=priorities,
        class_=group.of.name,
        pods=pods,
        places=dict(group.places),
        oldest_s=round(max(0.0, now - group.since), 3),
        oldest_pod=group.oldest,
        requests={NAMES.get(name, name): amount for name, amount in group.of.pod.pod_class.requests},
        message=judged.message if judged is not None else group.message,
        reasons=judged.reasons if judged is not None else {},
        helps=helps,
        means=means(group.reason),
        remedy=group.remedy or remedy(group.reason),
        page=page(group.reason),
    )


def _help(one: Help, pods: int) -> HelpShown:
    lets_in = None if one.lets_in is None else min(one.lets_in, pods)
    return HelpShown(kind=one.kind, target=one.target, text=one.text, lets_in=lets_in, of=pods)


def _rolled(groups: Iterable[_Group], by: str, kind: Callable[..., T], now: float) -> list[T]:
    """Pods of all groups by one of their fields, most first."""
    pods: Counter[str | int] = Counter()
    since: dict[str | int, float] = {}
    for group in groups:
        key = getattr(group, by)
        pods[key] += group.places.total()
        since[key] = min(since.get(key, group.since), group.since)
    return [
        kind(**{by: key}, pods=count, oldest_s=round(max(0.0, now - since[key]), 3))
        for key, count in pods.most_common(MOST_ROLLED_UP)
    ]


# --- one change for all classes -------------------------------------------------------------------------------------


def _for_all(core: Core, classes: list[Class]) -> Generator[None, None, list[HelpShown]]:
    """The changes that would let in most over all classes: those of higher priority take the room first."""
    merged: dict[tuple[str, str, str], list[tuple[Class, Help]]] = {}
    for one in classes:
        for offered in one.judged.helps if one.judged is not None else ():
            # another amount is another change: what helps one class would leave the other where it is
            amount = offered.text if offered.kind == "fewer_requests" else ""
            merged.setdefault((offered.kind, offered.target, amount), []).append((one, offered))
    yield
    known = {key: users for key, users in merged.items() if users[0][1].lets_in is not None and key[0] != "free"}
    most = sorted(known, key=lambda key: -sum(offered.lets_in or 0 for _, offered in known[key]))[:PACKED]
    shown = []
    for key in most:
        users = sorted(known[key], key=lambda user: (-user[0].pod.priority, user[0].since))
        lets_in = yield from _packed(core, key, users)
        largest = max(users, key=lambda user: user[0].refused)[1]
        wanted = sum(one.refused for one, _ in users)
        shown.append(HelpShown(kind=key[0], target=key[1], text=largest.text, lets_in=lets_in, of=wanted))
    shown.sort(key=lambda one: -(one.lets_in or 0))
    for key in merged.keys() - known.keys():
        if key[0] in ("other", RESUME.kind):
            waiting = sum(one.refused for one, _ in merged[key])
            found = HelpShown(kind=key[0], target=key[1], text=merged[key][0][1].text, lets_in=None, of=waiting)
            shown.insert(0 if key[0] == RESUME.kind else len(shown), found)
    return shown[:MOST_HELPS_FOR_ALL]


def _packed(core: Core, key: tuple[str, str, str], users: list[tuple[Class, Help]]) -> Generator[None, None, int]:
    """How many pods of all these classes the change lets in, one after the other on the room there is."""
    table, total = core.state.cache.table, 0
    free: IntArray = table.allocatable[:, : table.rows] - table.requested[:, : table.rows]
    if key[0] == "add_node":
        row = table.row_of.get(key[1])
        if row is None:
            return 0
        free[:, row] = table.allocatable[:, row]
    for one, offered in users:
        if key[0] == "add_node":
            rows = np.array([table.row_of.get(key[1], 0)])
        elif offered.opens is not None:
            opened = np.unpackbits(np.frombuffer(offered.opens, np.uint8)).astype(np.bool_)[: free.shape[1]]
            rows = np.flatnonzero(opened)
        else:  # each class has room of its own: a smaller request, a node that takes it by now
            total += offered.lets_in or 0
            continue
        fitting = copies(table, one.pod, rows, free=free)
        # as many as wait, on the first nodes that have room
        before = np.cumsum(fitting) - fitting
        taken = np.clip(one.refused - before, 0, fitting)
        total += int(taken.sum())
        for name, amount in (*one.pod.pod_class.requests, ("pods", 1)):
            column = PODS_COLUMN if name == "pods" else table.column_of.get(name)
            if column is not None and column < free.shape[0]:
                free[column, rows] -= taken * amount
        yield
    return total
