"""What Prometheus sees of pod groups and queues."""

from __future__ import annotations

from prometheus_client import generate_latest

from services.coordinator.inspect import group_metrics
from services.coordinator.inspect.metrics import SchedulerMetrics
from services.coordinator.inspect.queue_facts import tree_of
from shared.model.units.queue import Queue
from shared.runtime.observe.metrics import Metrics
from shared.scheduling.queues.nodes import Charge, WaitingUnit
from tests.unit.services.coordinator.inspect.test_group_facts import add_members, scene_with, tell_group
from tests.unit.services.coordinator.preemption.test_group_preemption import add_members as add_preemptors
from tests.unit.services.coordinator.preemption.test_group_preemption import full
from tests.unit.services.coordinator.preemption.test_group_preemption import tell_group as tell_preemptor
from tests.unit.services.coordinator.scene import Scene

RESULT = 'scheduler_podgroup_schedule_attempts_total{{profile="conclave",result="{}"}}'


def shown(scene: Scene | None) -> dict[str, float]:
    """Every series, after what happened was taken over."""
    metrics = Metrics("coordinator")
    scheduler = SchedulerMetrics(metrics, profile="conclave", core=lambda: scene.core if scene is not None else None)
    if scene is not None:
        scheduler.observe(scene.core.state.stats, [])
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_a_gang_that_is_placed_counts_once_with_its_span() -> None:
    scene = scene_with(2)
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    series = shown(scene)
    assert series[RESULT.format("scheduled")] == 1
    assert series["conclave_gang_bind_span_seconds_count"] == 1
    assert series['conclave_pod_groups{phase="running"}'] == 1
    assert series["conclave_coordinator_gangs_placed_total"] == 1


def test_a_gang_without_room_counts_as_unschedulable_and_stands_in_its_place() -> None:
    scene = scene_with(1)
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    series = shown(scene)
    assert series[RESULT.format("unschedulable")] >= 1
    assert series['conclave_pod_groups_queued{place="unschedulable"}'] == 1
    assert series["scheduler_podgroup_preemption_attempts_total"] >= 1


def test_a_preemption_by_a_group_counts_apart_from_those_by_pods() -> None:
    scene = full()
    tell_preemptor(scene, 2)
    add_preemptors(scene, 2)
    scene.run(batch=100, until_s=20)
    assert len(scene.evicted) == 2
    series = shown(scene)
    assert series["scheduler_podgroup_preemption_attempts_total"] == 1
    assert series["scheduler_podgroup_preemption_attempt_duration_seconds_count"] == 1
    victims = "scheduler_podgroup_preemption_victims"
    assert (series[f"{victims}_count"], series[f"{victims}_sum"]) == (1, 2)
    assert series["scheduler_preemption_attempts_total"] == series["scheduler_preemption_victims_count"] == 0


def test_queues_are_shown_with_their_limits_and_who_is_held() -> None:
    scene = scene_with(1)
    tree = tree_of(scene.core)
    tree.set_capacity({"cpu": 8000})
    tree.put_queue(Queue("vision", guaranteed={"cpu": 4000}, maximum={"cpu": 2000}))
    tree.charge(Charge("a", "d", "vision", (("cpu", 1500),), "a"))
    tree.add(WaitingUnit("b", "d", "vision", 0, 1, (("cpu", 1000),)))
    assert tree.front() is None
    series = shown(scene)
    named = 'queue="vision",resource="cpu"'
    assert series[f"conclave_queue_used{{{named}}}"] == 1500
    assert series[f"conclave_queue_guaranteed{{{named}}}"] == 4000
    assert series[f"conclave_queue_maximum{{{named}}}"] == 2000
    assert series['conclave_queue_pending_units{queue="vision"}'] == 1
    assert series['conclave_queue_held_units{queue="vision"}'] == series["conclave_units_held"] == 1


def test_however_many_queues_there_are_few_become_labels() -> None:
    scene = scene_with(1)
    tree = tree_of(scene.core)
    for number in range(group_metrics.MOST_QUEUES + 20):
        tree.put_queue(Queue(f"q{number:03d}", guaranteed={f"example.com/r{n}": 1 for n in range(20)}))
    series = shown(scene)
    assert series["conclave_queues"] == group_metrics.MOST_QUEUES + 20
    guaranteed = [name for name in series if name.startswith("conclave_queue_guaranteed")]
    assert len(guaranteed) == group_metrics.MOST_QUEUES * group_metrics.MOST_RESOURCES


def test_a_standby_shows_zeros() -> None:
    series = shown(None)
    assert series['conclave_pod_groups{phase="broken"}'] == 0
    assert series["conclave_queues"] == series["conclave_units_held"] == 0
