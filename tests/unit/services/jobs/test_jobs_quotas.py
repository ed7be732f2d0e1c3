"""TrainingJobs know their Queue before it is decided: limits along the tree, guarantees, lending, reclaim."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from msgspec.structs import replace

from services.jobs.core import core
from services.jobs.core import events as ev
from shared.model.controllers.training_job import GpuNode, JobPhase, MadeObject, PodState, WorkerPod
from shared.model.resources import GPU_MILLI
from shared.model.units.queue import Queue, UnitOrder
from tests.unit.services.jobs.jobs_world import EPOCH, SETTINGS, World, a_job, conditions

OFTEN = replace(SETTINGS, decide_every_s=5.0)
ONE = ((GPU_MILLI, 1000), ("pods", 1))


def gpus(count: int) -> dict[str, int]:
    return {GPU_MILLI: 1000 * count}


def cluster(*queues: Queue, nodes: int = 4, each: int = 4) -> World:
    world = World(settings=OFTEN, nodes=nodes)
    totals = ((GPU_MILLI, 1000 * each), ("pods", 110))
    world.nodes = {name: GpuNode(name, 1000 * each, amounts=totals) for name in world.nodes}
    world.coming = [event for event in world.coming if not isinstance(event, ev.JobsNodeSeen)]
    world.coming = [ev.JobsNodeSeen(node) for node in world.nodes.values()] + world.coming
    world.coming += [ev.QueueSeen(queue) for queue in queues]
    return world


def job(name: str, queue: str = "", **more: Any) -> Any:
    given = {"minimum": 2, "maximum": 8, "requested": 8, "gpu_milli": 1000, "amounts": ONE, "checkpoint": "/c"}
    return a_job(name, queue=queue, **{**given, **more})


def passes(world: World, seconds: float) -> None:
    end = world.now + seconds
    while world.now < end:
        world.now += 5
        world.turn(ev.Tick())
        world.settle(rounds=10)


def targets(world: World) -> dict[str, int]:
    return {one.name: one.status.target for one in world.jobs.values()}


def quota(world: World, name: str) -> str:
    return next((c.message for c in world.status(f"default/{name}").conditions if c.type == "WithinQuota"), "")


def foreign(world: World, name: str, milli: int, **more: Any) -> None:
    node = next(iter(world.nodes))
    pod = WorkerPod(
        name, "default", name, PodState.RUNNING, node, gpu_milli=milli, amounts=((GPU_MILLI, milli), ("pods", 1)),
        created=EPOCH, **more,
    )  # fmt: skip
    world.pods[name] = pod
    world.coming.append(ev.JobsPodSeen(pod))


def test_what_a_queue_holds_is_not_decided_and_the_queue_is_told():
    world = cluster(Queue("research", maximum=gpus(1)))
    world.put_job(job("a", "research"))
    world.settle()
    assert (targets(world), world.phase("default/a"), world.pods) == ({"a": 0}, JobPhase.PENDING, {})
    assert conditions(world)["Ready"] == ("False", "QueueQuota")
    assert "queue research: conclave.io/gpu-milli 0 of maximum 1000" in world.status().conditions[0].message
    assert conditions(world)["WithinQuota"] == ("False", "QueueQuota")


def test_a_job_that_its_queue_holds_keeps_nobody_else_from_growing_or_starting():
    world = cluster(Queue("research", maximum=gpus(2)))
    world.put_job(job("a", "research", minimum=4, priority=100))
    world.put_job(job("b", created=EPOCH + 1))
    passes(world, 700)
    assert targets(world) == {"a": 0, "b": 8}
    world.put_job(job("c", minimum=8, created=EPOCH + 2))
    passes(world, 20)
    assert targets(world)["c"] == 8


def test_switched_off_it_is_decided_and_another_starves(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(core, "quotas_of", lambda *_: None)
    world = cluster(Queue("research", maximum=gpus(2)))
    world.put_job(job("a", "research", minimum=12, maximum=12, requested=12, priority=100))
    world.put_job(job("b", minimum=8, created=EPOCH + 1))
    passes(world, 20)
    assert targets(world) == {"a": 12, "b": 0}


@pytest.mark.parametrize("queue", ["", "research"])
def test_it_grows_to_its_quota_and_no_further_whoever_names_the_queue(queue: str):
    world = cluster(Queue("research", namespaces=("default",), maximum=gpus(5)))
    world.put_job(job("a", queue))
    passes(world, 20)
    assert (targets(world), world.phase()) == ({"a": 5}, JobPhase.RUNNING)
    assert "5000 of maximum 5000 is used" in quota(world, "a")
    world.coming.append(ev.QueueSeen(Queue("research", namespaces=("default",), maximum=gpus(7))))
    passes(world, 400)
    assert targets(world) == {"a": 7}


def test_limits_hold_along_the_tree_and_for_every_resource():
    top = Queue("top", maximum={"pods": 6})
    world = cluster(top, Queue("left", parent="top", maximum=gpus(4)), Queue("right", parent="top"))
    world.put_job(job("a", "left"))
    world.put_job(job("b", "right", created=EPOCH + 1))
    passes(world, 20)
    assert sum(targets(world).values()) == 6
    assert targets(world)["a"] <= 4
    assert "queue top: pods 6 of maximum 6" in quota(world, "b")


def test_jobs_of_one_queue_are_dealt_what_is_below_its_limit_by_what_they_asked_for():
    world = cluster(Queue("research", maximum=gpus(8)))
    for number, name in enumerate("abc"):
        world.put_job(job(name, "research", created=EPOCH + number, requested=8 if name != "c" else 4, maximum=8))
    passes(world, 20)
    assert targets(world) == {"a": 3, "b": 3, "c": 2}


def test_who_waits_for_its_minimum_gets_what_others_of_the_queue_have_above_theirs():
    world = cluster(Queue("research", maximum=gpus(6)))
    world.put_job(job("a", "research"))
    passes(world, 20)
    assert targets(world) == {"a": 6}
    world.put_job(job("b", "research", minimum=3, created=EPOCH + 1))
    passes(world, 20)
    assert targets(world) == {"a": 3, "b": 3}
    world.put_job(job("c", "research", minimum=3, created=EPOCH + 2))
    passes(world, 20)
    assert targets(world) == {"a": 3, "b": 3, "c": 0}, "minima are nobody's to take"
    assert conditions(world, "default/c")["Ready"] == ("False", "QueueQuota")


def test_nobody_grows_in_a_queue_in_which_one_waits_but_for_one_that_never_fits():
    for minimum, grown in ((3, 4), (9, 6)):
        world = cluster(Queue("research", maximum=gpus(6)))
        world.put_job(job("a", "research", minimum=4, requested=6))
        world.put_job(job("b", "research", minimum=minimum, maximum=9, requested=9, created=EPOCH + 1))
        passes(world, 20)
        assert targets(world) == {"a": grown, "b": 0}


def test_where_the_order_is_fifo_nobody_goes_past_the_first_that_waits():
    for order, third in ((UnitOrder.FIFO, 0), (UnitOrder.PRIORITY, 2)):
        world = cluster(Queue("research", maximum=gpus(6), order=order))
        world.put_job(job("a", "research", minimum=4, maximum=4, requested=4))
        passes(world, 10)
        world.put_job(job("b", "research", minimum=3, created=EPOCH + 1))
        world.put_job(job("c", "research", minimum=2, maximum=2, requested=2, created=EPOCH + 2))
        passes(world, 20)
        assert targets(world) == {"a": 4, "b": 0, "c": third}, order


def test_pods_and_groups_of_others_count_in_the_queue_and_it_goes_on_when_they_end():
    world = cluster(Queue("research", maximum=gpus(4)))
    foreign(world, "own-label", 1000, queue="research")
    world.made["PodGroup", "train"] = MadeObject("PodGroup", "default", "train", "g", queue="research")
    world.coming.append(ev.MadeSeen(world.made["PodGroup", "train"]))
    foreign(world, "of-the-group", 2000, group="train")
    foreign(world, "of-nobody", 1000)
    world.put_job(job("a", "research"))
    passes(world, 20)
    assert targets(world) == {"a": 0}
    world.change_pod("of-the-group", state=PodState.SUCCEEDED)
    world.settle()
    assert targets(world) == {"a": 3}


def test_what_a_queue_keeps_is_nobody_elses():
    keeps = Queue("keeps", guaranteed=gpus(12), lending={GPU_MILLI: 2000})
    world = cluster(keeps)
    world.put_job(job("a"))
    passes(world, 20)
    assert targets(world) == {"a": 6}, "16 less 10 that are not lent"
    assert "is kept for queues that do not lend it" in quota(world, "a")


def owner(**more: Any) -> Queue:
    return Queue("owner", guaranteed=gpus(8), **{"reclaim": True, **more})


def lent(*queues: Queue, **more: Any) -> World:
    """A cluster of 16 that a borrower fills, and a job of the owner that comes later."""
    world = cluster(*queues, Queue("borrower", guaranteed=gpus(4)))
    world.put_job(job("b1", "borrower", minimum=8, maximum=8, created=EPOCH, **more))
    world.put_job(job("b2", "borrower", minimum=8, maximum=8, created=EPOCH + 1, **more))
    passes(world, 20)
    assert targets(world) == {"b1": 8, "b2": 8}
    world.put_job(job("o", "owner", minimum=6, maximum=6, requested=6, created=EPOCH + world.now - 100))
    return world


def test_what_a_queue_lent_comes_back_by_whole_jobs_where_minima_leave_nothing():
    world = lent(owner())
    passes(world, 30)
    assert targets(world) == {"b1": 8, "b2": 0, "o": 6}
    assert world.phase("default/o") is JobPhase.RUNNING
    passes(world, 700)
    assert targets(world) == {"b1": 8, "b2": 0, "o": 6}, "nobody takes back what was taken"


def test_nothing_comes_back_without_reclaim_or_before_its_time_or_from_who_may_not_be_stopped():
    for queues, more in (
        ((owner(reclaim=False),), {}),
        ((owner(reclaim_after_s=3600.0),), {}),
        ((owner(),), {"checkpoint": ""}),
        ((Queue("owner", guaranteed=gpus(5), reclaim=True),), {}),
    ):
        world = lent(*queues, **more)
        passes(world, 30)
        assert targets(world) == {"b1": 8, "b2": 8, "o": 0}, (queues, more)


def test_what_others_pods_borrowed_is_the_coordinators_to_take_back_so_it_is_decided():
    for borrower, decided in ((Queue("borrower"), 6), (Queue("borrower", guaranteed=gpus(16)), 0)):
        world = cluster(owner(), borrower)
        for number in range(4):
            node = f"n{number}"
            pod = WorkerPod(
                node, "default", f"p{number}", PodState.RUNNING, node, gpu_milli=4000, queue="borrower",
                amounts=((GPU_MILLI, 4000), ("pods", 1)),
            )  # fmt: skip
            world.pods[f"p{number}"] = pod
            world.coming.append(ev.JobsPodSeen(pod))
        world.put_job(job("o", "owner", minimum=6, maximum=6, requested=6))
        passes(world, 10)
        assert targets(world) == {"o": decided}


def test_a_child_below_its_guarantee_gets_it_from_its_sibling_though_the_parent_is_at_its_maximum():
    parent = Queue("parent", maximum=gpus(8), guaranteed=gpus(8))
    world = cluster(
        parent, Queue("own", parent="parent", guaranteed=gpus(4), reclaim=True), Queue("sib", parent="parent")
    )
    world.put_job(job("s", "sib", minimum=8))
    passes(world, 20)
    assert targets(world) == {"s": 8}
    world.put_job(job("o", "own", minimum=4, maximum=4, requested=4, created=EPOCH + 1))
    passes(world, 20)
    assert targets(world) == {"s": 0, "o": 4}


def test_a_queue_that_cannot_be_used_is_told_and_a_limit_that_falls_stops_nobody():
    world = cluster(Queue("research", maximum=gpus(6)))
    world.put_job(job("a", "research"))
    world.put_job(job("b", "nowhere", created=EPOCH + 1))
    passes(world, 20)
    assert targets(world) == {"a": 6, "b": 0}
    assert conditions(world, "default/b")["Ready"] == ("False", "QueueUnusable")
    assert "there is no Queue of this name" in world.status("default/b").conditions[0].message
    world.coming.append(ev.QueueSeen(Queue("research", maximum=gpus(2))))
    passes(world, 60)
    assert (targets(world)["a"], world.phase()) == (6, JobPhase.RUNNING)
    world.coming.append(ev.QueueGone("research"))
    passes(world, 60)
    assert (targets(world)["a"], world.phase()) == (6, JobPhase.RUNNING)


def test_a_job_that_another_scheduler_places_is_counted_and_not_held():
    world = cluster(Queue("research", maximum=gpus(2)))
    template = {"spec": {"schedulerName": "default-scheduler", "containers": [{"name": "train"}]}}
    world.put_job(job("a", "research", template=template))
    world.put_job(job("b", "research", created=EPOCH + 1))
    passes(world, 20)
    assert targets(world) == {"a": 8, "b": 0}


def test_a_minimum_that_is_raised_over_the_quota_waits_and_blocks_nobody():
    world = cluster(Queue("research", maximum=gpus(3)))
    world.put_job(job("a", "research"))
    passes(world, 20)
    world.put_job(replace(world.jobs["default/a"], minimum=5))
    world.put_job(job("b", created=EPOCH + 1))
    passes(world, 400)
    assert targets(world) == {"a": 3, "b": 8}
    assert world.phase() is JobPhase.RUNNING


def test_a_new_leader_decides_nothing_before_it_knows_the_queues():
    from services.jobs.io.watches import KINDS

    assert "queues" in KINDS


def test_jobs_without_gpus_are_held_by_what_their_queue_limits():
    world = cluster(Queue("research", maximum={"cpu": 3000}))
    cpu = (("cpu", 1000), ("pods", 1))
    world.put_job(job("a", "research", gpu_milli=0, amounts=cpu))
    passes(world, 20)
    assert targets(world) == {"a": 3}
    world.put_job(job("b", "research", gpu_milli=0, amounts=cpu, created=EPOCH + 1))
    passes(world, 20)
    assert targets(world) == {"a": 3, "b": 0}


def test_the_board_shows_the_queue_and_what_it_holds():
    from services.jobs.core.showing import board

    world = cluster(Queue("research", namespaces=("default",), maximum=gpus(1), weight=Fraction(1)))
    world.put_job(job("a"))
    world.settle()
    [row] = board(world.core.state, world.core.deciding, world.now).jobs
    assert (row.queue, row.reason) == ("research", "QueueQuota")
    assert "queue research" in row.message
