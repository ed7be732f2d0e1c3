"""Gangs that are awkward to place, and groups that are written wrongly: placed, or told what to do; all else goes on.

The API server is spoken to over TLS here, and refuses some Bindings and evictions as an admission webhook does: by the
twin's fault `forbid`, a 403; no webhook is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.groups.corner import MEMBER, PLUGINS_KIND, Corner, Older, all_of, priority_classes, release
from tests.scenarios.invariants import unjust_evictions
from tests.scenarios.world import MERGE, PODS, length, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OTHERS_WAIT_S = 5.0
"""Longest time that anybody waits for a unit that cannot go."""
REFUSED = (
    {"kind": "forbid", "method": "POST", "path": "-refused/binding$"},
    {"kind": "forbid", "method": "DELETE", "path": "-stubborn$", "count": 2},
)
"""What the webhook does: by the names of the pods."""


def container(**more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "16Mi"}}, **more}


# --- awkward ------------------------------------------------------------------------------------------------------


async def members_with_one_host_port_go_to_as_many_nodes(corner: Corner) -> None:
    await corner.nodes(2)
    port = {"containerPort": 80, "hostPort": 8080}
    names = await corner.gang("g", 3, containers=[container(ports=[port])])
    await corner.all_told(names)
    assert "free ports" in corner.told(names[0])
    await corner.none_bound(names)
    await corner.node("more")
    await corner.all_bound(names, "each has a node of its own")
    assert len(corner.domains(names)) == 3


async def a_gated_member_holds_its_gang_back_until_its_gate_goes(corner: Corner) -> None:
    await corner.nodes(1)
    await corner.group("g", 3)
    gated = await corner.pod("gated", group="g", schedulingGates=[{"name": "conclave.test/wait"}])
    names = await corner.pods("g", 2, group="g")
    await corner.all_told(names)
    await corner.none_bound([*names, gated])
    await corner.cluster.call("PATCH", f"{PODS}/{gated}", {"spec": {"schedulingGates": []}}, MERGE)
    await corner.all_bound([*names, gated], "the gate is gone")


async def victims_have_their_grace_and_are_waited_for(corner: Corner) -> None:
    await corner.nodes(2, cpu="1")
    lows = await corner.pods("low", 2, priorityClassName="low", terminationGracePeriodSeconds=20)
    await corner.all_bound(lows)
    await corner.linger(*lows)
    names = await corner.gang("g", 2, priorityClassName="high")
    await corner.until(lambda: all(map(corner.leaving, lows)), "both are asked to leave")
    assert [corner.cluster.pods[low]["metadata"]["deletionGracePeriodSeconds"] for low in lows] == [20, 20]
    rivals = await corner.pods("rival", 2, priorityClassName="middle")
    await corner.none_bound([*names, *rivals], for_s=length(short=1, full=20))
    for low in lows:
        await release(corner.cluster, low)
    await corner.all_bound(names, "the gang has their places", within_s=OTHERS_WAIT_S)
    assert not corner.bound(rivals)


async def a_preemption_whose_eviction_is_refused_is_tried_again(corner: Corner) -> None:
    """Kueue #10181, #7665: stuck after a preemption that failed."""
    await corner.nodes(2, cpu="1")
    lows = [await corner.pod(name, priorityClassName="low") for name in ("low", "stubborn")]
    await corner.all_bound(lows)
    names = await corner.gang("g", 2, priorityClassName="high")
    await corner.all_bound(names, "the gang has its places after all", within_s=30)


async def a_member_that_a_webhook_refuses_for_ever_holds_up_nobody(corner: Corner) -> None:
    """Those of its gang that are not refused run; whoever takes its place completes the gang."""
    await corner.nodes(1, cpu="16")
    await corner.group("g", 3)
    names = [*await corner.pods("g", 2, group="g"), await corner.pod("refused", group="g")]
    for number in range(int(length(short=3, full=20))):
        others = [*await corner.gang(f"other{number}", 2), await corner.pod(f"lone-{number}")]
        await corner.all_bound(others, "others do not wait for it", within_s=OTHERS_WAIT_S)
        await corner.delete(*others)
    await corner.until(lambda: len(corner.bound(names)) == 2, "the others of the gang run")
    await corner.until(lambda: corner.told(names[2]), "the refused one says so")
    await corner.delete(names[2])
    await corner.all_bound([*names[:2], await corner.pod("again", group="g")], "its replacement runs")


