"""Metrics of objects and of the world outside, one's own metrics, and which series count."""

from __future__ import annotations

from typing import Any

import pytest

from shared.autoscaling.hpa.model import (
    Aim,
    CustomSeries,
    ExternalSeries,
    HpaController,
    HpaMetric,
    MetricAnswers,
    MetricSource,
    ObjectRef,
)
from shared.autoscaling.hpa.proposals import milli_text
from shared.model.terms.labels import selector_of_labels
from tests.hpa_builders import FREE, QUEUE_TEN, once, pod, pods, queued, rules, scale, spec, wanted

FRONT = ObjectRef("networking.k8s.io", "Ingress", "front")


def on(source: MetricSource, aim: Aim, amount: int, **fields: Any) -> Any:
    return spec(HpaMetric(source=source, name="rps", aim=aim, amount=amount, **fields), behavior=FREE)


def series(value: int, described: ObjectRef = FRONT, **fields: Any) -> CustomSeries:
    given: dict[str, Any] = {"namespace": "default", "name": "rps", "labels": {}, "value": value, **fields}
    return CustomSeries(described, **given)


def told(*found: CustomSeries) -> MetricAnswers:
    return MetricAnswers(custom=found)


OBJECT = on(MetricSource.OBJECT, Aim.VALUE, 20_000, described=FRONT)
PER_POD = on(MetricSource.OBJECT, Aim.AVERAGE_VALUE, 20_000, described=FRONT)
OF_PODS = on(MetricSource.PODS, Aim.AVERAGE_VALUE, 10_000)
OUTSIDE = on(MetricSource.EXTERNAL, Aim.VALUE, 30_000)


def test_a_total_is_taken_in_proportion_to_the_pods_that_run_and_are_ready() -> None:
    assert wanted(OBJECT, 4, told(series(32_000))) == 7  # 1.6 of 4
    seen = [*pods(2), pod("p2", ready="False"), pod("p3", phase="Pending")]
    assert wanted(OBJECT, 4, told(series(32_000)), seen) == 4  # 1.6 of 2
    assert wanted(OBJECT, 4, told(series(22_000))) == 4  # 1.1: within
    assert wanted(OBJECT, 4, told(series(32_000)), []) == "FailedGetObjectMetric"
    assert wanted(OBJECT, 4, told(series(20_000)), []) == 4  # within: nobody asks for pods


def test_from_nothing_a_total_asks_for_its_ratio() -> None:
    assert [wanted(OBJECT, 0, told(series(value)), []) for value in (0, 1, 20_000, 70_000)] == [0, 1, 1, 4]


def test_a_target_for_each_pod_goes_by_the_scales_status() -> None:
    def asked(value: int, status: int) -> Any:
        return wanted(PER_POD, 8, told(series(value)), scaled=scale(8, status))

    assert asked(200_000, 10) == 10  # exactly right for the ten there are, though eight are wanted
    assert asked(90_000, 9) == 5
    assert asked(90_000, 0) == 5  # nothing there: no tolerance
    assert asked(0, 0) == 0


def test_exactly_one_series_describes_an_object() -> None:
    assert wanted(OBJECT, 4, told()) == "FailedGetObjectMetric"
    assert wanted(OBJECT, 4, told(series(1), series(2))) == "FailedGetObjectMetric"
    assert wanted(OBJECT, 4, told(series(32_000), series(9, FRONT._replace(name="other")))) == 7
    assert wanted(OBJECT, 4, told(series(32_000, namespace="elsewhere"))) == "FailedGetObjectMetric"


def test_a_metric_of_a_namespace_is_of_the_hpas_own_whatever_it_names() -> None:
    by_namespace = on(MetricSource.OBJECT, Aim.VALUE, 20_000, described=ObjectRef("", "Namespace", "ignored"))
    assert wanted(by_namespace, 4, told(series(32_000, ObjectRef("", "Namespace", "default"), namespace=""))) == 7


def test_ones_own_metric_counts_pods_and_not_cpu_readiness() -> None:
    def of(name: str, value: int, **fields: Any) -> CustomSeries:
        return series(value, ObjectRef("", "Pod", name), **fields)

    seen = [pod("p0"), pod("p1", ready="False")]
    assert wanted(OF_PODS, 2, told(of("p0", 10_000), of("p1", 30_000)), seen) == 4
    assert wanted(OF_PODS, 2, told(of("p0", 10_000), of("not-ours", 30_000)), seen[:1]) == 2  # the adapter's business
    assert wanted(OF_PODS, 2, told(series(10_000))) == "FailedGetPodsMetric"


def test_external_series_are_added_up() -> None:
    both = MetricAnswers(external=(ExternalSeries("rps", {"q": "a"}, 40_000), ExternalSeries("rps", {"q": "b"}, 8_000)))
    assert wanted(OUTSIDE, 4, both) == 7  # 48 of 30, of 4
    chosen = on(MetricSource.EXTERNAL, Aim.VALUE, 30_000, selector=selector_of_labels({"q": "a"}))
    assert wanted(chosen, 4, both) == 6
    assert wanted(chosen, 4, MetricAnswers(external=both.external[1:])) == "FailedGetExternalMetric"


def test_a_sum_that_overflows_asks_for_as_many_as_can_be() -> None:
    huge = ExternalSeries("rps", {}, 9 * 10**18)
    assert wanted(OUTSIDE, 4, MetricAnswers(external=(huge, huge))) == 2**31 - 1
    per_pod = on(MetricSource.EXTERNAL, Aim.AVERAGE_VALUE, 1_000)
    assert wanted(per_pod, 4, MetricAnswers(external=(huge, huge))) == 2**31 - 1
    assert wanted(per_pod, 4, MetricAnswers(external=(ExternalSeries("rps", {}, -1),))) == 2**31 - 1  # as the real one


@pytest.mark.parametrize(
    ("given", "answers", "reason"),
    [
        pytest.param(spec(), MetricAnswers(resource_error="down"), "FailedGetResourceMetric", id="resource"),
        pytest.param(OF_PODS, MetricAnswers(custom_error="down"), "FailedGetPodsMetric", id="pods"),
        pytest.param(
            OBJECT, MetricAnswers(custom=(series(1),), custom_error="down"), "FailedGetObjectMetric", id="object"
        ),
        pytest.param(OUTSIDE, MetricAnswers(external_error="down"), "FailedGetExternalMetric", id="external"),
    ],
)
def test_an_api_that_does_not_answer_fails_its_metrics(given: Any, answers: MetricAnswers, reason: str) -> None:
    found = once(given, 2, answers)
    assert (found.replicas, found.reason, found.scaled) == (2, reason, False)
    assert "down" in found.error or reason == "FailedGetResourceMetric"


def test_own_tolerances_replace_the_controllers_each_on_its_side() -> None:
    own = FREE.__class__(rules(tolerance=0.5), FREE.down)
    assert wanted(spec(QUEUE_TEN, behavior=own), 4, queued(60)) == 4
    assert wanted(spec(QUEUE_TEN, behavior=own), 4, queued(61)) == 7
    assert wanted(spec(QUEUE_TEN, behavior=own), 4, queued(35)) == 4  # 3.5: downwards the controller's holds
    assert wanted(spec(QUEUE_TEN, behavior=own), 4, queued(60), flags=HpaController(configurable_tolerance=False)) == 6


def test_amounts_are_told_as_quantities() -> None:
    assert [milli_text(value) for value in (0, 1, 1500, 14_000)] == ["0", "1m", "1500m", "14"]
