"""Which readings count, when a policy has left what it was trained on, and who else writes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from shared.autoscaling.approval import digest_of, refusal, weights_of
from shared.autoscaling.observation import Bounds, Observation, ServiceObservation
from shared.autoscaling.registry import make_policy
from shared.autoscaling.safety.canary import chosen, in_window
from shared.autoscaling.safety.drift import Drift, after
from shared.autoscaling.safety.foreign import Expected, Foreign, seen, shared_targets, text
from shared.autoscaling.safety.readings import Reading, checked, problem_of
from shared.model.autoscaler import Autoscaler, Go, Signal
from shared.policy.weights import Card, WeightsFile

WALL = 1_800_000_000.0


@pytest.mark.parametrize(
    ("signal", "reading", "why"),
    [
        (Signal.CPU, Reading(None), "no value"),
        (Signal.CPU, Reading(math.nan, WALL), "no number"),
        (Signal.CPU, Reading(math.inf, WALL), "no number"),
        (Signal.ARRIVALS, Reading(-1.0, WALL), "negative"),
        (Signal.CPU, Reading(1.0, WALL + 60), "future"),
        (Signal.CPU, Reading(1.0, WALL - 61), "61 s old"),
        (Signal.LATENCY, Reading(900.0, WALL), "milliseconds"),
        (Signal.CPU, Reading(5000.0, WALL), "millicores"),
        (Signal.QUEUE, Reading(None, None, "Prometheus does not answer"), "does not answer"),
    ],
)
def test_a_reading_that_cannot_be_relied_on_says_why(signal: Signal, reading: Reading, why: str):
    assert why in problem_of(signal, reading, wall_s=WALL, stale_after_s=60)


def test_good_readings_stay_and_the_oldest_one_counts():
    readings = {
        Signal.CPU: Reading(0.5, WALL - 20),
        Signal.ARRIVALS: Reading(3.0, WALL - 5),
        Signal.QUEUE: Reading(-1, WALL),
    }
    good, bad, age = checked(readings, wall_s=WALL, stale_after_s=60)
    assert good == {Signal.CPU: 0.5, Signal.ARRIVALS: 3.0}
    assert bad.keys() == {Signal.QUEUE}
    assert age == 20


def observed(arrivals: float | None) -> Observation:
    service = ServiceObservation(replicas=2, ready=2, bounds=Bounds(1, 9), arrivals=arrivals)
    return Observation(now=0.0, services={"front": service})


def test_drift_needs_several_decisions_and_leaves_later_than_it_came():
    envelope = {"arrivals": (0.0, 100.0)}
    one = after(Drift(), observed(500.0), envelope)
    assert not one.drifting
    two = after(one, observed(500.0), envelope)
    assert after(two, observed(500.0), envelope).drifting
    drifting = after(two, observed(500.0), envelope)
    assert "front arrivals" in drifting.why
    calm = after(drifting, observed(50.0), envelope)
    assert calm.drifting
    for _ in range(5):
        calm = after(calm, observed(50.0), envelope)
    assert not calm.drifting
    assert calm.why == ""


def test_without_a_reading_of_the_envelope_drift_stays_as_it_was():
    before = Drift(0.4, True, ("x",))
    assert after(before, observed(None), {"arrivals": (0.0, 1.0)}) == before
    assert after(before, observed(9.0), {}) == before


GO = Go("ada", "sha256:1", "monday")


def test_what_we_wrote_or_may_have_written_is_not_foreign():
    assert seen(None, 7, by="kubectl", go=GO, before=None) is None
    assert seen(Expected((3, 5)), 5, by="", go=GO, before=None) is None
    assert seen(Expected((3, 5)), 3, by="", go=GO, before=None) is None


def test_a_foreign_write_stands_until_a_new_go():
    found = seen(Expected((5,)), 9, by="kubectl-scale", go=GO, before=None)
    assert found == Foreign(9, "kubectl-scale", GO)
    assert "kubectl-scale" in text(found)
    assert seen(Expected((5,)), 9, by="", go=GO, before=found) == found
    assert seen(Expected((5,)), 12, by="keda", go=GO, before=found) == Foreign(12, "keda", GO)
    assert seen(None, 9, by="", go=Go("ada", "sha256:1", "tuesday"), before=found) is None


def test_two_objects_on_one_target_are_both_named():
    found = shared_targets([("a/x", ["Deployment/front"]), ("a/y", ["Deployment/front", "Deployment/cart"])])
    assert found == {"Deployment/front": ("a/x", "a/y")}


def test_a_go_counts_for_what_was_approved_alone():
    spec = {"mode": "act-on-scale", "targets": [{"name": "front", "maxReplicas": 9}]}
    digest = digest_of(spec, "w1")

    def given(go: Go) -> str:
        return refusal(Autoscaler(namespace="a", name="x", document=spec, go=go), digest)

    assert given(Go("ada", digest)) == ""
    assert "nobody" in given(Go())
    assert "who" in given(Go("", digest))
    assert "changed" in given(Go("ada", digest_of(spec, "w2")))
    assert "changed" in given(Go("ada", digest_of({**spec, "mode": "observe"}, "w1")))
    assert digest_of({"b": 1, "a": 2}) == digest_of({"a": 2, "b": 1})


def test_a_learned_policy_is_approved_with_its_weights():
    learned = SimpleNamespace(weights=WeightsFile(arrays={}, card=Card(policy="karma", version=1), sha256="ab12"))
    assert weights_of(learned) == "ab12"
    assert weights_of(make_policy("hpa")) == ""
    assert digest_of({}, weights_of(learned)) != digest_of({}, "")


def test_the_canary_is_the_same_share_each_time():
    names = [f"s{number}" for number in range(10)]
    assert len(chosen(names, 25, salt="u")) == 3
    assert chosen(names, 25, salt="u") == chosen(list(reversed(names)), 25, salt="u")
    assert chosen(names, 20, salt="u") <= chosen(names, 60, salt="u")
    assert chosen(names, 0, salt="u") == frozenset()
    assert chosen(names, 100, salt="u") == frozenset(names)


def test_the_canary_of_time_is_the_beginning_of_each_hour():
    hour = WALL - WALL % 3600
    assert in_window(hour + 359, 10)
    assert not in_window(hour + 361, 10)
    assert not in_window(hour, 0)
    assert in_window(hour + 3599, 100)
