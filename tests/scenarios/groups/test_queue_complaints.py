"""What users of other schedulers complain of about queues, each by name, with the issue; here none of it happens.

Queues are the cluster's, so each case has queues of its own, named after its corner, and its pods name them by label.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.process.mesh import ROOT
from tests.scenarios.groups.corner import MERGE, STILL_S, Case, Corner, all_of, priority_classes
from tests.scenarios.invariants import unjust_evictions
from tests.scenarios.world import world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

QUEUE_KIND = ROOT / "k8s" / "base" / "queues-crd.yaml"
QUEUES = "/apis/conclave.io/v1alpha1/queues"


class Shop(Corner):
    """A corner with queues."""

    async def queue(self, name: str, **spec: Any) -> str:
        """A Queue; ``parent`` by its short name."""
        if "parent" in spec:
            spec["parent"] = self.full(spec["parent"])
        await self.cluster.create(QUEUES, "Queue", self.full(name), api="conclave.io/v1alpha1", spec=spec)
        return self.full(name)

    async def change_queue(self, name: str, **spec: Any) -> None:
        await self.cluster.call("PATCH", f"{QUEUES}/{self.full(name)}", {"spec": spec}, MERGE)

    async def in_queue(self, queue: str, prefix: str, count: int, **pod: Any) -> list[str]:
        """Lone pods of a queue."""
        return await self.pods(prefix, count, labels={"conclave.io/queue": self.full(queue)}, **pod)

    async def gang_in(self, queue: str, name: str, size: int, **pod: Any) -> list[str]:
        """A gang of a queue."""
        labels = {"conclave.io/queue": self.full(queue)}
        await self.group(name, size, labels=labels)
        return await self.pods(name, size, group=name, labels=labels, **pod)

    async def stays(self, names: list[str], count: int, what: str) -> None:
        """For a while so many of them are bound."""
        await self.cluster.never(lambda _: len(self.bound(names)) != count, for_s=STILL_S, what=f"{self.name}: {what}")


async def reclaim_begins_though_the_lender_is_full(shop: Shop) -> None:
    """Volcano #4679, #4756: what was borrowed is never given back, since the job is refused before reclaim looks."""
    await shop.node("n", cpu="4")
    await shop.queue("lender", guaranteed={"cpu": "2"}, reclaim={"enabled": True})
    await shop.queue("borrower", guaranteed={"cpu": "2"})
    taken = await shop.in_queue("borrower", "b", 4)
    await shop.all_bound(taken, "the borrower has everything")
    names = await shop.gang_in("lender", "g", 2)
    await shop.all_bound(names, "the lender has its own again")
    assert len(shop.bound(taken)) == 2


async def reclaim_begins_though_a_limit_holds_the_unit_back(shop: Shop) -> None:
    """The same where not nodes but the quota above both is used up."""
    await shop.node("n", cpu="8")
    await shop.queue("top", maximum={"cpu": "4"})
    await shop.queue("lender", parent="top", guaranteed={"cpu": "2"}, reclaim={"enabled": True})
    await shop.queue("borrower", parent="top", guaranteed={"cpu": "2"})
    taken = await shop.in_queue("borrower", "b", 4)
    await shop.all_bound(taken, "the borrower has everything")
    names = await shop.gang_in("lender", "g", 2)
    await shop.all_bound(names, "the lender has its own again")
    assert len(shop.bound(taken)) == 2


async def lone_pods_get_back_what_was_lent(shop: Shop) -> None:
    await shop.node("n", cpu="4")
    await shop.queue("lender", guaranteed={"cpu": "2"}, reclaim={"enabled": True})
    await shop.queue("borrower", guaranteed={"cpu": "2"})
    taken = await shop.in_queue("borrower", "b", 4)
    await shop.all_bound(taken, "the borrower has everything")
    names = await shop.in_queue("lender", "l", 2)
    await shop.all_bound(names, "the lender has its own again")
    assert len(shop.bound(taken)) == 2


async def a_resource_that_is_not_listed_gives_no_claim(shop: Shop) -> None:
    """Volcano #4658: a queue without cpu among what it deserves takes it from queues that keep within theirs."""
    await shop.node("n", cpu="4")
    await shop.queue("without", guaranteed={"memory": "4Gi"}, reclaim={"enabled": True})
    await shop.queue("within", guaranteed={"cpu": "4", "memory": "4Gi"})
    held = await shop.in_queue("within", "w", 4)
    await shop.all_bound(held)
    (waits,) = await shop.in_queue("without", "o", 1)
    await shop.all_told([waits])
    await shop.stays(held, 4, "somebody within what is guaranteed was evicted")
    assert not shop.bound([waits])


async def a_protected_queue_does_not_keep_others_from_giving_back(shop: Shop) -> None:
    """KAI #1750: reclaim is given up because of a queue that has nothing to do with it."""
    await shop.node("n", cpu="4")
    await shop.queue("lender", guaranteed={"cpu": "2"}, reclaim={"enabled": True})
    await shop.queue("protected", minRuntimeSeconds=3600)
    await shop.queue("other")
    kept = await shop.in_queue("protected", "p", 2)
    taken = await shop.in_queue("other", "o", 2)
    await shop.all_bound([*kept, *taken])
    names = await shop.gang_in("lender", "g", 2)
    await shop.all_bound(names, "the lender has its own again")
    assert len(shop.bound(kept)) == 2


