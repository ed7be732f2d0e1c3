"""A gang on its way through the binder: which members, how many must stand, and the only moves that it may make.

Members go through ``in_flight.py`` each for itself; the gang joins them where they stand or fall together::

    plan --> GATHERING --(all judged, enough fit)--> COMMITTING --(links, then the head)--> COMMITTED
                 |  too few fit                          | stale, refused                       |  enough may be bound
                 v                                       v                                      v
               ENDED                                   ENDED                                 BINDING <--> FAILING
                                                                                                |            |
    takeover --> COMMITTED (inherited)                                                          v            v
                                                                                              ENDED        ENDED

A gang is *short* when those that are bound and those that may still be are fewer than its minimum. While nobody is
bound, a short gang sends no more Bindings: FAILING finds out what became of those that are under way, and gives the
rest back if none of them is bound. Once somebody is bound, the rest goes on: what becomes of a broken gang is the
coordinator's to decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from services.binder.core.in_flight import BindingStage, InFlightBinding
from shared.wire.messages import Outcome
from shared.wire.records import Intent, IntentPod

REASONS_KEPT = 4
"""Members of which a gang remembers why they cannot go, for people."""


class GangStage(Enum):
    """Where a gang is on its way; see the module's diagram."""

    GATHERING = "gathering"
    COMMITTING = "committing"
    COMMITTED = "committed"
    BINDING = "binding"
    FAILING = "failing"
    ENDED = "ended"


GANG_TRANSITIONS: Mapping[GangStage, frozenset[GangStage]] = {
    GangStage.GATHERING: frozenset({GangStage.COMMITTING, GangStage.ENDED}),
    GangStage.COMMITTING: frozenset({GangStage.COMMITTED, GangStage.ENDED}),
    GangStage.COMMITTED: frozenset({GangStage.BINDING, GangStage.FAILING, GangStage.ENDED}),
    GangStage.BINDING: frozenset({GangStage.FAILING, GangStage.ENDED}),
    GangStage.FAILING: frozenset({GangStage.BINDING, GangStage.ENDED}),
    GangStage.ENDED: frozenset(),
}

LET_GO = frozenset({Outcome.CONFLICT, Outcome.REFUSED})
"""Ends after which the coordinator may plan the pod anew: then no intent of the gang may name it any more."""

_UNCLEAR = frozenset({BindingStage.BINDING, BindingStage.READING, BindingStage.MARKING})


