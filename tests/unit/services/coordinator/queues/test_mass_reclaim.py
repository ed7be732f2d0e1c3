"""A burst of pods that take back what their queue lent is one act: a further one costs what the first did, no look
ends before all are served, and nobody leaves whom the same burst one by one would have spared."""

from __future__ import annotations

import gc
import itertools
from collections import Counter
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from bench.in_process.counts import python, read
from bench.in_process.meters import OpcodeMeter
from services.coordinator.binding.plans import EVICTING_PLANS
from services.coordinator.core.events import ControlSeen
from services.coordinator.core.instructions import Instruction, PatchCondition
from services.coordinator.core.state import CoreSettings
from services.coordinator.core.validate import validate
from services.coordinator.queues.keeper import LENT_EVERY_S
from services.coordinator.queues.leaving import GIVE_UP_S
from services.coordinator.queues.lent import Lent
from services.coordinator.queues.reclaiming import EVERY_S, Reclaimer
from services.coordinator.queues.rooms import NodeRoom
from services.coordinator.status.reporter import FIRST_AFTER_S
from shared.model.pod import Pod
from shared.model.units.queue import QUEUE_LABEL, Queue
from shared.scheduling.queues.reclaim.search import Work
from shared.scheduling.queues.turns import QueueTurns
from shared.wire.records import Paused
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.queues.queue_scenes import bound, cpus, put, used
from tests.unit.services.coordinator.scene import Scene

NODES, PLACES = 25, 8
MOST_OPCODES = 71_000
"""Of the coordinator's core for one more pod that takes back its place: a tenth more than it is."""

LENDER, BORROWER = "lender", "borrower"
OFFLINE_CPU = "kubernetes.io/batch-cpu"


def labelled(pod: Pod, queue: str) -> Pod:
    return replace(pod, labels={QUEUE_LABEL: queue})


def owners(count: int, cpu: str = "1") -> list[Pod]:
    return [labelled(make_pod(f"own-{number}").cpu(cpu).pod(), LENDER) for number in range(count)]


def lent(nodes: int = NODES, *, limited: bool = False) -> Scene:
    """So many nodes of eight places, each taken by a queue that borrowed it. ``limited``: there is room on as many
    nodes more, and a limit above both queues."""
    scene, places = Scene(agents=1, settings=CoreSettings(validate=False)), nodes * PLACES
    for node in range(2 * nodes if limited else nodes):
        scene.add_node(make_node(f"n{node:03}").allocatable(cpu=str(PLACES)).node())
        for place in range(PLACES if node < nodes else 0):
            pod = make_pod(f"low-{node}-{place}").cpu("1").on(f"n{node:03}").pod()
            scene.add_pod(labelled(pod, BORROWER))
    top = "top" if limited else ""
    if limited:
        put(scene, Queue(top, maximum=cpus(places)))
    put(scene, Queue(LENDER, top, guaranteed=cpus(places), reclaim=True))
    put(scene, Queue(BORROWER, top))
    scene.begin()
    scene.run(batch=500, until_s=3)
    return scene