async def a_gang_above_its_quota_holds_nobody_up(shop: Shop) -> None:
    """Head of the line: what can never be admitted waits alone, and says why; the quota is never exceeded."""
    await shop.node("n", cpu="8")
    await shop.queue("small", maximum={"cpu": "2"})
    await shop.queue("free")
    waits = await shop.gang_in("small", "big", 3)
    others = [*await shop.in_queue("small", "s", 2), *await shop.gang_in("free", "f", 3)]
    await shop.all_bound(others, "others of the same queue and of others go on", within_s=10)
    await shop.all_told(waits)
    assert shop.full("small") in shop.told(waits[0])
    await shop.change_queue("small", maximum={"cpu": "5"})
    await shop.all_bound(waits, "a raised quota wakes it")


async def a_quota_holds_for_a_whole_subtree(shop: Shop) -> None:
    await shop.node("n", cpu="8")
    await shop.queue("top", maximum={"cpu": "3"})
    await shop.queue("left", parent="top")
    await shop.queue("right", parent="top")
    names = [*await shop.in_queue("left", "l", 3), *await shop.in_queue("right", "r", 3)]
    await shop.until(lambda: len(shop.bound(names)) == 3, "three in all")
    await shop.stays(names, 3, "the quota of the top is exceeded")
    await shop.delete(shop.bound(names)[0])
    await shop.until(lambda: len(shop.bound(names)) == 3, "one more goes when one has left")


async def queues_share_a_quota_by_weight(shop: Shop) -> None:
    """Two to one, of what the queue above them lets them have."""
    await shop.node("n", cpu="40")
    await shop.queue("top", maximum={"cpu": "0"})
    await shop.queue("double", parent="top", weight=2)
    await shop.queue("single", parent="top", weight=1)
    double, single = await shop.in_queue("double", "d", 16), await shop.in_queue("single", "s", 16)
    await shop.all_told([*double, *single])
    await shop.change_queue("top", maximum={"cpu": "12"})
    await shop.until(lambda: len(shop.bound([*double, *single])) == 12, "the quota is used")
    assert (len(shop.bound(double)), len(shop.bound(single))) == (8, 4)


async def queues_share_a_full_node_by_weight(shop: Shop) -> None:
    """Two to one, of a node that becomes free."""
    await shop.queue("double", weight=2)
    await shop.queue("single", weight=1)
    double, single = await shop.in_queue("double", "d", 16), await shop.in_queue("single", "s", 16)
    await shop.all_told([*double, *single])
    await shop.node("n", cpu="12")
    await shop.until(lambda: len(shop.bound([*double, *single])) == 12, "the node is full")
    assert (len(shop.bound(double)), len(shop.bound(single))) == (8, 4)


async def what_matters_more_goes_first_within_a_quota(shop: Shop) -> None:
    """KAI #1833: contention within a quota cannot be decided by priority."""
    await shop.node("n", cpu="8")
    await shop.queue("q", maximum={"cpu": "2"}, reclaim={"withinQueue": "LowerPriority"})
    lows = await shop.in_queue("q", "low", 2, priorityClassName="low")
    await shop.all_bound(lows)
    high = await shop.in_queue("q", "high", 1, priorityClassName="high")
    await shop.all_bound(high, "the important one goes")
    assert len(shop.bound(lows)) == 1


async def a_label_to_a_queue_that_is_not_there_is_told(shop: Shop) -> None:
    await shop.node("n", cpu="8")
    (waits,) = await shop.in_queue("nowhere", "w", 1)
    await shop.all_told([waits])
    assert shop.full("nowhere") in shop.told(waits)
    await shop.queue("nowhere")
    await shop.all_bound([waits], "the queue is there")


async def test_queues_do_what_users_expect_of_them(tmp_path: Path) -> None:
    flags = ["--simulate", "--kubernetes", "1.37"]
    async with world(tmp_path, agents=2, twin_flags=flags, kinds=[QUEUE_KIND], but=[unjust_evictions]) as cluster:
        await priority_classes(cluster, low=10, high=1000)
        await all_of(
            cluster,
            reclaim_begins_though_a_limit_holds_the_unit_back,
            lone_pods_get_back_what_was_lent,
            a_resource_that_is_not_listed_gives_no_claim,
            a_gang_above_its_quota_holds_nobody_up,
            a_quota_holds_for_a_whole_subtree,
            queues_share_a_quota_by_weight,
            what_matters_more_goes_first_within_a_quota,
            a_label_to_a_queue_that_is_not_there_is_told,
            corner=Shop,
        )


@pytest.mark.parametrize(
    "case",
    [
        reclaim_begins_though_the_lender_is_full,
        a_protected_queue_does_not_keep_others_from_giving_back,
        queues_share_a_full_node_by_weight,
    ],
)
async def test_queues_do_so_where_nodes_are_full(tmp_path: Path, case: Case) -> None:
    flags = ["--simulate", "--kubernetes", "1.37"]
    async with world(tmp_path, agents=2, twin_flags=flags, kinds=[QUEUE_KIND], but=[unjust_evictions]) as cluster:
        await all_of(cluster, case, corner=Shop)