@dataclass(slots=True)
class InFlightGang:
    """One gang on its way. ``min_count``: so many members are to be bound, ``bound`` counts those that are.

    ``members``: those not settled yet, by uid, in order of preference; ``coming``: how many of its plan, or of the
    intent that an earlier leader left, are not taken up yet. ``leaving``: how many members are being given up.
    ``probe``: whose Binding was sent last. ``parts``: what its intent in etcd names, value by value (the first is the
    head's). ``unwritten``: unit keys of values that wait for their first transaction; ``changed``: indexes of parts
    that etcd does not show as they are.
    """

    key: str
    group: str
    unit: int
    coordinator_term: int
    plan_id: int
    policy: str
    min_count: int
    members: dict[str, InFlightBinding] = field(default_factory=dict)
    stage: GangStage = GangStage.GATHERING
    bound: int = 0
    leaving: int = 0
    coming: int = 0
    over: str = ""
    """Why all of its members are given back; "": they are not."""
    probe: str = ""
    reasons: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    parts: list[dict[str, IntentPod]] = field(default_factory=list)
    unwritten: set[str] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)

    @property
    def gathering(self) -> bool:
        """Whether members may still join: all come with one plan."""
        return self.stage is GangStage.GATHERING and not self.parts and not self.over

    @property
    def committed(self) -> bool:
        """Whether its intent is in etcd, and it has not ended."""
        return self.stage not in (GangStage.GATHERING, GangStage.COMMITTING, GangStage.ENDED)

    @property
    def arriving(self) -> bool:
        """Whether an earlier leader's intent names members that are not judged yet: nothing is decided before."""
        return self.coming > 0 and self.stage is GangStage.COMMITTED

    @property
    def short(self) -> bool:
        """Whether the minimum cannot be met any more."""
        return self.able < self.min_count

    @property
    def able(self) -> int:
        """Members that are bound, may still be, or are not judged yet."""
        return self.bound + len(self.members) + self.coming - self.leaving

    def at_once(self, most: int) -> int:
        """How many of its Bindings may be in flight, of ``most``.

        While nobody is bound a Binding that is refused would decide for all: then one, and none while it is not known
        what became of the last.
        """
        if self.bound or self.min_count <= 1:
            return most
        probe = self.members.get(self.probe)
        return int(probe is None or probe.stage not in _UNCLEAR | {BindingStage.RENEWING})

    def needs(self, member: InFlightBinding) -> bool:
        """Whether the committed gang cannot do without the member, while nobody is bound: it ends with the others."""
        if self.bound or not self.committed:
            return False
        # One that is being given up is out of `able` already: not twice, or a gang fails that has its minimum.
        return self.able - (member.withdrawing is None) < self.min_count

    @property
    def keys(self) -> list[str]:
        """The unit keys of its values in etcd, the head's first."""
        return [self.key, *(f"{self.key}:{link}" for link in range(1, len(self.parts)))]

    def told(self) -> str:
        """Why it cannot go, for people."""
        reasons = list(self.reasons.values())
        if len(self.failed) > len(reasons):
            reasons.append(f"{len(self.failed) - len(reasons)} more")
        why = f": {'; '.join(reasons)}" if reasons else ""
        title = self.group.partition(":")[2] or self.group
        return f"pod group {title} needs {self.min_count} members at once, {self.able} can go{why}"

    def unclear(self) -> Iterator[InFlightBinding]:
        """Members that may be bound, or about to be, without our knowing."""
        return (member for member in self.members.values() if member.loose or member.stage in _UNCLEAR)

    def divide(self, size: int) -> None:
        """Fix which member is named in which value: at most ``size`` in each, a pod's claims counted."""
        self.parts, left = [], 0
        for uid, member in self.members.items():
            entry = member.entry(member.unit)
            if entry.named > left:
                self.parts.append({})
                left = size
            self.parts[-1][uid] = entry
            left -= entry.named
        self.unwritten = set(self.keys)

    def part_of(self, uid: str) -> int | None:
        """The index of the part that names the member."""
        return next((number for number, part in enumerate(self.parts) if uid in part), None)

    def intent(self, number: int, term: int, shard: str) -> Intent:
        """The value of one part, written under the ``term`` of the shard's binder."""
        return Intent(
            plan_id=self.plan_id,
            coordinator_term=self.coordinator_term,
            unit=self.unit,
            pods=tuple(self.parts[number].values()),
            term=term,
            policy=self.policy,
            group=self.group,
            min_count=self.min_count,
            links=len(self.parts) - 1 if number == 0 else 0,
            shard=shard,
        )

    def renewed(self, member: InFlightBinding) -> None:
        """The member's Binding will name another resourceVersion: the intent has to say so first."""
        number = self.part_of(member.uid)
        if number is not None:
            self.parts[number][member.uid] = member.entry(member.unit)
            self.changed.add(number)

    def note(self, member: InFlightBinding, reason: str) -> None:
        """Remember why the member cannot go."""
        self.failed.add(member.uid)
        if len(self.reasons) < REASONS_KEPT:
            self.reasons[member.uid] = f"{member.name}: {reason}"[:160]

    def left(self, member: InFlightBinding, outcome: Outcome, reason: str) -> None:
        """A member is settled. One that may be planned anew is taken out of the intent."""
        del self.members[member.uid]
        self.leaving -= member.withdrawing is not None
        if outcome in (Outcome.BOUND, Outcome.ELSEWHERE):
            self.bound += 1
            return
        self.note(member, reason)
        number = self.part_of(member.uid)
        # Others stay named: nobody plans a pod anew that is bound or gone, and who inherits the gang counts it.
        if outcome in LET_GO and number is not None:
            del self.parts[number][member.uid]
            self.changed.add(number)

    def validate(self) -> Iterator[str]:
        """Members that stand where the gang as a whole does not."""
        committed = self.stage not in (GangStage.GATHERING, GangStage.COMMITTING)
        for uid, member in self.members.items():
            if member.stage in (BindingStage.AWAITED, BindingStage.CHECKED) and committed:
                yield f"gang-atomic: {self.key} is {self.stage.value}, its member {uid} {member.stage.value}"
            if member.stage not in (BindingStage.AWAITED, BindingStage.CHECKED) and not committed:
                yield f"gang-atomic: {uid} is {member.stage.value} before its gang {self.key} is committed"
        leaving = sum(member.withdrawing is not None for member in self.members.values())
        if leaving != self.leaving:
            yield f"gang-counts: {self.key} counts {self.leaving} members that leave, {leaving} do"
        decided = committed and self.stage is not GangStage.FAILING and not self.arriving
        if decided and self.short and not self.bound:
            yield f"gang-minimum: {self.key} cannot be bound by {self.min_count} any more and is {self.stage.value}"
