"""What users of other schedulers complain of, each by name, with the issue; here none of it happens.

Those about queues are in ``tests/scenarios/queues``. Each case has a corner of the cluster for itself.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.scenarios.groups.corner import Corner, all_of, priority_classes, release
from tests.scenarios.invariants import bound_not_ours, evicted, unjust_evictions
from tests.scenarios.world import FULL, PODS, World, length, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

LEAVE_S = [length(short=0.3, full=1), length(short=1.2, full=5), length(short=3, full=20)]
"""When the three victims are gone after they were asked to leave."""
OTHERS_WAIT_S = 5.0
"""Longest time that anybody waits for a unit whose Binding is always refused."""


async def nobody_steals_while_three_victims_leave_at_their_own_pace(corner: Corner) -> None:
    """Kueue #13797, #3779: the first freed place is taken by somebody else, and a fourth victim is evicted."""
    await corner.nodes(3, cpu="1")
    lows = await corner.pods("low", 3, priorityClassName="low")
    await corner.all_bound(lows)
    await corner.linger(*lows)
    names = await corner.gang("g", 3, priorityClassName="high")
    await corner.until(lambda: all(corner.leaving(low) for low in lows), "all three are asked to leave")
    rivals = [*await corner.pods("rival", 2, priorityClassName="middle"),
              *await corner.gang("rivals", 2, priorityClassName="middle")]  # fmt: skip
    began = asyncio.get_running_loop().time()
    for low, at_s in zip(lows, LEAVE_S, strict=True):
        await corner.cluster.never(lambda _: bool(corner.bound([*rivals, *names])), what="a place was taken",
                                   for_s=max(0.1, began + at_s - asyncio.get_running_loop().time()))  # fmt: skip
        await release(corner.cluster, low)
    await corner.all_bound(names, "the gang has all three places", within_s=10)
    assert not corner.bound(rivals)


async def a_pod_that_terminates_for_hours_blocks_nobody(corner: Corner) -> None:
    """Kueue #6143: a victim stuck in Terminating blocks everybody behind its preemptor."""
    await corner.nodes(1, cpu="1")
    await corner.node("free", cpu="4", kind="free")
    (low,) = await corner.pods(
        "low", 1, priorityClassName="low", cpu="1", nodeSelector={"kubernetes.io/hostname": corner.full("n0")}
    )
    await corner.all_bound([low])
    await corner.linger(low)
    high = await corner.pod(
        "high", priorityClassName="high", nodeSelector={"kubernetes.io/hostname": corner.full("n0")}
    )
    await corner.until(lambda: corner.leaving(low), "the victim is asked to leave")
    others = [*await corner.gang("g", 3), await corner.pod("lone")]
    await corner.all_bound(others, "others go on", within_s=OTHERS_WAIT_S)
    await release(corner.cluster, low)
    await corner.all_bound([high], "the preemptor goes when the place is free", within_s=10)


async def a_replacement_is_not_sent_to_the_failed_node(corner: Corner) -> None:
    """Kueue #14917, #14092: replacement pods are admitted to the failed node over and over. Here: in the same rack."""
    await corner.nodes(4, cpu="2", racks=2)
    await corner.group("g", 4, topology="rack")
    names = await corner.pods("g", 4, group="g", cpu="900m")
    await corner.all_bound(names)
    racks = {corner.cluster.node(name) for name in names}
    assert racks in ({corner.full("n0"), corner.full("n2")}, {corner.full("n1"), corner.full("n3")})
    failed = corner.cluster.node(names[0])
    spare = await corner.node("spare", cpu="2", rack=corner.full(f"r{int(failed[-1]) % 2}"))
    await corner.cluster.patch_node(failed, {"spec": {"unschedulable": True}})
    lost = [name for name in names if corner.cluster.node(name) == failed]
    await corner.delete(*lost)
    again = await corner.pods("again", len(lost), group="g", cpu="900m")
    await corner.all_bound(again, "the replacements are placed")
    assert corner.domains(again) == {spare}


async def late_members_stay_in_the_domain_of_their_group(corner: Corner) -> None:
    """Koordinator #3181: members that come later leave the topology domain."""
    await corner.nodes(4, cpu="2", racks=2)
    await corner.group("g", 2, topology="rack")
    names = await corner.pods("g", 2, group="g")
    await corner.all_bound(names)
    late = await corner.pods("late", 3, group="g")
    await corner.until(lambda: len(corner.bound(late)) == 2, "two have room in the rack")
    (waits,) = set(late) - set(corner.bound(late))
    await corner.until(lambda: corner.told(waits), "the third says why it waits")
    await corner.none_bound([waits])
    number = int(min(corner.domains(names))[-1]) % 2
    await corner.node("more", cpu="1", rack=corner.full(f"r{number}"))
    await corner.all_bound([waits], "the rack has grown")


async def groups_that_arrive_interleaved_do_not_deadlock(corner: Corner) -> None:
    """Koordinator #872: four gangs whose members arrive A C B D, room for one at a time."""
    await corner.nodes(1)
    order = "acbd"
    await asyncio.gather(*(corner.group(name, 4) for name in order))
    names: dict[str, list[str]] = {name: [] for name in order}
    for number in range(4):
        for name in order:
            names[name].append(await corner.pod(f"{name}-{number}", group=name))
    while names:
        await corner.until(lambda: any(len(corner.bound(one)) == 4 for one in names.values()), "one of them runs")
        for name in [name for name, one in names.items() if len(corner.bound(one)) == 4]:
            await corner.delete(*names.pop(name))


