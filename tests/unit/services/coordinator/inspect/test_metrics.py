"""kube-scheduler's metrics mean here what they mean there, and no label is text from the cluster."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from services.coordinator.core.events import PlanAnswered
from services.coordinator.inspect.metrics import EVENT_LABELS, SchedulerMetrics
from shared.model.cluster_events import ObjectChanged
from shared.model.devices import DeviceTaint
from shared.runtime.observe.metrics import Metrics
from shared.scheduling.devices.census import STATES
from shared.scheduling.places import ClusterEvent, OwnEvent
from shared.wire.messages import VERSION, Outcome, PlacementResult, PlanResult
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene
from tests.unit.shared.scheduling.devices.builders import DRIVER, allocated, ask, claim, device, local


def shown(scene: Scene | None) -> dict[str, float]:
    """Every series by its name with labels, after what happened in the scene."""
    metrics = Metrics("coordinator")
    scheduler = SchedulerMetrics(metrics, profile="conclave", core=lambda: scene.core if scene is not None else None)
    if scene is not None:
        scheduler.observe(scene.core.state.stats, [])
    lines = re.findall(r"^([a-z_]+(?:\{[^}]*\})?) (\S+)$", metrics.exposition().decode(), re.MULTILINE)
    return {name: float(value) for name, value in lines}


def crowded() -> Scene:
    """Two pods are bound, one fits nowhere, one is gated, one is of another scheduler."""
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    for name in ("a", "b"):
        scene.add_pod(make_pod(name).cpu("1").pod())
    scene.add_pod(make_pod("huge").cpu("64").pod())
    gated = make_pod("gated").cpu("1").pod()
    scene.add_pod(replace(gated, gates=("example.com/wait",)))
    scene.add_pod(replace(gated, uid="uid-other", name="other", gates=("g",), scheduler_name="default-scheduler"))
    scene.run()
    return scene


def test_pending_pods_are_told_by_queue_and_gated_ones_with_them() -> None:
    scene = crowded()
    series = shown(scene)
    pending = {q: series[f'scheduler_pending_pods{{queue="{q}"}}'] for q in ("active", "backoff", "unschedulable")}
    assert pending == {"active": 0, "backoff": 0, "unschedulable": 1}
    assert series['scheduler_pending_pods{queue="gated"}'] == 1
    assert series['scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="conclave"}'] == 1
    scene.change_pod("uid-gated", gates=())
    scene.run()
    assert shown(scene)['scheduler_pending_pods{queue="gated"}'] == 0
    assert len(scene.bindings) == 3


def test_attempts_count_by_result_and_bound_pods_by_how_many_they_took() -> None:
    series = shown(crowded())
    results = {r: series[f'scheduler_schedule_attempts_total{{profile="conclave",result="{r}"}}'] for r in RESULTS}
    assert results == {"scheduled": 2, "unschedulable": 1, "error": 0}
    name = 'scheduler_scheduling_attempt_duration_seconds_count{profile="conclave",result="scheduled"}'
    assert series[name] == 2
    assert series['scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"}'] == 2
    assert series['scheduler_pod_scheduling_attempts_bucket{le="1.0"}'] == 2


def test_devices_are_told_by_driver_and_state_and_claims_by_whether_they_have_any() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    barred = device("d2", taints=(DeviceTaint("broken", "", "NoExecute"),))
    scene.inbox.append(ObjectChanged("resourceslices", "n0", local(device("d0"), device("d1"), barred, node="n0")))
    for one in (allocated("d1"), claim(ask())):
        scene.inbox.append(ObjectChanged("resourceclaims", one.key, one))
    scene.run()
    series = shown(scene)
    states = {s: series[f'conclave_devices{{driver="{DRIVER}",state="{s}"}}'] for s in STATES}
    assert states == {"free": 1, "allocated": 1, "tainted": 1, "blocked": 0}
    assert series['conclave_device_claims{state="allocated"}'] == series['conclave_device_claims{state="pending"}'] == 1
    standby = shown(None)
    assert standby['conclave_device_claims{state="pending"}'] == standby["conclave_pods_awaiting_claims"] == 0


def test_a_pod_that_waited_is_bound_at_its_second_attempt_and_its_wait_counts() -> None:
    scene = crowded()
    before = scene.now
    scene.now += 20
    scene.add_node(make_node("n1").allocatable(cpu="96").node())
    scene.run()
    series = shown(scene)
    assert series['scheduler_pod_scheduling_sli_duration_seconds_count{attempts="2"}'] == 1
    assert series['scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="2"}'] >= scene.now - before - 1
    assert series['scheduler_queue_incoming_pods_total{event="NodeAdd",queue="active"}'] == 1
    assert series['scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"}'] == 1
    assert series['scheduler_queue_incoming_pods_total{event="UnschedulablePodAdd",queue="active"}'] == 3


@pytest.mark.parametrize("settled_us", [100_000, 0], ids=["told", "an older binder"])
def test_an_attempt_ends_with_its_own_binding_not_with_the_slowest_of_its_plan(settled_us: int) -> None:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    scene.run()
    scene.hold_plans = True
    scene.add_pod(make_pod("a").cpu("1").pod())
    scene.run()
    (plan,) = scene.held_plans
    planned_at = scene.now
    scene.now += 2
    result = PlacementResult(plan.placements[0].unit, Outcome.BOUND, "n0", settled_us=settled_us)
    answer = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, [result], 2_000_000)
    scene.deliver(PlanAnswered(plan.plan_id, answer, 2.0))
    ((told, took_s, _),) = scene.core.state.stats.attempts_s
    assert told == "scheduled"
    assert took_s == pytest.approx(scene.now - planned_at - (1.9 if settled_us else 0), abs=0.5)


def test_preemption_counts_searches_and_victims() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    scene.add_pod(make_pod("low").cpu("3").on("n0").pod())
    scene.add_pod(make_pod("high").cpu("3").priority(100).pod())
    scene.run(until_s=15)
    series = shown(scene)
    assert scene.evicted == ["uid-low"]
    assert series["scheduler_preemption_attempts_total"] == 1
    assert (series["scheduler_preemption_victims_count"], series["scheduler_preemption_victims_sum"]) == (1, 1)


def test_a_standby_shows_zeros() -> None:
    series = shown(None)
    assert series['scheduler_pending_pods{queue="active"}'] == 0
    assert series['scheduler_cache_size{type="nodes"}'] == 0


def test_every_event_has_a_label_of_its_own() -> None:
    assert EVENT_LABELS.keys() == {*OwnEvent, *ClusterEvent}
    assert len(set(EVENT_LABELS.values())) == len(EVENT_LABELS)


RESULTS = ("scheduled", "unschedulable", "error")
