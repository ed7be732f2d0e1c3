"""Queues that are written wrongly, or go while they are used: refused where the definition can, else told on the object
with the remedy; who waits in them is told, and all else goes on.

Each case has queues of its own, named after its corner.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.groups.corner import all_of
from tests.scenarios.queues.shop import Shop
from tests.scenarios.world import MERGE, PODS, QUEUES, QUEUES_KIND, Json, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OTHERS_WAIT_S = 10.0


def conditions(shop: Shop, name: str) -> dict[str, Json]:
    """Of a Queue, by type."""
    status = shop.cluster.queues.get(shop.full(name), {}).get("status") or {}
    return {one["type"]: one for one in status.get("conditions") or ()}


def unready(shop: Shop, name: str) -> str:
    """What the Queue says is wrong with it, "" while it says nothing."""
    ready = conditions(shop, name).get("Ready", {})
    return str(ready["message"]) if ready.get("status") == "False" else ""


async def others_go_on(shop: Shop) -> None:
    """A pod and a gang of a queue with which nothing is wrong."""
    await shop.queue("sound")
    names = [*await shop.in_queue("sound", "lone", 1), *await shop.gang_in("sound", "gang", 2)]
    await shop.all_bound(names, "others go on", within_s=OTHERS_WAIT_S)


async def what_the_definition_can_see_is_refused_when_it_is_created(shop: Shop) -> None:
    for field, spec in (
        ("strategy", {"strategy": "Lottery"}),
        ("order", {"order": "Random"}),
        ("weight", {"weight": 0}),
        ("weight", {"weight": -1}),
        ("guaranteed", {"guaranteed": {"cpu": "-1"}}),
        ("lendingLimit", {"lendingLimit": {"cpu": "1"}}),
        ("parent", {"parent": "bad"}),
        ("halfLifeSeconds", {"history": {"halfLifeSeconds": 0}}),
    ):
        with pytest.raises(AssertionError, match=field):
            await shop.queue("bad", **spec)


async def a_loop_is_told_on_each_of_its_queues_until_it_is_opened(shop: Shop) -> None:
    await shop.node("n", cpu="8")
    await shop.queue("a", parent="b")
    await shop.queue("b", parent="c")
    await shop.queue("c", parent="a")
    await shop.until(lambda: all("loop" in unready(shop, name) for name in "abc"), "each says so")
    waits = [*await shop.in_queue("a", "w", 1), *await shop.gang_in("b", "g", 2)]
    await shop.all_told(waits)
    assert "loop" in shop.told(waits[0])
    await others_go_on(shop)
    await shop.none_bound(waits)
    await shop.change_queue("c", parent=None)
    await shop.all_bound(waits, "the loop is open")


async def a_tree_that_is_too_deep_is_told_on_the_deepest(shop: Shop) -> None:
    await shop.node("n", cpu="8")
    await shop.queue("q1")
    for level in range(2, 6):
        await shop.queue(f"q{level}", parent=f"q{level - 1}")
    await shop.until(lambda: "further up" in unready(shop, "q5"), "it says so")
    assert not any(unready(shop, f"q{level}") for level in range(1, 5))
    (waits,) = await shop.in_queue("q5", "w", 1)
    await shop.all_bound(await shop.in_queue("q4", "fits", 1), "the others of the tree go on", within_s=OTHERS_WAIT_S)
    await shop.none_bound([waits])


async def a_queue_that_promises_more_than_it_has_is_warned_and_serves(shop: Shop) -> None:
    await shop.node("n", cpu="8")
    await shop.queue("top", guaranteed={"cpu": "4"})
    for name in ("left", "right"):
        await shop.queue(name, parent="top", guaranteed={"cpu": "3"})
    await shop.until(lambda: "PromisesTooMuch" in str(conditions(shop, "top")), "it is warned")
    assert not unready(shop, "top")
    await shop.queue("vast", guaranteed={"cpu": "100000"})
    await shop.until(lambda: "MoreThanThereIs" in str(conditions(shop, "vast")), "it is warned")
    names = [*await shop.in_queue("left", "l", 3), *await shop.in_queue("right", "r", 3)]
    await shop.all_bound(names, "as far as there is room")


async def a_namespace_that_two_queues_name_belongs_to_the_first(shop: Shop) -> None:
    for name in ("first", "second"):
        await shop.queue(name, namespaces=[shop.name])
    told = shop.full("first")
    await shop.until(lambda: any(told in one["message"] for one in conditions(shop, "second").values()), "it says so")


async def a_queue_that_is_deleted_while_used_counts_on_and_tells_who_waits(shop: Shop) -> None:
    await shop.node("n", cpu="8")
    await shop.queue("q", maximum={"cpu": "2"})
    names = await shop.in_queue("q", "p", 3)
    await shop.until(lambda: len(shop.bound(names)) == 2, "two fit")
    (waits,) = set(names) - set(shop.bound(names))
    await shop.all_told([waits])
    await shop.cluster.call("DELETE", f"{QUEUES}/{shop.full('q')}")
    (late,) = await shop.in_queue("q", "late", 1)
    await shop.until(lambda: all("was deleted" in shop.told(name) for name in (waits, late)), "who waits is told")
    await others_go_on(shop)
    await shop.stays([*names, late], 2, "one goes though its queue is gone")
    await shop.queue("q", maximum={"cpu": "4"})
    await shop.all_bound([*names, late], "the queue is there again, and larger")


async def a_gang_whose_members_name_two_queues_waits_until_they_name_one(shop: Shop) -> None:
    await shop.node("n", cpu="8")
    await shop.queue("one")
    await shop.queue("two")
    await shop.group("g", 2)
    names = [
        *await shop.in_queue("one", "a", 1, group="g"),
        *await shop.in_queue("two", "b", 1, group="g"),
    ]
    await shop.all_told(names)
    assert shop.full("one") in shop.told(names[0])
    assert shop.full("two") in shop.told(names[0])
    await shop.none_bound(names)
    corrected = {"metadata": {"labels": {"conclave.io/queue": shop.full("one")}}}
    await shop.cluster.call("PATCH", f"{PODS}/{names[1]}", corrected, MERGE)
    await shop.all_bound(names, "they name one")


async def test_bad_queues_are_refused_or_told_and_all_else_goes_on(tmp_path: Path) -> None:
    flags = ["--simulate", "--kubernetes", "1.37"]
    async with world(tmp_path, agents=2, twin_flags=flags, kinds=[QUEUES_KIND]) as cluster:
        await all_of(
            cluster,
            what_the_definition_can_see_is_refused_when_it_is_created,
            a_loop_is_told_on_each_of_its_queues_until_it_is_opened,
            a_tree_that_is_too_deep_is_told_on_the_deepest,
            a_queue_that_promises_more_than_it_has_is_warned_and_serves,
            a_namespace_that_two_queues_name_belongs_to_the_first,
            a_queue_that_is_deleted_while_used_counts_on_and_tells_who_waits,
            a_gang_whose_members_name_two_queues_waits_until_they_name_one,
            corner=Shop,
        )
