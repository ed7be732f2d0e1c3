"""Pod groups for people, from facts made by hand: phase, why it waits, members by state and node."""

from __future__ import annotations

import msgspec
import pytest

from services.coordinator.inspect.units import (
    PODS_IN_A_ROW,
    GroupFacts,
    MemberFacts,
    VictimFacts,
    phase_of,
    shown,
    whole,
    why,
)
from shared.model.units.pod_group import GroupSource, GroupTopology, PodGroup, WhenGangBreaks

KEY = "podgroup:d/train"


def wall_of(at: float) -> str:
    return f"t{at:g}"


def group(**changes: object) -> PodGroup:
    plain = PodGroup(
        KEY, GroupSource.NATIVE, "d", "train", gang=True, min_count=3, api_version="scheduling.k8s.io/v1beta1"
    )
    return msgspec.structs.replace(plain, **changes)


def member(number: int, state: str, **changes: object) -> MemberFacts:
    told = {"node": f"n{number}" if state == "bound" else "", "first_seen": None if state == "bound" else 90.0 + number}
    return MemberFacts(f"u{number}", "d", f"train-{number}", state, **(told | changes))  # type: ignore[arg-type]


def facts(*states: str, of: PodGroup | None = None, **changes: object) -> GroupFacts:
    members = [member(number, state) for number, state in enumerate(states)]
    return GroupFacts(KEY, "d", "train", of or group(), members, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("states", "phase"),
    [
        ((), "waiting"),
        (("gated", "gated"), "waiting"),
        (("unschedulable",) * 3, "waiting"),
        (("offered",) * 3, "placing"),
        (("bound", "bound", "planned"), "placing"),
        (("bound",) * 3, "running"),
        (("bound", "bound", "bound", "unschedulable"), "running"),
        (("bound", "bound", "unschedulable"), "broken"),
        (("bound",), "broken"),
    ],
)
def test_the_phase_follows_from_the_members(states: tuple[str, ...], phase: str) -> None:
    assert phase_of(facts(*states)) == phase


def test_a_group_that_ran_and_has_no_member_left_has_ended() -> None:
    ran = group(condition=("PodGroupInitiallyScheduled", "True", "Scheduled", ""))
    assert (phase_of(facts(of=ran)), why(facts(of=ran))) == ("ended", ("", ""))
    assert whole(facts(of=ran), 100.0, wall_of).missing == 0
    assert phase_of(facts("gated", of=ran)) == "waiting"


def test_members_that_have_succeeded_have_run() -> None:
    finishing = facts("bound", "bound", done=1)
    assert (phase_of(finishing), why(finishing), whole(finishing, 100.0, wall_of).missing) == ("running", ("", ""), 0)
    assert (phase_of(facts(done=3)), why(facts(done=3))) == ("ended", ("", ""))
    assert phase_of(facts("gated", done=2)) == "waiting"


def test_a_group_without_a_minimum_is_never_broken() -> None:
    assert phase_of(facts("bound", "unschedulable", of=group(gang=False, min_count=1))) == "running"


def test_what_is_wrong_with_the_object_speaks_before_what_is_missing_and_before_the_queue() -> None:
    queued = {"reason": "NodeResourcesFit", "message": "0/3 nodes are available"}
    missing = GroupFacts(KEY, "d", "train", None, [member(0, "gated")], **queued)
    assert why(missing) == ("GroupMissing", "there is no PodGroup train in d; create it")
    unusable = facts("gated", of=group(problem="spec.schedulingPolicy.gang.minCount: 0; give 1 or more"), **queued)
    assert why(unusable)[0] == "GroupInvalid"
    short = facts("gated", **queued)
    assert why(short) == ("Incomplete", "1 of at least 3 members exist; 2 more must be created")
    assert why(facts("unschedulable", "unschedulable", "unschedulable", **queued)) == tuple(queued.values())
    assert why(facts("bound", "bound", "bound", **queued)) == ("", "")


def test_members_of_another_scheduler_are_not_missing() -> None:
    mixed = facts("gated", "gated", foreign=1, reason="GroupInvalid", message="all pods should have one scheduler")
    assert why(mixed) == ("GroupInvalid", "all pods should have one scheduler")
    assert whole(mixed, 100.0, wall_of).missing == 0
    assert why(facts(foreign=2)) == ("GroupInvalid", "its pods name another scheduler")


def test_a_row_is_bounded_and_tells_how_many_there_are() -> None:
    many = facts(*["unschedulable"] * 20, position=2, queue="vision", place="unschedulable")
    found = shown(many, 100.0, wall_of)
    assert (found.members, found.bound, len(found.pods)) == (20, 0, PODS_IN_A_ROW)
    assert (found.queue, found.position, found.place, found.source) == ("vision", 2, "unschedulable", "podgroup")
    assert (found.since, found.waiting_s, found.min_member) == ("t90", 10.0, 3)


def test_the_priority_is_the_groups_own_or_that_of_its_most_important_member() -> None:
    members = [member(0, "active", priority=5), member(1, "active", priority=9)]
    assert shown(GroupFacts(KEY, "d", "train", group(), members), 100.0, wall_of).priority == 9
    assert shown(GroupFacts(KEY, "d", "train", group(priority=2), members), 100.0, wall_of).priority == 2


def test_members_that_wait_come_first_and_are_counted_by_state_and_node() -> None:
    members = [
        member(0, "bound", node="n1"), member(1, "bound", node="n1"), member(10, "active"), member(2, "active"),
        member(3, "planned", node="n2"),
    ]  # fmt: skip
    found = whole(GroupFacts(KEY, "d", "train", group(), members), 100.0, wall_of)
    assert [one.name for one in found.listed] == ["train-2", "train-10", "train-3", "train-0", "train-1"]
    assert (found.states, found.nodes) == ({"bound": 2, "active": 2, "planned": 1}, {"n1": 2})
    assert found.phase == "placing"


def test_everything_that_decides_about_a_group_is_told() -> None:
    told = ("PodGroupInitiallyScheduled", "False", "Unschedulable", "no room")
    rack = GroupTopology("rack", required=False)
    of = group(topology=rack, whole=True, broken=WhenGangBreaks.EVICT, timeout_s=60.0, condition=told)
    victims = [VictimFacts("d/low", "n1", 0, "evicted", 95.0)]
    found = whole(facts("gated", of=of, domain="r7", victims=victims), 100.0, wall_of)
    assert found.topology is not None
    assert (found.topology.key, found.topology.required, found.topology.domain) == ("rack", False, "r7")
    assert (found.whole, found.on_broken, found.timeout_s, found.missing) == (True, "evict", 60.0, 2)
    assert found.condition is not None
    assert (found.condition.type, found.condition.message) == ("PodGroupInitiallyScheduled", "no room")
    assert [(one.pod, one.ago_s) for one in found.victims] == [("d/low", 5.0)]
    bare = whole(GroupFacts(KEY, "d", "train", None, []), 100.0, wall_of)
    assert (bare.condition, bare.topology, bare.since, bare.waiting_s) == (None, None, "", None)
