"""Upstream's list of cases for pod groups (KEP-4671 and ``test/integration/scheduler/podgroup``), on a real mesh.

Each case in a corner of its own, all in one mesh; the watcher judges gangs while they run, the audit afterwards. The
version is that of 1.37; the complaints beside this file run on that of 1.36.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.scenarios.groups.corner import Corner, all_of, priority_classes
from tests.scenarios.invariants import unjust_evictions
from tests.scenarios.world import world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

KUBERNETES_1_37 = ["--simulate", "--kubernetes", "1.37"]


async def members_of_a_missing_group_wait_and_go_when_it_comes(corner: Corner) -> None:
    await corner.nodes(1)
    names = await corner.pods("g", 2, group="g")
    await corner.all_told(names)
    assert "pod group" in corner.told(names[0])
    assert not corner.bound(names)
    await corner.group("g", 2)
    await corner.all_bound(names, "the group is there")


async def fewer_members_than_the_minimum_wait_for_the_last(corner: Corner) -> None:
    await corner.nodes(1)
    await corner.group("g", 3)
    names = await corner.pods("g", 2, group="g")
    await corner.all_told(names)
    assert "minCount" in corner.told(names[0])
    assert not corner.bound(names)
    await corner.all_bound([*names, *await corner.pods("g", 1, first=2, group="g")], "the last member came")


async def a_gang_without_room_binds_nobody_says_so_and_goes_when_there_is_room(corner: Corner) -> None:
    await corner.nodes(1, cpu="2")
    names = await corner.gang("g", 3)
    await corner.all_told(names)
    await corner.until(lambda: corner.condition("g").get("status") == "False", "the group's condition says so")
    assert corner.condition("g")["reason"] == "Unschedulable"
    await corner.none_bound(names)
    await corner.node("more", cpu="1")
    await corner.all_bound(names, "there is room")
    await corner.until(lambda: corner.condition("g").get("status") == "True", "the group's condition says so")


async def a_basic_group_binds_what_fits(corner: Corner) -> None:
    await corner.nodes(1, cpu="2")
    await corner.group("g", None)
    names = await corner.pods("g", 3, group="g")
    await corner.until(lambda: len(corner.bound(names)) == 2, "two fit")


async def more_than_the_minimum_goes_along_and_the_rest_waits(corner: Corner) -> None:
    await corner.nodes(1, cpu="3")
    names = await corner.gang("g", 4, minimum=2)
    await corner.until(lambda: len(corner.bound(names)) == 3, "all that fit go")
    (rest,) = set(names) - set(corner.bound(names))
    await corner.node("more", cpu="1")
    await corner.all_bound([rest], "the rest goes when there is room")


async def gangs_that_compete_neither_block_each_other_nor_start_in_part(corner: Corner) -> None:
    """Ten places, two gangs of eight, created interleaved (scheduler-plugins#930); then the other one runs."""
    await corner.nodes(5, cpu="2")
    await asyncio.gather(corner.group("a", 8), corner.group("b", 8))
    pairs = [await asyncio.gather(corner.pod(f"a-{n}", group="a"), corner.pod(f"b-{n}", group="b")) for n in range(8)]
    first, second = ([pair[which] for pair in pairs] for which in (0, 1))
    await corner.until(lambda: 8 in (len(corner.bound(first)), len(corner.bound(second))), "one of them runs")
    winner, loser = (first, second) if corner.bound(first) else (second, first)
    await corner.none_bound(loser)
    await corner.delete(*winner)
    await corner.all_bound(loser, "the other runs when the first has left")


async def many_gangs_share_what_there_is_without_deadlock(corner: Corner) -> None:
    """Twelve gangs of four for the room of five; each leaves when it has run."""
    await corner.nodes(5)
    groups = [f"g{number}" for number in range(12)]
    waiting = dict(zip(groups, await asyncio.gather(*(corner.gang(name, 4) for name in groups)), strict=True))
    while waiting:
        await corner.until(lambda: any(len(corner.bound(names)) == 4 for names in waiting.values()), "some gang runs")
        for name in [name for name, names in waiting.items() if len(corner.bound(names)) == 4]:
            await corner.delete(*waiting.pop(name))


async def lone_pods_and_a_gang_are_interleaved(corner: Corner) -> None:
    await corner.nodes(2)
    await corner.group("g", 4)
    names: list[str] = []
    for number in range(4):
        names += await asyncio.gather(corner.pod(f"g-{number}", group="g"), corner.pod(f"lone-{number}"))
    await corner.all_bound(names)


async def a_lowered_minimum_lets_a_gang_go(corner: Corner) -> None:
    await corner.nodes(1, cpu="2")
    names = await corner.gang("g", 3)
    await corner.all_told(names)
    await corner.change_group("g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    await corner.until(lambda: len(corner.bound(names)) == 2, "two are enough now")


async def a_deleted_group_stays_until_its_pods_have_ended(corner: Corner) -> None:
    await corner.nodes(1)
    names = await corner.gang("g", 2)
    await corner.all_bound(names)
    await corner.delete_group("g")
    group = corner.full("g")
    leaving = corner.cluster.groups
    await corner.until(lambda: leaving.get(group, {}).get("metadata", {}).get("deletionTimestamp"), "it is leaving")
    await corner.delete(names[0])
    await corner.until(lambda: names[0] not in corner.cluster.pods, "one member is gone")
    assert group in leaving
    await corner.delete(names[1])
    await corner.until(lambda: group not in leaving, "it is gone with its last member")


# --- preemption: the four pairings --------------------------------------------------------------------------------


async def a_pod_preempts_one_member_of_a_group_whose_members_leave_one_by_one(corner: Corner) -> None:
    await corner.nodes(2, cpu="1")
    names = await corner.gang("g", 2, priorityClassName="low")
    await corner.all_bound(names)
    high = await corner.pod("high", priorityClassName="high")
    await corner.all_bound([high], "the pod has its place")
    assert len(corner.bound(names)) == 1


async def a_pod_preempts_a_whole_group_though_one_member_would_do(corner: Corner) -> None:
    await corner.nodes(2, cpu="1")
    await corner.group("g", 2, whole=True, priorityClassName="low")
    names = await corner.pods("g", 2, group="g", priorityClassName="low")
    await corner.all_bound(names)
    high = await corner.pod("high", priorityClassName="high")
    await corner.all_bound([high], "the pod has its place")
    await corner.until(lambda: not corner.bound(names), "the whole group has left")


async def a_group_preempts_pods_and_no_more_than_it_needs(corner: Corner) -> None:
    await corner.nodes(4, cpu="1")
    lows = await corner.pods("low", 4, priorityClassName="low")
    await corner.all_bound(lows)
    names = await corner.gang("g", 3, priorityClassName="high")
    await corner.all_bound(names, "the group has its places")
    assert len(corner.bound(lows)) == 1


async def a_group_preempts_no_more_members_of_a_group_than_it_needs(corner: Corner) -> None:
    await corner.nodes(3, cpu="1")
    lows = await corner.gang("low", 3, priorityClassName="low")
    await corner.all_bound(lows)
    names = await corner.gang("g", 2, priorityClassName="high")
    await corner.all_bound(names, "the group has its places")
    assert len(corner.bound(lows)) == 1


async def a_group_preempts_a_whole_group(corner: Corner) -> None:
    await corner.nodes(3, cpu="1")
    await corner.group("low", 3, whole=True, priorityClassName="low")
    lows = await corner.pods("low", 3, group="low", priorityClassName="low")
    await corner.all_bound(lows)
    names = await corner.gang("g", 2, priorityClassName="high")
    await corner.all_bound(names, "the group has its places")
    await corner.until(lambda: not corner.bound(lows), "the whole group has left")


async def surplus_members_go_before_a_gang_is_broken(corner: Corner) -> None:
    """Two gangs of two, one with two members to spare: these go."""
    await corner.nodes(6, cpu="1")
    rich = await corner.gang("rich", 4, minimum=2, priorityClassName="low")
    poor = await corner.gang("poor", 2, priorityClassName="low")
    await corner.all_bound([*rich, *poor])
    names = await corner.gang("g", 2, priorityClassName="high")
    await corner.all_bound(names, "the group has its places")
    assert (len(corner.bound(rich)), len(corner.bound(poor))) == (2, 2)


async def a_group_that_would_not_fit_after_all_evicts_nobody(corner: Corner) -> None:
    await corner.nodes(2, cpu="1")
    lows = await corner.pods("low", 2, priorityClassName="low")
    await corner.all_bound(lows)
    names = await corner.gang("g", 3, priorityClassName="high")
    await corner.all_told(names)
    await corner.cluster.never(
        lambda _: len(corner.bound(lows)) < 2, for_s=1.5, what="somebody was evicted for nothing"
    )


async def test_groups_are_placed_and_preempt_as_upstreams_do(tmp_path: Path) -> None:
    # a member that leaves with its group leaves a node that nobody wanted: the audit judges it by its group
    async with world(tmp_path, agents=2, twin_flags=KUBERNETES_1_37, but=[unjust_evictions]) as cluster:
        await priority_classes(cluster, low=10, high=1000)
        await all_of(
            cluster,
            members_of_a_missing_group_wait_and_go_when_it_comes,
            fewer_members_than_the_minimum_wait_for_the_last,
            a_gang_without_room_binds_nobody_says_so_and_goes_when_there_is_room,
            a_basic_group_binds_what_fits,
            more_than_the_minimum_goes_along_and_the_rest_waits,
            gangs_that_compete_neither_block_each_other_nor_start_in_part,
            many_gangs_share_what_there_is_without_deadlock,
            lone_pods_and_a_gang_are_interleaved,
            a_lowered_minimum_lets_a_gang_go,
            a_deleted_group_stays_until_its_pods_have_ended,
            a_pod_preempts_one_member_of_a_group_whose_members_leave_one_by_one,
            a_pod_preempts_a_whole_group_though_one_member_would_do,
            a_group_preempts_pods_and_no_more_than_it_needs,
            a_group_preempts_no_more_members_of_a_group_than_it_needs,
            a_group_preempts_a_whole_group,
            surplus_members_go_before_a_gang_is_broken,
            a_group_that_would_not_fit_after_all_evicts_nobody,
        )
