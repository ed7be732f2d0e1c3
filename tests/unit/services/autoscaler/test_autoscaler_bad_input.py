"""Bad input of an object or of its surroundings: one clear condition, and the replicas stay."""

from __future__ import annotations

from typing import Any

import pytest

from services.autoscaler.core.deciding import UNKNOWN_S
from services.autoscaler.core.events import ScaledPodSeen
from shared.autoscaling.registry import make_policy
from shared.autoscaling.safety.readings import SignalReading
from shared.model.controllers.autoscaler import ScalingSignal
from tests.unit.services.autoscaler.scaler_world import WALL, World, pod_of, spec_of, usage_of


@pytest.fixture
def world() -> World:
    """One service that runs at 4, with a go; its policy wants 1."""
    made = World(spec=spec_of("front"))
    made.serve("front", 4)
    made.policy.wanted = {"front": 4}
    made.elect()
    made.run()
    made.approve()
    made.run()
    made.policy.wanted = {"front": 1}
    return made


def target(**more: Any) -> dict[str, Any]:
    return {"name": "front", "scaleTargetRef": {"name": "front"}, "minReplicas": 1, "maxReplicas": 9, **more}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"targets": [target(calls=["front"])]}, "spec.targets: 'front -> front' is a loop of calls"),
        ({"targets": [target(minReplicas=7, maxReplicas=2)]}, "is more than maxReplicas, 2"),
        (
            {"targets": [target(minReplicas=3)], "objectives": {"costLimit": 2}},
            "spec.objectives.costLimit: 2.0 is less than all minReplicas together, 3",
        ),
        ({"targets": [target(minReplicas=float("nan"))]}, "spec.targets[0].minReplicas: nan"),
        ({"targets": [target(name="front\x1b[2J")]}, "must be a text of at most 63 printable characters"),
        ({"policy": {"name": "test\nReady True"}}, "must be a text of at most 63 printable characters"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_one_condition_that_names_the_field(
    world: World, change: dict[str, Any], told: str
):
    world.apply({**world.spec, **change})
    world.run(3)
    assert world.accepted == []
    status, reason, message = world.condition("Ready")
    assert (status, reason) == ("False", "Invalid")
    assert told in message
    assert message.isprintable()
    assert world.condition("Acting")[0] == "False"


@pytest.mark.parametrize(
    ("value", "at_s", "why"),
    [
        (-3.0, 0.0, "-3 is negative"),
        (5.0, 120.0, "120 s in the future"),
        (5.0, -300.0, "300 s old"),
        (120_000.0, 0.0, "is it in millicores?"),
    ],
)
def test_a_reading_that_cannot_be_is_one_condition_and_nothing_falls(world: World, value: float, at_s: float, why: str):
    world.now += 600
    now = WALL + world.now + 10  # of the next round
    world.metrics = {
        f"front-{number}": usage_of(f"front-{number}", now + at_s, cpu=value, memory=1e8) for number in range(4)
    }
    world.run()
    assert world.accepted == []
    status, reason, message = world.condition("MetricsGood")
    assert (status, reason) == ("False", "Bad")
    assert f"front cpu: {'it is from ' if 'future' in why else ''}" in message
    assert why in message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_cpu_that_is_no_number_is_told_and_nothing_falls(world: World, value: float):
    spec = {**world.spec}
    spec["targets"] = [target(metrics=[{"signal": "cpu", "type": "Prometheus", "query": "cpu"}])]
    world.readings = {"front": {ScalingSignal.CPU: SignalReading(value, WALL + world.now + 10)}}
    world.apply(spec)
    world.approve()
    world.run()
    assert "is no number" in world.condition("MetricsGood")[2]
    assert world.accepted == []


def test_a_signal_that_has_no_source_hides_none_that_is_bad(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(world.policy, "needs", lambda service: frozenset({"arrivals"}), raising=False)
    now = WALL + world.now + 10  # of the next round
    world.metrics = {f"front-{number}": usage_of(f"front-{number}", now, cpu=-3.0, memory=1e8) for number in range(4)}
    world.run()
    status, reason, message = world.condition("MetricsGood")
    assert (status, reason) == ("False", "SignalsMissing")
    assert message.startswith("front: test needs arrivals")
    assert "front cpu: -3 is negative" in message


def by_demand(world: World, cpu: float, failed: float, asked: dict[str, int] | None = None) -> None:
    """The policy goes by demand and wants 1; every pod uses so many cores of the one that it requests."""
    now = WALL + world.now + 10  # of the next round
    spec, signals = {**world.spec}, ("arrivals", "served", "failed")
    metrics = [{"signal": one, "type": "Prometheus", "query": one} for one in signals]
    spec["targets"] = [target(metrics=[{"signal": "cpu", "type": "Resource"}, *metrics])]
    values = (90.0, 90.0 - failed, failed)
    world.readings = {
        "front": {ScalingSignal(one): SignalReading(value, now) for one, value in zip(signals, values, strict=True)}
    }
    world.metrics = {f"front-{number}": usage_of(f"front-{number}", now, cpu=cpu, memory=1e8) for number in range(4)}
    world.apply(spec)
    world.approve()
    if asked is not None:
        world.tell(ScaledPodSeen(pod_of("front-0", owner="set-front", requests=asked)))
    world.run()


@pytest.mark.parametrize("name", ["demand", "karma"])
@pytest.mark.parametrize(
    ("cpu", "failed", "asked", "told"),
    [(0.2, 70.0, None, "CapacityUnknown"), (0.2, 0.0, {"memory": 1}, "SignalsMissing"), (0.2, 0.0, None, "Sound")],
)
def test_whose_cpu_says_nothing_of_its_load_does_not_shrink_by_it(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    cpu: float,
    failed: float,
    asked: dict[str, int],
    told: str,
):
    monkeypatch.setattr(world.policy, "needs", make_policy(name).needs, raising=False)
    by_demand(world, cpu, failed, asked)
    assert bool(world.accepted) == (told == "Sound")  # with nothing to tell it falls: the case is no empty one
    assert world.condition("PolicySound")[1] == told
    # that much fails makes no reading a bad one
    assert ("requests.cpu" in world.condition("MetricsGood")[2]) == (told == "SignalsMissing")


def test_what_fails_now_and_then_at_little_cpu_is_one_trouble_and_it_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(world.policy, "needs", make_policy("demand").needs, raising=False)
    for failed in (70.0, 0.0, 70.0, 0.0):
        by_demand(world, 0.2, failed)
        assert world.condition("PolicySound")[1] == "CapacityUnknown"
        assert world.condition("MetricsGood")[0] == "True"
    assert world.accepted == []
    world.now += UNKNOWN_S
    by_demand(world, 0.2, 0.0)
    assert world.condition("PolicySound")[1] == "Sound"


def test_a_rate_of_another_unit_is_told(world: World):
    spec = {**world.spec}
    spec["targets"] = [target(metrics=[{"signal": "latency", "type": "Prometheus", "query": "p95"}])]
    world.readings = {"front": {ScalingSignal.LATENCY: SignalReading(2_500.0, WALL + world.now + 10)}}
    world.apply(spec)
    world.run()
    assert "is it in milliseconds?" in world.condition("MetricsGood")[2]
    assert world.accepted == []


@pytest.mark.parametrize(
    "labels",
    [
        {"app": "front"},
        {"app": "front", "conclave.io/paused": "false", "x\x1b[31m": "red"},
        {"pod-template-hash": "1", "app": "front"},
    ],
)
def test_pods_that_an_attacker_labels_as_ours_change_nothing(world: World, labels: dict[str, str]):
    """Not the number of ready pods, nor a failing probe of theirs, nor what their samples would say."""
    world.policy.wanted = {"front": 4}
    for number in range(30):
        world.tell(ScaledPodSeen(pod_of(f"evil-{number}", labels=labels, start_s=0.0, ready=number % 2 == 0)))
    world.run()
    seen = world.policy.seen[-1].services["front"]
    assert (seen.ready, seen.starting, seen.pending, seen.held) == (4, 0, 0, ())
    assert world.accepted == []


def test_a_foreign_writers_name_is_shown_as_text(world: World):
    world.scale("front", 12, writer="kubectl\x1b[2J\nReady True")
    world.run(2)
    status, _, message = world.condition("ForeignWriter")
    assert status == "True"
    assert message.isprintable()
    assert world.deployments["front"].replicas == 12
