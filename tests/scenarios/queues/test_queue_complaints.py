"""What users of other schedulers complain of about queues, each by name, with the issue; here none of it happens.

Numbers are those of the list of complaints. Queues are the cluster's, so each case has queues of its own, named after
its corner, and its pods name them by label.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.groups.corner import Case, all_of, release
from tests.scenarios.groups.test_complaints import LEAVE_S
from tests.scenarios.queues.shop import Shop, mall

pytestmark = [pytest.mark.process, pytest.mark.etcd]


async def reclaim_begins_though_the_lender_is_full(shop: Shop) -> None:
    """1. Volcano #4679, #4756: what was borrowed is never given back, since the job is refused before reclaim looks."""
    taken = await shop.lent()
    await shop.given_back(await shop.gang_in("lender", "g", 2), taken)


async def reclaim_begins_though_a_limit_holds_the_unit_back(shop: Shop) -> None:
    """1. The same where not nodes but the quota above both is used up."""
    taken = await shop.lent(limited=True)
    await shop.given_back(await shop.gang_in("lender", "g", 2), taken)


async def lone_pods_get_back_what_was_lent(shop: Shop) -> None:
    taken = await shop.lent()
    await shop.given_back(await shop.in_queue("lender", "l", 2), taken)


async def a_resource_that_is_not_listed_gives_no_claim(shop: Shop) -> None:
    """2. Volcano #4658: a queue without cpu among what it deserves takes it from queues that keep within theirs."""
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
    """3. KAI #1750: reclaim is given up because of a queue that has nothing to do with it."""
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
    """5. Head of the line: what can never be admitted waits alone, and says why; the quota is never exceeded."""
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


async def a_rival_queue_does_not_steal_what_is_being_taken_back(shop: Shop) -> None:
    """4. Kueue #13797, #3779: three victims leave one after the other; a rival of the same quota takes what is freed
    first, and others are evicted for it."""
    await shop.node("n", cpu="16")
    await shop.queue("top", maximum={"cpu": "6"})
    await shop.queue("lender", parent="top", guaranteed={"cpu": "3"}, reclaim={"enabled": True})
    await shop.queue("borrower", parent="top")
    await shop.queue("rival", parent="top", weight=100)
    taken = await shop.in_queue("borrower", "b", 6)
    await shop.all_bound(taken)
    await shop.linger(*taken)
    names = await shop.gang_in("lender", "g", 3)
    await shop.until(lambda: len(shop.leaving(taken)) == 3, "three are asked to leave")
    rivals = await shop.in_queue("rival", "r", 3)
    for victim, since_s, at_s in zip(shop.leaving(taken), (0, *LEAVE_S), LEAVE_S, strict=False):
        await shop.cluster.never(
            lambda _: bool(shop.bound([*rivals, *names])) or len(shop.leaving(taken)) > 3, for_s=at_s - since_s,
            what="somebody went before the last victim has left, or a fourth was asked to",
        )  # fmt: skip
        await release(shop.cluster, victim)
        await shop.until(lambda gone=victim: gone not in shop.cluster.pods, "it has left")
    await shop.all_bound(names, "the gang goes when the last victim has left")
    assert not shop.bound(rivals)
    for name in shop.bound(taken):
        await release(shop.cluster, name)


async def a_victim_that_terminates_for_hours_blocks_nobody_of_its_queue(shop: Shop) -> None:
    """5. Kueue #6143: a pod stuck in Terminating blocks its ClusterQueue for hours."""
    taken = await shop.lent(limited=True)
    await shop.linger(*taken)
    first = await shop.in_queue("lender", "first", 1)
    await shop.until(lambda: len(shop.leaving(taken)) == 1, "one is asked to leave")
    (stuck,) = shop.leaving(taken)
    second = await shop.in_queue("lender", "second", 1)
    await shop.until(lambda: len(shop.leaving(taken)) == 2, "another is asked for the next of the queue")
    (other,) = set(shop.leaving(taken)) - {stuck}
    await release(shop.cluster, other)
    await shop.all_bound(second, "the next of the queue does not wait for the first one's victim")
    assert not shop.bound(first)
    await release(shop.cluster, stuck)
    await shop.given_back([*first, *second], taken)
    for name in shop.bound(taken):
        await release(shop.cluster, name)


async def a_quota_holds_for_a_whole_subtree(shop: Shop) -> None:
    """16. Volcano #4492: a queue's capability is ignored."""
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
    """13. KAI #1833: contention within a quota cannot be decided by priority."""
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


TOGETHER = (
    reclaim_begins_though_a_limit_holds_the_unit_back,
    lone_pods_get_back_what_was_lent,
    a_resource_that_is_not_listed_gives_no_claim,
    a_gang_above_its_quota_holds_nobody_up,
    a_quota_holds_for_a_whole_subtree,
    queues_share_a_quota_by_weight,
    what_matters_more_goes_first_within_a_quota,
    a_label_to_a_queue_that_is_not_there_is_told,
)
ALONE = (
    reclaim_begins_though_the_lender_is_full,
    a_protected_queue_does_not_keep_others_from_giving_back,
    queues_share_a_full_node_by_weight,
)
"""What is about all nodes of the cluster."""
LINGERING = (
    a_rival_queue_does_not_steal_what_is_being_taken_back,
    a_victim_that_terminates_for_hours_blocks_nobody_of_its_queue,
)
"""Victims are held by a finalizer."""


@pytest.mark.parametrize("cases", [TOGETHER, *((case,) for case in ALONE)], ids=lambda cases: cases[-1].__name__)
async def test_queues_do_what_users_expect_of_them(tmp_path: Path, cases: tuple[Case, ...]) -> None:
    async with mall(tmp_path) as cluster:
        await all_of(cluster, *cases, corner=Shop)


async def test_queues_do_so_while_victims_linger(tmp_path: Path) -> None:
    async with mall(tmp_path) as cluster:
        await all_of(cluster, *LINGERING, corner=Shop)