async def a_broken_gang_that_says_so_is_evicted_and_waits_as_a_whole(corner: Older) -> None:
    await corner.nodes(1, cpu="4")
    await corner.group("g", 3, annotations={"conclave.io/gang-broken": "evict"}, scheduleTimeoutSeconds=2)
    names, refused = await corner.pods("g", 2, group="g"), await corner.pod("refused", group="g")
    await corner.until(lambda: not set(names) & corner.cluster.pods.keys(), "its members were evicted")
    await corner.until(lambda: corner.told(refused), "the last one says why it waits")
    await corner.none_bound([refused])


async def members_of_two_schedulers_wait_and_are_told(corner: Corner) -> None:
    await corner.nodes(1)
    await corner.group("g", 2)
    (ours,) = await corner.pods("g", 1, group="g")
    theirs = await corner.pod("theirs", group="g", schedulerName="rival")
    await corner.until(lambda: "same .spec.schedulerName" in corner.told(ours), "the member says so")
    await corner.none_bound([ours])
    await corner.delete(theirs)
    await corner.all_bound([ours, *await corner.pods("g", 1, first=1, group="g")], "all are ours now")


# --- written wrongly ----------------------------------------------------------------------------------------------


async def a_minimum_below_one_is_refused_when_it_is_written(corner: Corner) -> None:
    with pytest.raises(AssertionError, match="minCount"):
        await corner.group("g", 0)
    with pytest.raises(AssertionError, match="minMember"):
        await Older(corner.cluster, corner.name).group("g", 0)


async def a_minimum_that_can_never_be_is_told_on_the_group_and_goes_when_it_falls(corner: Corner) -> None:
    await corner.nodes(1)
    names = await corner.gang("g", 2, minimum=5000)
    await corner.until(lambda: "make it smaller" in corner.condition("g").get("message", ""), "the group says so")
    await corner.all_told(names)
    await corner.none_bound(names)
    await corner.change_group("g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    await corner.all_bound(names, "two are enough now")


async def groups_that_name_each_others_pods_go_by_the_first_that_counts(corner: Corner) -> None:
    """Members of native groups carry the labels of plug-ins' groups, crosswise; those have no member then."""
    await corner.nodes(1)
    older = Older(corner.cluster, corner.name)
    names = []
    for name, other in (("left", "right"), ("right", "left")):
        await corner.group(name, 2)
        await older.group(name, 2)
        names += await corner.pods(name, 2, group=name, labels={MEMBER: corner.full(other)})
    await corner.all_bound(names, "each with its own")
    await corner.until(lambda: {corner.condition(name).get("status") for name in ("left", "right")} == {"True"}, "told")


async def an_unknown_word_on_a_group_is_told_with_those_that_are_known(corner: Corner) -> None:
    await corner.nodes(1)
    await corner.group("g", 2, annotations={"conclave.io/gang-broken": "explode"})
    names = await corner.pods("g", 2, group="g")
    await corner.until(lambda: "explode" in corner.condition("g").get("message", ""), "the group says so")
    assert "keep" in corner.condition("g")["message"]
    await corner.none_bound(names)
    await corner.change_group("g", {"metadata": {"annotations": {"conclave.io/gang-broken": "keep"}}})
    await corner.all_bound(names, "it was corrected")


async def test_awkward_gangs_are_placed_or_told_and_nobody_waits_for_them(tmp_path: Path) -> None:
    flags = ["--simulate", "--kubernetes", "1.37", "--kubeconfig-scheme", "https"]
    async with world(tmp_path, agents=2, twin_flags=flags, kinds=[PLUGINS_KIND], but=[unjust_evictions]) as cluster:
        await priority_classes(cluster, low=10, middle=500, high=1000)
        await cluster.faults(*REFUSED)
        await all_of(
            cluster,
            members_with_one_host_port_go_to_as_many_nodes,
            a_gated_member_holds_its_gang_back_until_its_gate_goes,
            victims_have_their_grace_and_are_waited_for,
            a_preemption_whose_eviction_is_refused_is_tried_again,
            a_member_that_a_webhook_refuses_for_ever_holds_up_nobody,
            members_of_two_schedulers_wait_and_are_told,
            a_minimum_below_one_is_refused_when_it_is_written,
            a_minimum_that_can_never_be_is_told_on_the_group_and_goes_when_it_falls,
            groups_that_name_each_others_pods_go_by_the_first_that_counts,
            an_unknown_word_on_a_group_is_told_with_those_that_are_known,
        )
        await all_of(cluster, a_broken_gang_that_says_so_is_evicted_and_waits_as_a_whole, corner=Older)
