"""Which members every pod group has, and whether they may be tried: alone, together, or not yet.

    pod with a group --> pending | away (planned, or of an open intent) | bound | of another scheduler
    group object, counts --standing--> ALONE: as lone pods · TOGETHER: at least what the minimum lacks, or none · GATED

The group objects are ``ClusterState.pod_groups``; here are the members, by uid, whichever of the two came first. Every
call costs the same however large the group is; ``touched`` collects what changed, for the coordinator's keeper, which
moves the members in the scheduling queue. Nothing is remembered that the API server does not show, or the open plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from msgspec.structs import replace

from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup
from shared.model.units.queue import QUEUE_LABEL
from shared.scheduling.groups.quorum import Roll, complete, short_of, why_not_queued
from shared.scheduling.places import ClusterEvent

ALL = 2**31
"""More members than any group has."""

ON_THEIR_WAY = "waiting for members of the pod group that are on their way to nodes"
"""What members wait for, beside the texts of ``quorum.py``."""


class GroupStanding(Enum):
    """How members of a group that wait may be tried."""

    GATED = "gated"
    TOGETHER = "together"
    ALONE = "alone"


@dataclass(slots=True)
class GroupMembers:
    """One group's. ``pending``: ours that may be tried, those ``away`` included; ``bound``: where each runs (bound,
    not finished, not terminating); ``foreign``: of other schedulers; ``priorities``: of the pending ones."""

    pending: dict[str, Pod] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    untold: dict[str, float] = field(default_factory=dict)
    """Pending members that were given back though no binder has said what became of them, in order of the time until
    which they may be bound yet."""
    bound: dict[str, str] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    """Members that have succeeded: they count no more, but they have run."""
    failed: set[str] = field(default_factory=set)
    past: int = 0
    """How many have succeeded and are deleted since, in the run that goes on: somebody may do that at once."""
    excused: int = 0
    """How many of those that have succeeded or failed may stand for members that are not there: somebody would have
    come in their place by now."""
    priorities: Counter[int] = field(default_factory=Counter)
    queues: Counter[str] = field(default_factory=Counter)
    """Which queues the pending ones name by their label, "" for none."""
    standing: GroupStanding = GroupStanding.GATED
    """As last acted upon."""
    why: str = ""
    """What the members wait for, where they are gated."""
    since: float = 0.0
    """Since when that is so."""
    moved: float = 0.0
    """When a member came last, or came back."""
    home: str = ""
    """Which shard's binder commits the members, where that is not the one that the key says."""
    spans: bool = False
    """The members are not confined to nodes of that shard."""
    planned: bool = False
    """Some of it were on their way already: its shard does not change any more."""

    @property
    def waiting(self) -> int:
        """Members that could be tried."""
        return len(self.pending) - len(self.away)

    def __bool__(self) -> bool:
        return bool(self.pending or self.bound or self.foreign or self.done or self.failed)

    @property
    def succeeded(self) -> int:
        """Those that have run to their end, whether they are there still or not."""
        return len(self.done) + self.past

    @property
    def there(self) -> int:
        """Those that run or could."""
        return len(self.bound) + len(self.pending)


@dataclass(slots=True)
class Touch:
    """What happened to a group since somebody last looked: the last event that may help, and to which members."""

    event: ClusterEvent
    uids: dict[str, None] = field(default_factory=dict)
    helped: bool = False
    """Whether members that were tried in vain may be tried again."""
    requeued: bool = False
    """Whether the group names another queue than before."""
    recounted: bool = False
    """Whether queues count its members otherwise than before: elsewhere, or so many of them together."""


