"""Which readings count, when a policy has left what it was trained on, and who else writes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from shared.autoscaling.approval import digest_of, refusal, weights_of
from shared.autoscaling.registry import make_policy
from shared.autoscaling.safety.drift import Drift, after
from shared.autoscaling.safety.foreign import (
    GRACE_S,
    LOOP,
    LOOP_S,
    NONE_EARLIER,
    Earlier,
    Expected,
    Foreign,
    seen,
    settled,
    text,
)
from shared.autoscaling.safety.readings import SignalReading, checked, problem_of
from shared.decide.canary import first_of, in_window
from shared.model.controllers.autoscaler import Autoscaler, ForeignWriter, Go, ScalingSignal
from shared.policy.weights import Card, WeightsFile

WALL = 1_800_000_000.0


@pytest.mark.parametrize(
    ("signal", "reading", "why"),
    [
        (ScalingSignal.CPU, SignalReading(None), "no value"),
        (ScalingSignal.CPU, SignalReading(math.nan, WALL), "no number"),
        (ScalingSignal.CPU, SignalReading(math.inf, WALL), "no number"),
        (ScalingSignal.ARRIVALS, SignalReading(-1.0, WALL), "negative"),
        (ScalingSignal.CPU, SignalReading(1.0, WALL + 60), "future"),
        (ScalingSignal.CPU, SignalReading(1.0, WALL - 61), "61 s old"),
        (ScalingSignal.LATENCY, SignalReading(900.0, WALL), "milliseconds"),
        (ScalingSignal.CPU, SignalReading(5000.0, WALL), "millicores"),
        (ScalingSignal.QUEUE, SignalReading(None, None, "Prometheus does not answer"), "does not answer"),
    ],
)
def test_a_reading_that_cannot_be_relied_on_says_why(signal: ScalingSignal, reading: SignalReading, why: str):
    assert why in problem_of(signal, reading, wall_s=WALL, stale_after_s=60)


def test_good_readings_stay_and_the_oldest_one_counts():
    readings = {
        ScalingSignal.CPU: SignalReading(0.5, WALL - 20),
        ScalingSignal.ARRIVALS: SignalReading(3.0, WALL - 5),
        ScalingSignal.QUEUE: SignalReading(-1, WALL),
    }
    good, bad, age = checked(readings, wall_s=WALL, stale_after_s=60)
    assert good == {ScalingSignal.CPU: 0.5, ScalingSignal.ARRIVALS: 3.0}
    assert bad.keys() == {ScalingSignal.QUEUE}
    assert age == 20


TRAINED = {"latency": (0.0, 10.0)}


def seen_as(latency: float) -> dict[str, dict[str, float]]:
    return {"front": {"latency": latency}, "cart": {"latency": 1.0, "unheard_of": 1e9}}


def test_drift_needs_four_decisions_in_a_row_and_leaves_later_than_it_came():
    one = Drift()
    for _ in range(3):
        one = after(one, seen_as(50.0), TRAINED)
        assert not one.drifting
    drifting = after(one, seen_as(50.0), TRAINED)
    assert drifting.drifting
    assert "front latency 50, trained on 0 to 10" in drifting.why
    calm = after(drifting, seen_as(5.0), TRAINED)
    assert calm.drifting
    assert "front latency" in calm.why
    for _ in range(5):
        calm = after(calm, seen_as(5.0), TRAINED)
    assert not calm.drifting
    assert calm.why == ""


def test_a_range_is_widened_by_a_tenth_and_what_is_no_number_is_outside():
    assert after(Drift(), seen_as(11.0), TRAINED).outside == ()
    assert after(Drift(), seen_as(11.2), TRAINED).outside != ()
    assert after(Drift(), seen_as(math.nan), TRAINED).outside != ()


def test_without_an_input_of_the_envelope_drift_stays_as_it_was():
    before = Drift(0.4, True, ("x",))
    assert after(before, {}, TRAINED) == before
    assert after(before, seen_as(99.0), {}) == before


GO = Go("ada", "sha256:1", "monday")


def test_what_we_wrote_or_may_have_written_is_not_foreign():
    assert seen(None, 7, by="kubectl", go=GO, before=None, wall_s=WALL) is None
    assert seen(Expected((3, 5)), 5, by="", go=GO, before=None, wall_s=WALL) is None
    assert seen(Expected((3, 5)), 3, by="", go=GO, before=None, wall_s=WALL) is None


def earlier_than(before: Foreign | None) -> Earlier:
    return NONE_EARLIER if before is None else Earlier(before.times, (before.at_s,))


def found_at(shown: int, *, before: Foreign | None = None, wall_s: float = WALL, go: Go = GO) -> Foreign | None:
    """What is known after a reading, where 5 was written by us."""
    earlier = earlier_than(before)
    return seen(Expected((5,)), shown, by="kubectl-scale", go=go, before=before, wall_s=wall_s, earlier=earlier)


def test_a_foreign_write_is_told_with_who_wrote_it_and_stands_for_its_grace():
    found = found_at(9)
    assert found == Foreign(9, "kubectl-scale", GO, WALL)
    assert found.stands(WALL + GRACE_S - 1)
    assert not found.stands(WALL + GRACE_S)
    assert "kubectl-scale" in text(found, ForeignWriter.HOLD, WALL)
    assert seen(None, 9, by="kubectl-scale", go=GO, before=found, wall_s=WALL + 10) == found
    assert found_at(12, before=found, wall_s=WALL + 10) == Foreign(12, "kubectl-scale", GO, WALL + 10, 2)
    assert found_at(9, before=found, go=Go("ada", "sha256:1", "tuesday")) is None


def test_the_same_number_written_again_over_ours_is_one_more_write():
    floor = Foreign(8, "argocd", GO, WALL, 1, kept=True)
    assert seen(Expected((8,)), 8, by="", go=GO, before=floor, wall_s=WALL + 60) == floor
    assert seen(Expected((8, 10)), 8, by="", go=GO, before=floor, wall_s=WALL + 60) == floor  # ours did not come about
    again = seen(Expected((10,)), 8, by="argocd", go=GO, before=floor, wall_s=WALL + 60, earlier=earlier_than(floor))
    assert again == Foreign(8, "argocd", GO, WALL + 60, 2)


@pytest.mark.parametrize("answer", list(ForeignWriter))
def test_what_somebody_set_too_low_is_ours_again_once_it_is_risen_over(answer: ForeignWriter):
    theirs = Foreign(2, "helm", GO, WALL)
    early, late = WALL + GRACE_S - 1, WALL + GRACE_S
    assert settled(theirs, allowed=4, shown=2, answer=answer, wall_s=early) == theirs
    assert settled(theirs, allowed=4, shown=2, answer=answer, wall_s=late) is None


def test_what_somebody_set_above_need_is_a_floor_until_a_go_and_corrected_where_that_is_asked_for():
    theirs, late = Foreign(10, "kubectl", GO, WALL), WALL + GRACE_S
    kept = settled(theirs, allowed=4, shown=10, answer=ForeignWriter.HOLD, wall_s=late)
    assert kept is not None
    assert kept.kept
    assert "approved again" in text(kept, ForeignWriter.HOLD, late)
    # a rise above it does not take the floor away
    assert settled(kept, allowed=12, shown=10, answer=ForeignWriter.HOLD, wall_s=late) == kept
    assert settled(theirs, allowed=4, shown=10, answer=ForeignWriter.CORRECT, wall_s=late) is None


def test_who_writes_again_and_again_is_told_how_to_stop_it():
    again = found_at(2, before=Foreign(3, "argocd-controller", GO, WALL))
    assert again is not None
    said = text(again, ForeignWriter.CORRECT, WALL)
    assert "(2 such writes so far)" in said
    assert "take replicas out of what is applied" in said


@pytest.mark.parametrize(("apart_s", "loops"), [(10.0, True), (LOOP_S / 2, True), (LOOP_S / 2 + 1, False)])
def test_so_many_writes_within_a_while_are_a_loop(apart_s: float, loops: bool):
    earlier = NONE_EARLIER
    for number in range(LOOP + 2):
        at = WALL + number * apart_s
        found = seen(Expected((5,)), 2, by="argocd", go=GO, before=None, wall_s=at, earlier=earlier)
        assert found is not None
        assert (found.times, found.loops) == (number + 1, loops and number + 1 >= LOOP)
        assert found.holds(4, at) is not found.loops
        assert found.holds(1, at), "above need it has its grace"
        earlier = earlier.then(at)


def test_a_go_counts_for_what_was_approved_alone():
    spec = {"mode": "act-on-scale", "targets": [{"name": "front", "maxReplicas": 9}]}
    digest = digest_of(spec, "w1")

    def given(go: Go) -> str:
        return refusal(Autoscaler(namespace="a", name="x", document=spec, go=go), digest)

    assert given(Go("ada", digest)) == ""
    assert "not approved" in given(Go())
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
    assert len(first_of(names, "u", 25)) == 3
    assert first_of(names, "u", 25) == first_of(list(reversed(names)), "u", 25)
    assert first_of(names, "u", 20) <= first_of(names, "u", 60)
    assert first_of(names, "u", 0) == frozenset()
    assert first_of(names, "u", 100) == frozenset(names)


def test_the_canary_of_time_is_the_beginning_of_each_hour():
    hour = WALL - WALL % 3600
    assert in_window(hour + 359, 10)
    assert not in_window(hour + 361, 10)
    assert not in_window(hour, 0)
    assert in_window(hour + 3599, 100)