def opcodes_each(count: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Of the coordinator's core, for each of a burst onto 25 nodes, from its coming until it is bound."""
    scene = lent()
    meter, handle = OpcodeMeter(), scene.core.handle

    def counted(*arguments: Any) -> list[Instruction]:
        meter.enter("core")
        try:
            return handle(*arguments)
        finally:
            meter.leave()

    monkeypatch.setattr(scene.core, "handle", counted)
    for pod in owners(count):
        scene.add_pod(pod)
    meter.counting = True
    gc.disable()  # its callbacks would be counted, wherever a collection falls
    try:
        scene.run(batch=100, until_s=EVERY_S + 0.3)
    finally:
        gc.enable()
    assert len(scene.bindings) == len(scene.evicted) == count
    return meter.spent["core"] / count


def test_a_further_pod_costs_the_same_however_many_take_back(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = opcodes_each(48, monkeypatch), opcodes_each(200, monkeypatch)
    assert many <= 1.2 * few, (few, many)
    if python() == read()["python"]:
        assert max(few, many) <= MOST_OPCODES, (few, many)


@pytest.mark.parametrize("limited", [False, True])
def test_all_of_a_burst_are_served_in_one_look_each_at_the_cost_of_one(limited: bool) -> None:
    """Whether nodes or a limit hold them back: not some of them a second."""
    scene, count = lent(limited=limited), 120
    for pod in owners(count):
        scene.add_pod(pod)
    scene.run(batch=100, until_s=0.9 * FIRST_AFTER_S)
    assert len(scene.bindings) == len(set(scene.evicted)) == len(scene.evicted) == count
    assert not scene.of(PatchCondition), "nobody is told of room that comes so soon"
    assert validate(scene.core) == []


def test_nodes_where_all_are_leaving_for_others_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node is left once it has no more to give: victims that take long to go make nothing dearer."""
    scene, count, tried = lent(), 120, 0
    scene.keep_victims = True
    init = NodeRoom.__init__

    def counted(room: NodeRoom, *arguments: Any) -> None:
        nonlocal tried
        tried += 1
        init(room, *arguments)

    monkeypatch.setattr(NodeRoom, "__init__", counted)
    for number in range(2):
        for pod in owners(count)[number * count // 2 : (number + 1) * count // 2]:
            scene.add_pod(pod)
        scene.run(batch=100, until_s=EVERY_S)
    assert len(scene.evicted) == count
    assert tried <= 1.2 * count + NODES


def test_who_comes_while_hundreds_wait_for_their_victims_is_helped_within_a_second() -> None:
    """Those for whom room is made already, and who wait for 30 s, do not stand before him."""
    scene, count = lent(50), 400
    scene.keep_victims = True
    for pod in owners(count)[:300]:
        scene.add_pod(pod)
    scene.run(batch=100, until_s=5 * EVERY_S)
    assert len(scene.evicted) == 300
    for pod in owners(count)[300:]:
        scene.add_pod(pod)
    scene.run(batch=100, until_s=EVERY_S)
    assert len(scene.evicted) == len(set(scene.evicted)) == count


def test_nobody_is_asked_for_who_is_gone_while_the_request_stood_in_line() -> None:
    scene, count = lent(), 100
    scene.hold_plans = True
    for pod in owners(count):
        scene.add_pod(pod)
    scene.run(batch=3, until_s=0.5)
    sent = {eviction.uid for plan in scene.held_plans for eviction in plan.evictions}
    assert 0 < len(sent) < count
    for pod in owners(count):
        scene.delete_pod(pod.uid)
    scene.hold_plans = False
    scene.inbox.extend(map(scene.bind, scene.held_plans))
    scene.run(batch=3, until_s=20)
    assert set(scene.evicted) == sent


def test_where_nothing_can_be_taken_back_those_that_come_make_no_look_more(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, looks = lent(), 0
    put(scene, Queue(BORROWER, min_run_s=3600))
    scene.run(batch=100, until_s=3)
    over_queues = Reclaimer._over_queues

    def counted(reclaimer: Reclaimer, turns: QueueTurns) -> Work[None]:
        nonlocal looks
        looks += 1
        return over_queues(reclaimer, turns)

    monkeypatch.setattr(Reclaimer, "_over_queues", counted)
    for pod in owners(100):
        scene.add_pod(pod)
        scene.run(batch=100, until_s=0.05)
    assert scene.evicted == []
    assert 4 <= looks <= 8


def test_room_of_one_who_does_not_go_is_awaited_no_longer_than_it_is_hoped_for() -> None:
    scene = lent(2)
    scene.keep_victims = True
    first, second = owners(2)
    scene.add_pod(first)
    scene.run(batch=100, until_s=GIVE_UP_S + 2)
    (stays,) = scene.evicted
    scene.delete_pod(first.uid)
    scene.run(batch=100, until_s=2)
    scene.keep_victims = False
    scene.add_pod(second)
    scene.run(batch=100, until_s=5)
    assert [uid for uid, _ in scene.bindings] == [second.uid]
    assert stays in scene.pods


def test_a_burst_that_a_limit_holds_back_asks_in_few_plans_at_a_time() -> None:
    """Each plan holds a connection to the binder, and those that place pods want one too."""
    scene, count = lent(40, limited=True), 300
    scene.hold_plans = True
    for pod in owners(count):
        scene.add_pod(pod)
    scene.run(batch=100, until_s=GIVE_UP_S - 10)
    assert len(scene.held_plans) == EVICTING_PLANS
    asked = {eviction.uid for plan in scene.held_plans for eviction in plan.evictions}
    assert 0 < len(asked) < count
    scene.hold_plans = False
    scene.inbox.extend(map(scene.bind, scene.held_plans))
    scene.run(batch=100, until_s=5)
    assert len(scene.bindings) == len(set(scene.evicted)) == len(scene.evicted) == count
    assert len([plan for plan in scene.plans if plan.evictions]) < count // 4
    assert validate(scene.core) == []


def test_who_was_not_asked_yet_is_not_given_up() -> None:
    scene, count = lent(40, limited=True), 300
    scene.hold_plans = True
    for pod in owners(count):
        scene.add_pod(pod)
    scene.run(batch=100, until_s=2)
    leaving = scene.core.queues._reclaimer._leaving
    asked = {eviction.uid for plan in scene.held_plans for eviction in plan.evictions}
    before = {uid for attempt in leaving.attempts.values() for uid in attempt.victims}
    assert len(before) == count > len(asked)
    scene.run(batch=100, until_s=GIVE_UP_S + 1)
    after = {uid for attempt in leaving.attempts.values() for uid in attempt.victims}
    assert before - asked <= after
    assert leaving.refused.keys() == asked


def test_who_waits_in_vain_gets_what_becomes_free_before_who_comes() -> None:
    scene = lent(2)
    put(scene, Queue(BORROWER, min_run_s=3600))
    scene.run(batch=100, until_s=3)
    first, newcomer = owners(6)[:5], owners(6)[5]
    for pod in first:
        scene.add_pod(pod)
    scene.run(batch=100, until_s=10)
    assert scene.evicted == []
    put(scene, Queue("brief"))  # one of them may go by now, and another owner comes at that moment
    scene.change_pod("uid-low-0-0", labels={QUEUE_LABEL: "brief"})
    scene.add_pod(newcomer)
    scene.run(batch=100, until_s=3)
    assert len(scene.bindings) == 1
    assert scene.bindings[0][0] in {pod.uid for pod in first}


def test_units_that_may_not_take_back_yet_leave_the_nodes_to_those_that_may() -> None:
    """Though they are of the same kind, and as many come in each second as there are nodes."""
    scene, nodes, after_s = lent(4), 4, 5.0
    put(scene, Queue(LENDER, guaranteed=cpus(nodes * PLACES), reclaim=True, reclaim_after_s=after_s))
    scene.run(batch=100, until_s=3)
    pods = owners(24)
    for second in range(6):
        for pod in pods[nodes * second : nodes * (second + 1)]:
            scene.add_pod(pod)
        scene.run(batch=100, until_s=1)
        assert bool(scene.evicted) is (second + 1 > after_s)
    scene.run(batch=100, until_s=1)
    assert {uid for uid, _ in scene.bindings} >= {pod.uid for pod in pods[:nodes]}


def test_a_queue_that_reclaims_no_more_is_not_looked_at_early() -> None:
    scene = lent(2)
    reclaimer, turns = scene.core.queues._reclaimer, scene.core.state.queue.turns
    assert turns is not None
    turns.fresh["gone"] = {"uid-gone": None}
    turns.fresh[BORROWER] = {"uid-other": None}
    scene.run(batch=100, until_s=2)
    assert not turns.fresh
    assert not reclaimer._may_look_early(turns)


def test_while_paused_no_sums_are_kept() -> None:
    scene = lent(2)
    for pod in owners(3):
        scene.add_pod(pod)
    scene.run(batch=100, until_s=0.9)
    assert scene.core.state.queues.changed is not None
    scene.deliver(ControlSeen(paused=Paused(by="somebody", reason="", since="")))
    assert scene.core.state.queues.changed is None


def crowd(rng: Random, nodes: int) -> list[Pod]:
    """Full nodes: pods of one to two places, of three priorities and two queues."""
    pods = []
    for node in range(nodes):
        left, number = 4, 0
        while left:
            size = min(left, rng.choice([1, 1, 2]))
            built = make_pod(f"low-{node}-{number}").cpu(str(size)).priority(rng.choice([0, 5, 9])).on(f"n{node}")
            pods.append(labelled(built.pod(), rng.choice(["b", "b", "c"])))
            left, number = left - size, number + 1
    return pods


def burst(seed: int, *, batch: int, apart: bool) -> tuple[Scene, int]:
    """Pods of one and two places take back what two queues borrowed; ``apart``: each once the one before is bound."""
    rng, nodes = Random(seed), 6
    pods, count, size = crowd(rng, nodes), rng.choice([3, 7, 10]), rng.choice(["1", "2"])
    scene = Scene(seed=seed)
    for node in range(nodes):
        scene.add_node(make_node(f"n{node}").allocatable(cpu="4").node())
    for pod in pods:
        scene.add_pod(pod)
    put(scene, Queue(LENDER, guaranteed=cpus(4 * nodes - 4), reclaim=True))
    put(scene, Queue("b", guaranteed=cpus(2)))
    put(scene, Queue("c", guaranteed=cpus(2)))
    scene.begin()
    scene.run(batch=100, until_s=3)
    for pod in owners(count, size):
        scene.add_pod(pod)
        if apart:
            scene.run(batch=batch, until_s=30)
    scene.run(batch=batch, until_s=30)
    return scene, count


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize("seed", range(8))
def test_a_burst_costs_no_more_than_one_by_one(seed: int, batch: int) -> None:
    scene, count = burst(seed, batch=batch, apart=False)
    alone, _ = burst(seed, batch=batch, apart=True)
    assert len(bound(scene)) == len(bound(alone)) == count
    assert len(set(scene.evicted)) == len(scene.evicted)
    assert len(scene.evicted) <= len(alone.evicted)
    assert all(used(scene, name) >= 2000 for name in ("b", "c"))


@pytest.mark.parametrize("labels", [False, True])
def test_nodes_are_ranked_though_what_they_lend_offline_pods_changes_all_the_time(
    monkeypatch: pytest.MonkeyPatch, *, labels: bool
) -> None:
    """With ``labels`` other nodes are right each time, and the look ends."""
    scene, in_order, counted = lent(2), Lent._in_order, Lent._count_one
    for number in range(2):
        scene.add_node(make_node(f"n{number:03}").allocatable(cpu=str(PLACES), **{OFFLINE_CPU: "1"}).node())
    scene.run(batch=100, until_s=1)
    ranked, counts, amounts = list[int](), Counter[str](), itertools.count(2)

    def interrupted(found: Lent, *args: Any) -> Work[list[str]]:
        steps = in_order(found, *args)
        try:
            while True:
                next(steps)
                amount = str(next(amounts))
                node = make_node("n001").allocatable(cpu=str(PLACES), **{OFFLINE_CPU: amount})
                scene.add_node(node.label(**({"moved": amount} if labels else {})).node())
                yield 10**9  # no more of it this turn
        except StopIteration as end:
            names: list[str] = end.value
            ranked.append(len(names))
            return names

    def count(found: Lent, uid: str) -> None:
        counts[uid] += 1
        counted(found, uid)

    monkeypatch.setattr(Lent, "_in_order", interrupted)
    monkeypatch.setattr(Lent, "_count_one", count)
    for pod in owners(3):
        scene.add_pod(pod)
    scene.run(batch=100, until_s=5)
    assert set(ranked) == (set() if labels else {2})
    assert bool(scene.evicted) is not labels
    assert labels or max(counts[f"uid-low-1-{place}"] for place in range(PLACES)) <= 3


def test_the_totals_follow_what_nodes_lend_offline_pods_though_nothing_else_comes() -> None:
    scene = lent(1)
    tree, node = scene.core.state.queues, make_node("n000")
    scene.add_node(node.allocatable(cpu=str(PLACES), **{OFFLINE_CPU: "1"}).node())
    scene.run()
    assert tree.capacity[OFFLINE_CPU] == 1  # a resource that is new
    for amount in (2, 3):
        scene.add_node(node.allocatable(cpu=str(PLACES), **{OFFLINE_CPU: str(amount)}).node())
        scene.run()
        assert tree.capacity[OFFLINE_CPU] == 1
    scene.run(until_s=LENT_EVERY_S + 1)
    assert tree.capacity[OFFLINE_CPU] == 3


def test_the_sums_of_what_is_lent_are_checked() -> None:
    scene = lent(2)
    scene.keep_victims = True
    for pod in owners(3):
        scene.add_pod(pod)
    reclaimer: Reclaimer = scene.core.queues._reclaimer
    for _ in range(100):
        if reclaimer.lent._of:
            break
        scene.run(batch=100, until_s=0.01)
    assert validate(scene.core) == []
    uid = next(iter(reclaimer.lent._of))
    line, row, amounts = reclaimer.lent._of[uid]
    reclaimer.lent._of[uid] = line, row + 1, amounts
    reclaimer.lent._changed.clear()  # type: ignore[union-attr]
    assert [line for line in validate(scene.core) if line.startswith("queue-lent")]