class PodGroups:
    """Members by group."""

    def __init__(self, objects: Mapping[str, PodGroup], ours: Collection[str]) -> None:
        self._objects = objects
        self._ours = ours
        self.members: dict[str, GroupMembers] = {}
        self.touched: dict[str, Touch] = {}
        self.key_of: dict[str, str] = {}
        """By uid, the group that a pod was last seen in."""
        self.demanding: dict[str, None] = {}
        """Keys of the groups that are not tried before the cluster has what they name."""
        self._totals: Mapping[str, int] = {}

    # --- what is seen of members --------------------------------------------------------------------------------

    def see_pending(self, pod: Pod) -> None:
        """A pod of ours that waits, and may be tried; its group may have changed."""
        uid, before = pod.uid, self.key_of.get(pod.uid, "")
        if before != pod.group:
            self.see_gone(uid)
        if not pod.group:
            return
        members = self._into(pod.group)
        known = members.pending.get(uid)
        if not members.there:
            members.excused = 0  # what comes now is waited for anew
            if members.succeeded >= self.minimum(pod.group):
                members.past = 0  # and it is another run
        self.key_of[uid] = pod.group
        members.pending[uid] = pod
        if known is None:
            members.bound.pop(uid, None)
            members.foreign.discard(uid)
            self._count(members, pod, 1)
            self._touch(pod.group, ClusterEvent.MEMBER_ADDED, uid, helped=True)
        elif (known.priority, _queue(known)) != (pod.priority, _queue(pod)):
            self._count(members, known, -1)
            self._count(members, pod, 1)
            self._touch(pod.group, ClusterEvent.MEMBER_ADDED, uid)

    def see_bound(self, pod: Pod) -> None:
        """A pod on a node, not finished and not terminating."""
        if self.key_of.get(pod.uid, "") != pod.group:
            self.see_gone(pod.uid)
        if not pod.group:
            return
        self.key_of[pod.uid] = pod.group
        members = self._into(pod.group)
        if pod.scheduler_name not in self._ours:
            if pod.uid not in members.foreign:
                members.foreign.add(pod.uid)
                self._touch(pod.group, ClusterEvent.POD_ADDED, pod.uid)
            return
        self.land(pod.uid, pod.node_name)

    def land(self, uid: str, node_name: str) -> None:
        """A member is bound to this node: the watch shows it, or the binder says so."""
        key = self.key_of.get(uid)
        if key is None:
            return
        members = self.members[key]
        if members.bound.get(uid) == node_name:
            return
        self._leave(members, uid)
        members.bound[uid] = node_name
        self._touch(key, ClusterEvent.POD_ADDED, uid, helped=True)

    def see_foreign(self, pod: Pod) -> None:
        """A pending pod of another scheduler."""
        if self.key_of.get(pod.uid, "") != pod.group:
            self.see_gone(pod.uid)
        if not pod.group:
            return
        members = self._into(pod.group)
        if pod.uid not in members.foreign:
            self._leave(members, pod.uid)
            members.bound.pop(pod.uid, None)
            members.foreign.add(pod.uid)
            self.key_of[pod.uid] = pod.group
            self._touch(pod.group, ClusterEvent.MEMBER_ADDED, pod.uid)

    def see_ended(self, pod: Pod) -> None:
        """A pod that has succeeded or failed. One that was deleted before, or evicted, has not run to its end, whatever
        it says."""
        key = self.key_of.get(pod.uid, "")
        if key and (pod.uid in self.members[key].done or pod.uid in self.members[key].failed):
            return
        self.see_gone(pod.uid)
        if pod.group and not pod.terminating:
            self.key_of[pod.uid] = pod.group
            members = self._into(pod.group)
            (members.done if pod.phase == "Succeeded" else members.failed).add(pod.uid)

    def see_deleted(self, uid: str) -> None:
        """There is no such pod any more; one that had succeeded counts on."""
        members = self.members.get(self.key_of.get(uid, ""))
        if members is not None and uid in members.done:
            members.past += 1
        self.see_gone(uid)

    def see_gone(self, uid: str) -> None:
        """The pod is deleted, terminating, finished, or cannot be tried; an unknown uid is fine."""
        key = self.key_of.pop(uid, None)
        if key is None:
            return
        members = self.members[key]
        self._leave(members, uid)
        members.bound.pop(uid, None)
        members.done.discard(uid)
        members.failed.discard(uid)
        was_foreign = uid in members.foreign
        members.foreign.discard(uid)
        self._touch(key, ClusterEvent.POD_DELETED, uid, helped=was_foreign)

    def send_away(self, uid: str) -> None:
        """The member is planned, or an open intent names it: where it will be is not known."""
        key = self.key_of.get(uid)
        if key is None:
            return
        members = self.members[key]
        if uid in members.pending and uid not in members.away:
            members.away.add(uid)
            members.planned = True
            self._touch(key, ClusterEvent.POD_ADDED, uid)

    def take_back(self, uid: str) -> None:
        """The member's plan, or intent, is over: it is bound, gone or waits again."""
        key = self.key_of.get(uid)
        if key is not None and uid in (members := self.members[key]).away:
            members.away.discard(uid)
            self._touch(key, ClusterEvent.MEMBER_ADDED, uid, helped=True)

    def given_back(self, uid: str, *, untold_until: float | None) -> None:
        """The member waits again, by the word of its binder, which does not bind it any more (None); without that it
        may be bound yet, until then."""
        members = self.members.get(self.key_of.get(uid, ""))
        if members is None:
            return
        members.untold.pop(uid, None)
        if untold_until is not None and uid in members.pending:
            members.untold[uid] = untold_until

    def in_doubt(self, key: str, now: float) -> bool:
        """Whether a member that waits may be bound yet, since no binder has said what became of it."""
        members = self.members.get(key)
        return members is not None and bool(members.untold) and now < next(reversed(members.untold.values()))

    def change(self, key: str, before: PodGroup | None) -> None:
        """The group's object came, changed or went; the new one is among the objects."""
        group = self._objects.get(key)
        if group is not None and group.min_resources:
            self.demanding[key] = None
        else:
            self.demanding.pop(key, None)
        helped = group is not None and (before is None or _helps(before, group))
        self._touch(key, ClusterEvent.POD_GROUP_ADDED if before is None else ClusterEvent.POD_GROUP_CHANGED, "",
                    helped=helped)  # fmt: skip
        self.touched[key].requeued |= _named_queue(before) != _named_queue(group)
        self.touched[key].recounted |= self.touched[key].requeued or _keeps(before) != _keeps(group)

    def measure(self, totals: Mapping[str, int]) -> None:
        """What all nodes have together, by resource; it is told while there are groups that are ``demanding``."""
        self._totals = totals
        for key in self.demanding:
            members = self.members.get(key)
            if members is not None and members.standing is GroupStanding.GATED:
                self._touch(key, ClusterEvent.NODE_ADDED, "")

    def touch(self, key: str, uid: str = "") -> None:
        """Look at the group again, and at this member: they are back from an attempt, or nominated. An unknown key is
        fine."""
        if key in self.members:
            self._touch(key, ClusterEvent.MEMBER_ADDED, uid)

    def take_touched(self) -> dict[str, Touch]:
        """What happened since the last call, by group."""
        touched, self.touched = self.touched, {}
        for key in touched:
            members = self.members.get(key)
            if members is not None and not members and not (members.past and key in self._objects):
                del self.members[key]
        return touched

    def touch_all(self) -> None:
        """Look at every group, and at all its members that wait: nobody has yet."""
        for key, members in self.members.items():
            self._touch(key, ClusterEvent.MEMBER_ADDED, "", helped=True)
            self.touched[key].uids.update(dict.fromkeys(members.pending))

    # --- what follows -------------------------------------------------------------------------------------------

    def group(self, key: str) -> PodGroup | None:
        """The group's object; None while there is none, and of a Job that is not a gang."""
        found = self._objects.get(key)
        return None if found is None or _no_group(found) else found

    def minimum(self, key: str) -> int:
        """So many members run at once, or none."""
        group = self._objects.get(key)
        return group.min_count if group is not None and group.gang else 1

    def keeps(self, key: str) -> int:
        """So many members stay, or none does, where somebody else wants their room: the minimum, or all."""
        return _keeps(self._objects.get(key))

    def excuse(self, key: str, count: int) -> None:
        """So many members that have ended may stand for others from now on; the group is looked at again."""
        self.members[key].excused = count
        self._touch(key, ClusterEvent.POD_DELETED, "", helped=True)

    def missing(self, key: str) -> int:
        """How many members of a gang its minimum lacks that are not there at all."""
        members = self.members.get(key)
        return max(0, self.minimum(key) - (members.there if members is not None else 0))

    def ended(self, key: str) -> int:
        """How many members that have ended stand for such: no more than would be missed."""
        members = self.members.get(key)
        if members is None or not members.excused:
            return 0
        return min(members.excused, members.succeeded + len(members.failed), self.missing(key))

    def ran(self, key: str) -> int:
        """How many members that have ended count beside those that run: a gang that ends one by one is not broken. The
        minimum of a Job is what may still run, without those that have succeeded."""
        members, group = self.members.get(key), self._objects.get(key)
        if members is None or (group is not None and group.source is GroupSource.JOB):
            return self.ended(key)
        return max(min(members.succeeded, self.missing(key)), self.ended(key))  # nobody stands for one who is there

    def broken(self, key: str) -> bool:
        """Whether fewer members run than the minimum, and none is on its way."""
        members = self.members.get(key)
        if members is None or not members.bound or members.away:
            return False
        return len(members.bound) + self.ran(key) < self.minimum(key)

    def as_it_stands(self, key: str) -> PodGroup | None:
        """As ``group``, with the minimum that those who are there must reach."""
        group, ended = self.group(key), self.ended(key)
        return replace(group, min_count=group.min_count - ended) if group is not None and ended else group

    def label(self, key: str) -> str:
        """The queue that the group names for members that name none; "" where it names none either."""
        return _named_queue(self.group(key))

    def lacking(self, key: str) -> int:
        """How many members more must be bound at once, those that are bound counted."""
        members = self.members.get(key)
        return max(0, self.minimum(key) - self.ended(key) - (len(members.bound) if members is not None else 0))

    def priority(self, key: str) -> int:
        """The group's own, or that of its most important member."""
        group, members = self._objects.get(key), self.members[key]
        if group is not None and group.priority is not None:
            return group.priority
        return max(members.priorities, default=0)

    def standing(self, key: str) -> tuple[GroupStanding, str]:
        """How the group's members may be tried now, and if not at all, why."""
        group, members = self._objects.get(key), self.members.get(key) or GroupMembers()
        if group is not None and _no_group(group):
            return GroupStanding.ALONE, ""
        bound, ended = len(members.bound), self.ended(key)
        roll = Roll(members.there, bound, bool(members.foreign), members.queues, ended)
        if why := why_not_queued(key, group, roll, self._totals):
            return GroupStanding.GATED, why
        if group is not None and complete(group, bound, ended):
            return GroupStanding.ALONE, ""
        return (GroupStanding.GATED, ON_THEIR_WAY) if members.away else (GroupStanding.TOGETHER, "")

    def short_of_nodes(self, key: str) -> bool:
        """Whether the group is held since it asks for more than all nodes have: then more of them would help."""
        group, members = self._objects.get(key), self.members.get(key)
        why = short_of(group, self._totals) if group is not None else ""
        return bool(why) and members is not None and members.why == why

    def validate(self) -> Iterator[str]:
        """What is broken between members and counts; nothing while all is well."""
        known = {uid: key for key, members in self.members.items() for uid in _all(members)}
        for uid in known.keys() | self.key_of.keys():
            if known.get(uid) != self.key_of.get(uid):
                yield f"pod-groups: {uid} is in {known.get(uid)}, kept under {self.key_of.get(uid)}"
        for key, members in self.members.items():
            waiting = members.pending.keys()
            if (members.away | members.untold.keys()) - waiting or members.bound.keys() & waiting:
                yield f"pod-groups: a member of {key} is in two states"
            if Counter(pod.priority for pod in members.pending.values()) != members.priorities:
                yield f"pod-groups: the priorities of {key} are miscounted"
            if Counter(map(_queue, members.pending.values())) != members.queues:
                yield f"pod-groups: the queues of {key} are miscounted"

    # --- inside -------------------------------------------------------------------------------------------------

    def _into(self, key: str) -> GroupMembers:
        members = self.members.get(key)
        if members is None:
            members = self.members[key] = GroupMembers()
        return members

    @staticmethod
    def _count(members: GroupMembers, pod: Pod, sign: int) -> None:
        queue = _queue(pod)
        members.priorities[pod.priority] += sign
        members.queues[queue] += sign
        if not members.priorities[pod.priority]:
            del members.priorities[pod.priority]
        if not members.queues[queue]:
            del members.queues[queue]

    def _leave(self, members: GroupMembers, uid: str) -> None:
        known = members.pending.pop(uid, None)
        members.away.discard(uid)
        members.untold.pop(uid, None)
        if known is not None:
            self._count(members, known, -1)

    def _touch(self, key: str, event: ClusterEvent, uid: str, *, helped: bool = False) -> None:
        touch = self.touched.get(key)
        if touch is None:
            touch = self.touched[key] = Touch(event)
        if helped or not touch.helped:
            touch.event = event
        touch.helped |= helped
        if uid:
            touch.uids[uid] = None


def _queue(pod: Pod) -> str:
    return pod.labels.get(QUEUE_LABEL, "")


def _named_queue(group: PodGroup | None) -> str:
    return group.labels.get(QUEUE_LABEL, "") if group is not None else ""


def _keeps(group: PodGroup | None) -> int:
    if group is None or not (group.gang or group.whole):
        return 1
    return ALL if group.whole else group.min_count


def _no_group(group: PodGroup) -> bool:
    """A Job that nobody made a gang: its pods are scheduling units of their own."""
    return group.source is GroupSource.JOB and not group.gang


def _helps(before: PodGroup, group: PodGroup) -> bool:
    """Whether members that were tried in vain may fit by the group's new object (kube-scheduler: its minCount fell)."""
    return (
        group.min_count < before.min_count
        or group.gang != before.gang
        or group.topology != before.topology
        or group.problem != before.problem
    )


def _all(members: GroupMembers) -> Iterator[str]:
    yield from members.pending
    yield from members.bound
    yield from members.foreign
    yield from members.done
    yield from members.failed
