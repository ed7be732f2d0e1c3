"""Which members a pod group has, and when they may be tried."""

from __future__ import annotations

from msgspec.structs import replace

from shared.model.pod import Pod
from shared.model.units.pod_group import MAX_MEMBERS, GroupSource, GroupTopology, PodGroup, group_key
from shared.scheduling.groups.quorum import MIXED, TOO_FEW
from shared.scheduling.places import ClusterEvent
from shared.scheduling.pod_groups import ON_THEIR_WAY, GroupStanding, PodGroups
from tests.builders import make_pod

KEY = group_key(GroupSource.NATIVE, "default", "train")
GANG = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=2)


def member(name: str, **changes: object) -> Pod:
    return replace(make_pod(name).pod(), group=KEY, **changes)


def groups_of(group: PodGroup | None, *pods: Pod) -> PodGroups:
    groups = PodGroups({KEY: group} if group is not None else {}, ("conclave",))
    for pod in pods:
        groups.see_pending(pod)
    assert list(groups.validate()) == []
    return groups


def test_members_stand_together_once_their_group_is_there_and_complete() -> None:
    a, b = member("a"), member("b")
    assert groups_of(None, a, b).standing(KEY)[0] is GroupStanding.GATED
    assert groups_of(GANG, a).standing(KEY) == (GroupStanding.GATED, TOO_FEW)
    assert groups_of(GANG, a, b).standing(KEY) == (GroupStanding.TOGETHER, "")
    assert groups_of(replace(GANG, problem="no"), a, b).standing(KEY) == (GroupStanding.GATED, "no")
    assert groups_of(replace(GANG, gang=False, min_count=1), a).standing(KEY)[0] is GroupStanding.ALONE
    near = replace(GANG, gang=False, min_count=1, topology=GroupTopology("rack"))
    assert groups_of(near, a).standing(KEY)[0] is GroupStanding.TOGETHER
    many = replace(GANG, min_count=MAX_MEMBERS + 1)
    assert "at most 4096" in groups_of(many, a).standing(KEY)[1]


def test_bound_members_count_and_make_the_others_lone_pods() -> None:
    groups = groups_of(GANG, member("a"), member("b"), member("c"))
    groups.land("uid-a", "n0")
    assert (groups.standing(KEY)[0], groups.lacking(KEY)) == (GroupStanding.TOGETHER, 1)
    groups.see_bound(member("b", node_name="n1"))
    assert (groups.standing(KEY)[0], groups.lacking(KEY)) == (GroupStanding.ALONE, 0)
    groups.see_gone("uid-a")
    assert groups.lacking(KEY) == 1
    assert list(groups.validate()) == []


def test_nobody_is_tried_while_members_are_on_their_way() -> None:
    groups = groups_of(GANG, member("a"), member("b"), member("c"))
    groups.send_away("uid-a")
    assert groups.standing(KEY) == (GroupStanding.GATED, ON_THEIR_WAY)
    groups.take_back("uid-a")
    assert groups.standing(KEY)[0] is GroupStanding.TOGETHER


def test_one_member_of_another_scheduler_holds_up_all() -> None:
    groups = groups_of(GANG, member("a"), member("b"))
    groups.see_foreign(member("x", scheduler_name="other"))
    assert groups.standing(KEY) == (GroupStanding.GATED, MIXED)
    groups.see_gone("uid-x")
    assert groups.standing(KEY)[0] is GroupStanding.TOGETHER
    assert groups.take_touched()[KEY].helped


def test_a_job_that_is_no_gang_is_no_group() -> None:
    key = group_key(GroupSource.JOB, "default", "job")
    groups = PodGroups({key: PodGroup(key, GroupSource.JOB, "default", "job")}, ("conclave",))
    groups.see_pending(replace(make_pod("a").pod(), group=key))
    assert groups.standing(key)[0] is GroupStanding.ALONE
    assert groups.group(key) is None


def test_only_what_may_help_wakes_members_that_were_tried_in_vain() -> None:
    objects = {KEY: GANG}
    groups = PodGroups(objects, ("conclave",))
    groups.see_pending(member("a"))
    groups.take_touched()
    for changed, helps in (
        (replace(GANG, min_count=3), False),
        (replace(GANG, min_count=1), True),
        (replace(GANG, topology=GroupTopology("rack")), True),
        (replace(GANG, labels={"a": "b"}), False),
    ):
        objects[KEY] = changed
        groups.change(KEY, GANG)
        touch = groups.take_touched()[KEY]
        assert (touch.helped, touch.event) == (helps, ClusterEvent.POD_GROUP_CHANGED)
    groups.see_gone("uid-a")
    assert not groups.take_touched()[KEY].helped
    assert groups.members == {}


def test_a_group_is_as_important_as_it_says_or_as_its_first_member() -> None:
    groups = groups_of(GANG, member("a", priority=3), member("b", priority=7))
    assert groups.priority(KEY) == 7
    groups.see_gone("uid-b")
    assert groups.priority(KEY) == 3
    assert groups_of(replace(GANG, priority=5), member("a", priority=9)).priority(KEY) == 5


def test_what_is_broken_between_members_and_counts_is_named() -> None:
    groups = groups_of(GANG, member("a"))
    groups.members[KEY].bound["uid-a"] = "n0"
    groups.members[KEY].priorities[4] = 1
    del groups.key_of["uid-a"]
    problems = list(groups.validate())
    assert len(problems) == 3
    assert all(problem.startswith("pod-groups: ") for problem in problems)
