"""Gödel's end-to-end cases of units, on groups like its own, those of the scheduler plug-ins; and Indexed Jobs.

Fewer members than the minimum and then enough, a group that comes after its pods, a timeout and then more pods, members
beyond the minimum, a minimum that preempts, many groups at once, a member that is deleted just before its Binding.
None of them may leave half a gang, or a group that waits in silence.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.groups.corner import PLUGINS_KIND, Older, all_of, priority_classes
from tests.scenarios.groups.test_upstream_groups import (
    a_group_preempts_pods_and_no_more_than_it_needs,
    many_gangs_share_what_there_is_without_deadlock,
    more_than_the_minimum_goes_along_and_the_rest_waits,
)
from tests.scenarios.world import length, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

JOBS = "/apis/batch/v1/namespaces/default/jobs"


async def fewer_than_the_minimum_wait_and_go_when_there_are_enough(corner: Older) -> None:
    await corner.nodes(1)
    await corner.group("g", 3)
    names = await corner.pods("g", 2, group="g")
    await corner.all_told(names)
    assert not corner.bound(names)
    await corner.all_bound(
        [*names, *await corner.pods("g", 2, first=2, group="g")], "the third came, and a fourth goes along"
    )


async def a_group_that_comes_after_its_pods_takes_them(corner: Older) -> None:
    await corner.nodes(1)
    names = await corner.pods("g", 2, group="g")
    await corner.all_told(names)
    assert not corner.bound(names)
    await corner.group("g", 2)
    await corner.all_bound(names)


async def a_group_whose_timeout_is_over_is_not_given_up(corner: Older) -> None:
    """There a group that timed out never schedules again, and does not say so."""
    await corner.nodes(1)
    await corner.group("g", 2, scheduleTimeoutSeconds=1)
    names = await corner.pods("g", 1, group="g")
    await corner.all_told(names)
    await corner.none_bound(names, for_s=2)
    await corner.all_bound([*names, *await corner.pods("g", 1, first=1, group="g")], "more pods came after the timeout")


async def a_member_that_is_deleted_just_before_its_binding_leaves_no_half_gang(corner: Older) -> None:
    """Whoever of the eight is deleted, and when: whole, or with its replacement whole."""
    await corner.nodes(5, cpu="2")
    for turn in range(int(length(short=2, full=8))):
        name = f"g{turn}"
        names = await corner.gang(name, 8)
        for _ in range(turn):
            await asyncio.sleep(0)  # further along the gang's way each time
        await corner.delete(names[turn])
        await corner.until(lambda gone=names[turn]: gone not in corner.cluster.pods, "it is gone")
        again = await corner.pod(f"{name}-again", group=name)
        left = [one for one in names if one != names[turn]]
        await corner.all_bound([*left, again], "it is whole with the replacement")
        await corner.delete(*left, again)
        await corner.until(lambda gone=set(left): not gone & corner.cluster.pods.keys(), "all have left")


async def an_indexed_job_that_asks_for_it_is_a_gang(corner: Older) -> None:
    await corner.nodes(1, cpu="2")
    requests = {"requests": {"cpu": "1", "memory": "16Mi"}}
    template: dict[str, Any] = {
        "schedulerName": "conclave", "restartPolicy": "Never", "nodeSelector": {"corner": corner.name},
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i", "resources": requests}],
    }  # fmt: skip
    spec = {
        "completionMode": "Indexed", "parallelism": 3, "completions": 3,
        "template": {"metadata": {"annotations": {"conclave.io/usage": '{"s":600,"u":[[0,100,1000,0,0]],"x":0}'}},
                     "spec": template},
    }  # fmt: skip
    metadata = {"annotations": {"conclave.io/gang": "true"}}
    await corner.cluster.create(JOBS, "Job", corner.full("j"), api="batch/v1", metadata=metadata, spec=spec)

    def mine() -> list[str]:
        return [name for name in corner.cluster.pods if name.startswith(corner.full("j"))]

    await corner.until(lambda: len(mine()) == 3 and all(map(corner.told, mine())), "three pods wait, and say why")
    await corner.none_bound(mine())
    await corner.node("more", cpu="1")
    await corner.until(lambda: len(corner.bound(mine())) == 3, "all three run")


async def test_units_as_godel_tests_them(tmp_path: Path) -> None:
    async with world(tmp_path, agents=2, kinds=[PLUGINS_KIND]) as cluster:
        await priority_classes(cluster, low=10, high=1000)
        await all_of(
            cluster,
            fewer_than_the_minimum_wait_and_go_when_there_are_enough,
            a_group_that_comes_after_its_pods_takes_them,
            a_group_whose_timeout_is_over_is_not_given_up,
            a_member_that_is_deleted_just_before_its_binding_leaves_no_half_gang,
            more_than_the_minimum_goes_along_and_the_rest_waits,
            a_group_preempts_pods_and_no_more_than_it_needs,
            many_gangs_share_what_there_is_without_deadlock,
            an_indexed_job_that_asks_for_it_is_a_gang,
            corner=Older,
        )