async def a_member_created_again_below_the_minimum_runs(corner: Corner) -> None:
    """scheduler-plugins #358, #364: a replaced member waits for ever, since only one is pending."""
    await corner.nodes(1)
    names = await corner.gang("g", 4)
    await corner.all_bound(names)
    await corner.delete(names[3])
    await corner.until(lambda: names[3] not in corner.cluster.pods, "it is gone")
    await corner.pod("g-3", group="g")
    await corner.all_bound(names, "the replacement runs")


async def a_preemptor_is_woken_when_its_victims_are_gone(corner: Corner) -> None:
    """Kubernetes #139162: a preemptor stays unschedulable after its victims have left."""
    await corner.nodes(2, cpu="1")
    lows = await corner.pods("low", 2, priorityClassName="low")
    await corner.all_bound(lows)
    await corner.linger(*lows)
    names = await corner.gang("g", 2, priorityClassName="high")
    await corner.until(lambda: all(corner.leaving(low) for low in lows), "the victims are asked to leave")
    await corner.none_bound(names, for_s=1)
    for low in lows:
        await release(corner.cluster, low)
    await corner.all_bound(names, "nothing else happened", within_s=OTHERS_WAIT_S)


async def a_refused_unit_backs_off_alone(corner: Corner) -> None:
    """KAI #2074: a job whose Binding a webhook refuses wins every cycle and starves the others. A lone pod is refused
    fifty times, a member of a gang three times."""
    await corner.nodes(1, cpu="16")
    refused = corner.full("refused")
    await corner.cluster.faults(
        *(
            {"kind": "forbid", "method": "POST", "path": f"/pods/{name}/binding$", "count": count}
            for name, count in ((refused, 50), (corner.full("g-1"), 3))
        )
    )
    await corner.pod("refused")
    names = await corner.gang("g", 3)
    for number in range(3):
        others = [*await corner.gang(f"other{number}", 2, cpu="500m"), await corner.pod(f"lone-{number}", cpu="500m")]
        await corner.all_bound(others, "others do not wait for it", within_s=OTHERS_WAIT_S)
        await corner.delete(*others)
    await corner.all_bound(names, "the gang is whole when nobody refuses its member", within_s=25)
    await corner.cluster.fault_met(50)
    if FULL:
        await corner.until(lambda: corner.bound([refused]), "the fiftieth refusal was the last", within_s=600)
    await corner.cluster.faults()
    await corner.all_bound([refused], "nobody refuses it any more", within_s=30)


async def rival_takes(cluster: World, pod: str, node: str) -> None:
    """Another scheduler binds its pod, without asking anybody."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    await cluster.create(f"{PODS}/{pod}/binding", "Binding", pod, target=target)


async def two_schedulers_on_one_node_never_overcommit_it(corner: Corner) -> None:
    """KAI #1454: pods end in OutOfcpu. What the other one has bound counts from the moment that the API shows it; a
    gang that was to go there goes elsewhere, whole."""
    cluster, nodes = corner.cluster, await corner.nodes(4, cpu="2")
    for turn in range(int(length(short=3, full=20))):
        rivals = await corner.pods(f"rival-{turn}", 2, cpu="1500m", schedulerName="rival")
        for rival, node in zip(rivals, nodes[turn % 2 :: 2], strict=True):
            await rival_takes(cluster, rival, node)
        names = await corner.gang(f"g{turn}", 4)
        await corner.all_bound(names, "the gang runs on what is left")
        assert not corner.domains(names) & corner.domains(rivals)
        await corner.delete(*names, *rivals)
        await corner.until(lambda gone=(*names, *rivals): not set(gone) & cluster.pods.keys(), "all have left")


async def test_what_users_complain_of_does_not_happen(tmp_path: Path) -> None:
    async with world(tmp_path, agents=2, but=[bound_not_ours, unjust_evictions]) as cluster:
        await priority_classes(cluster, low=10, middle=500, high=1000)
        await all_of(
            cluster,
            nobody_steals_while_three_victims_leave_at_their_own_pace,
            a_pod_that_terminates_for_hours_blocks_nobody,
            a_replacement_is_not_sent_to_the_failed_node,
            late_members_stay_in_the_domain_of_their_group,
            groups_that_arrive_interleaved_do_not_deadlock,
            a_member_created_again_below_the_minimum_runs,
            a_preemptor_is_woken_when_its_victims_are_gone,
            a_refused_unit_backs_off_alone,
            two_schedulers_on_one_node_never_overcommit_it,
        )
    victims = [entry.name for entry in evicted(cluster.history).values()]
    assert len(victims) == len(set(victims)) == 6, victims


async def test_all_of_a_service_dead_takes_nothing_else_down(tmp_path: Path) -> None:
    """KAI #227, #1634: the scheduler runs out of memory and takes the cluster with it. Here pods are still taken, those
    that run go on, and what came meanwhile is placed whole afterwards."""
    async with world(tmp_path, agents=2) as cluster:
        for what in ("coordinator", "binder"):
            corner = Corner(cluster, f"dead-{what}")
            await corner.nodes(2)
            before = await corner.gang("before", 3)
            await corner.all_bound(before)
            services = [running for name, running in cluster.mesh.services.items() if name.startswith(what)]
            for running in services:
                running.may_start.clear()
                cluster.mesh.kill(running.name)
            names = await corner.gang("during", 4)
            await corner.none_bound(names, for_s=0.5)
            assert len(corner.bound(before)) == 3
            for running in services:
                running.may_start.set()
            await corner.all_bound(names, "the gang that came meanwhile runs", within_s=PATIENCE_S)
