"""One reconciliation as a whole: what comes before the metrics, several of them, memory, zero, conditions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.autoscaling.hpa.convert_spec import external_metric
from shared.autoscaling.hpa.model import (
    Behavior,
    Fallback,
    HpaController,
    HpaObjectSpec,
    HpaObjectStatus,
    HpaOutcome,
    Memory,
    MetricAnswers,
    Recommendation,
    ScaleEvent,
    ScalingCondition,
)
from shared.autoscaling.hpa.rule import ABOVE_MAXIMUM, BELOW_MINIMUM
from tests.hpa_builders import CPU_HALF, FREE, NOON, QUEUE_TEN, once, pods, queued, reasons, rules, scale, spec, used

QUEUE = spec(QUEUE_TEN, behavior=FREE)
BOTH = spec(QUEUE_TEN, CPU_HALF, behavior=FREE)


def after(
    found: HpaOutcome, given_spec: HpaObjectSpec, answers: MetricAnswers, seconds: float, **more: Any
) -> HpaOutcome:
    """The next reconciliation, so many seconds after noon, by the same controller."""
    return once(given_spec, found.replicas, answers, memory=found.memory, now=NOON + seconds, **more)


def test_a_rise_is_told_with_the_metric_that_asked_for_most() -> None:
    found = once(BOTH, 4, replace(queued(90), resource=used(500, 500, 500, 500).resource))
    assert (found.replicas, found.scaled, found.reason, found.error) == (9, True, "DesiredWithinRange", "")
    assert found.rescale_reason == "external metric queue(nil) above target"
    assert reasons(found) == {
        "AbleToScale": "SucceededRescale",
        "ScalingActive": "ValidMetricFound",
        "ScalingLimited": "DesiredWithinRange",
    }
    assert [one.replicas for one in found.proposals or ()] == [9, 4]
    assert (found.status.current, found.status.desired, found.status.last_scale_s) == (4, 9, NOON)
    assert found.status.metrics == (
        {"type": "External", "external": {"metric": {"name": "queue"}, "current": {"averageValue": "22500m"}}},
        {
            "type": "Resource",
            "resource": {"name": "cpu", "current": {"averageValue": "500m", "averageUtilization": 50}},
        },
    )


def test_with_an_invalid_metric_the_others_may_hold_or_rise_but_never_fall() -> None:
    rising, falling = once(BOTH, 4, queued(90)), once(BOTH, 4, queued(10))
    assert (rising.replicas, rising.reason) == (9, "DesiredWithinRange")
    assert rising.error.startswith("1 of 2 metrics are invalid, first: cpu: ")
    assert (falling.replicas, falling.scaled, falling.reason) == (4, False, "FailedGetResourceMetric")
    assert falling.status.metrics is not None
    assert falling.status.metrics[1] == {"type": ""}
    assert once(BOTH, 4, queued(42)).replicas == 4


def test_all_metrics_invalid_keeps_what_was_desired() -> None:
    first = once(QUEUE, 4, queued(60))
    then = after(first, QUEUE, MetricAnswers(external_error="down"), 15)
    assert (then.replicas, then.status.desired, then.reason) == (6, 6, "FailedGetExternalMetric")
    assert then.status.conditions["ScalingActive"].status == "False"
    assert reasons(then)["ScalingLimited"] == "DesiredWithinRange"  # of the step before


def test_outside_its_bounds_a_target_is_put_back_before_any_metric_is_read() -> None:
    bounded = spec(QUEUE_TEN, minimum=3, maximum=6, behavior=FREE)
    above, below = once(bounded, 9, MetricAnswers(external_error="down")), once(bounded, 2, queued(99))
    assert (above.replicas, above.reason, above.rescale_reason) == (6, ABOVE_MAXIMUM, ABOVE_MAXIMUM)
    assert (below.replicas, below.reason, below.error) == (3, BELOW_MINIMUM, "")
    assert below.memory.recommendations == (Recommendation(2, NOON),)  # only what was found
    assert (below.memory.ups, above.memory.downs) == ((ScaleEvent(1, NOON),), (ScaleEvent(3, NOON),))
    assert "ScalingActive" not in below.status.conditions
    assert below.proposals is not None
    assert below.proposals[0].replicas == 10  # told all the same


def test_a_fresh_controller_does_not_scale_down_for_a_whole_window() -> None:
    plain = spec(QUEUE_TEN)
    found = once(plain, 8, queued(10))
    assert (found.replicas, reasons(found)["AbleToScale"]) == (8, "ScaleDownStabilized")
    assert after(found, plain, queued(10), 300).replicas == 8
    assert after(found, plain, queued(10), 300.5).replicas == 1


def test_a_scale_that_cannot_be_read_stops_everything() -> None:
    first = once(QUEUE, 4, queued(60))
    then = after(first, QUEUE, queued(10), 15, scaled=scale(6, error="NotFound"))
    assert (then.replicas, then.reason, then.scaled) == (6, "FailedGetScale", False)
    assert then.error == "the scale cannot be read: NotFound"
    assert then.proposals is None
    assert (then.status.current, then.status.desired, then.status.metrics) == (4, 6, first.status.metrics)
    assert then.status.conditions["AbleToScale"].status == "False"
    fresh = once(QUEUE, 4, queued(60), scaled=scale(4, error="NotFound"))
    assert fresh.memory.recommendations is None


@pytest.mark.parametrize(
    ("selector", "others", "reason"),
    [
        pytest.param("", (), "InvalidSelector", id="empty"),
        pytest.param("app in (", (), "InvalidSelector", id="torn"),
        pytest.param("app=web", ("app in (web,db)",), "AmbiguousSelector", id="two-hpas"),
    ],
)
def test_pods_that_cannot_be_told_stop_the_metrics(selector: str, others: tuple[str, ...], reason: str) -> None:
    found = once(QUEUE, 4, queued(90), scaled=scale(4, selector=selector), others=others)
    assert (found.replicas, found.reason, found.scaled) == (4, reason, False)
    assert found.status.metrics is None
    assert found.error


def test_another_hpa_is_no_rival_where_it_selects_none_of_our_pods() -> None:
    assert once(QUEUE, 4, queued(60), others=("app=db", "torn in (")).replicas == 6
    assert once(QUEUE, 4, queued(60), pods(0), others=("app=web",)).replicas == 6


ZERO = HpaController(scale_to_zero=True)
TO_ZERO = spec(QUEUE_TEN, minimum=0, behavior=FREE)


def test_a_target_at_zero_is_left_alone() -> None:
    for flags in (HpaController(), ZERO):
        found = once(TO_ZERO, 0, queued(90), flags=flags)
        assert (found.replicas, found.status.desired, found.reason) == (0, 0, "ScalingDisabled")
        assert (found.error, found.scaled) == ("", False)


def test_what_this_hpa_put_to_zero_it_wakes_again() -> None:
    asleep = once(TO_ZERO, 2, queued(0), flags=ZERO)
    assert (asleep.replicas, reasons(asleep)["ScaledToZero"]) == (0, "ScaledToZero")
    still = after(asleep, TO_ZERO, queued(0), 400, flags=ZERO)
    assert (still.replicas, still.scaled, still.reason) == (0, False, "DesiredWithinRange")
    awake = after(still, TO_ZERO, queued(35), 500, flags=ZERO)
    assert (awake.replicas, reasons(awake)["ScaledToZero"]) == (4, "NotScaledToZero")


def test_percents_of_nothing_wake_nothing() -> None:
    by_percent = spec(QUEUE_TEN, minimum=0, behavior=Behavior(rules(("Percent", 100, 15)), FREE.down))
    asleep = once(by_percent, 2, queued(0), flags=ZERO)
    awake = after(asleep, by_percent, queued(35), 500, flags=ZERO)
    assert (awake.replicas, awake.reason) == (0, "ScaleUpLimit")


def test_a_minimum_that_was_raised_meanwhile_wakes_it_too() -> None:
    asleep = Memory(status=HpaObjectStatus(conditions={"ScaledToZero": ScalingCondition("True", "ScaledToZero")}))
    found = once(spec(QUEUE_TEN, minimum=3, behavior=FREE), 0, queued(0), memory=asleep, flags=ZERO)
    assert (found.replicas, found.rescale_reason) == (3, BELOW_MINIMUM)


def test_utilisation_alone_never_wakes_a_target() -> None:
    asleep = Memory(status=HpaObjectStatus(conditions={"ScaledToZero": ScalingCondition("True", "ScaledToZero")}))
    assert once(spec(minimum=0, behavior=FREE), 0, used(), memory=asleep, flags=ZERO).reason == "ScalingDisabled"


FALLBACK = spec(external_metric("queue", 10_000, Fallback(7, 180.0)), behavior=FREE)
FALLING_BACK = HpaController(external_fallback=True)


def test_an_external_metric_that_fails_for_long_enough_asks_for_its_fall_back() -> None:
    def gone(seconds: float, before: HpaOutcome, **more: Any) -> HpaOutcome:
        return after(before, FALLBACK, MetricAnswers(), seconds, **{"flags": FALLING_BACK, **more})

    first = once(FALLBACK, 4, MetricAnswers(), flags=FALLING_BACK)
    assert (first.replicas, first.reason) == (4, "FailedGetExternalMetric")
    assert gone(179.9, first).replicas == 4
    there = gone(180, first)
    assert (there.replicas, there.error, reasons(there)["ScalingActive"]) == (7, "", "ValidMetricFound")
    assert gone(180, first, flags=HpaController()).replicas == 4  # behind its gate
    seen = after(first, FALLBACK, queued(40), 60, flags=FALLING_BACK)
    assert gone(200, seen).replicas == 4  # it failed anew, not since noon


def test_a_fall_back_is_one_proposal_among_others() -> None:
    two = spec(external_metric("gone", 10_000, Fallback(7, 0.0)), QUEUE_TEN, behavior=FREE)
    assert once(two, 4, queued(90), flags=FALLING_BACK).replicas == 9
    assert once(two, 4, queued(10), flags=FALLING_BACK).replicas == 7


held = Behavior(rules(("Pods", 3, 60), window_s=30), rules(("Percent", 50, 60), window_s=120))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([None, FREE, held]),
    st.lists(st.tuples(st.integers(0, 400), st.booleans()), min_size=1, max_size=12),
)
def test_over_any_series_bounds_hold_and_an_outage_moves_nothing(
    behavior: Behavior | None, series: list[tuple[int, bool]]
) -> None:
    given_spec = spec(QUEUE_TEN, minimum=2, maximum=12, behavior=behavior)
    memory, replicas = Memory(), 5
    for index, (value, answers) in enumerate(series):
        found = once(
            given_spec,
            replicas,
            queued(value) if answers else MetricAnswers(external_error="down"),
            memory=memory,
            now=NOON + 15 * index,
        )
        assert 2 <= found.replicas <= 12
        assert answers or found.replicas == replicas
        assert bool(found.error) is not answers
        assert found.scaled == (found.replicas != replicas)
        memory, replicas = found.memory, found.replicas
