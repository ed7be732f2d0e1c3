"""Which pods count, and what follows from their metrics. Each pod requests 1000m, the target is 50 %."""

from __future__ import annotations

import math

import pytest

from shared.autoscaling.hpa.convert_spec import utilization_metric
from shared.autoscaling.hpa.model import (
    Aim,
    ContainerFacts,
    HpaController,
    HpaMetric,
    MetricAnswers,
    MetricSource,
    PodFacts,
    PodUsage,
)
from shared.autoscaling.hpa.pods import Tolerance, quotient, requests_of, whole_replicas
from tests.hpa_builders import FREE, LABELS, NOON, pod, pods, spec, usage, used, wanted

CPU = spec(behavior=FREE)
MEAN = spec(HpaMetric(source=MetricSource.RESOURCE, name="cpu", aim=Aim.AVERAGE_VALUE, amount=500), behavior=FREE)


def test_replicas_follow_the_ratio_times_the_pods_that_are_ready() -> None:
    assert wanted(CPU, 4, used(800, 800, 800, 800)) == 7  # 80/50 of 4 = 6.4
    assert wanted(CPU, 4, used(200, 200, 200, 200)) == 2
    assert wanted(CPU, 9, used(800, 800, 800, 800), pods(4)) == 7  # not of the 9 that are wanted


def test_utilisation_is_truncated_before_it_meets_the_target() -> None:
    assert wanted(CPU, 4, used(559, 559, 559, 559)) == 4  # 55 % and not 55.9 %: within tolerance
    assert wanted(MEAN, 4, used(559, 559, 559, 559)) == 5  # a mean is exact to the milli-unit


def test_tolerance_includes_both_ends() -> None:
    assert [wanted(CPU, 4, used(*[value] * 4)) for value in (450, 550, 440, 560)] == [4, 4, 4, 5]
    assert wanted(CPU, 10, used(*[440] * 10), pods(10)) == 9


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param({"deleting": True}, id="being-deleted"),
        pytest.param({"phase": "Failed"}, id="failed"),
    ],
)
def test_pods_that_are_going_are_ignored_with_their_metrics(lost: dict[str, object]) -> None:
    seen = [*pods(2), pod("p2", **lost)]
    assert wanted(CPU, 3, used(500, 500, 0), seen) == 3
    assert wanted(CPU, 3, used(800, 800, 0), seen) == 4  # 1.6 of two


def test_a_succeeded_pod_without_a_metric_is_missing() -> None:
    seen = [*pods(2), pod("p2", phase="Succeeded")]
    assert wanted(CPU, 3, used(700, 700, None), seen) == 3  # as idle: 1400 of 3000 = 46 %, which would turn it round


def test_missing_pods_count_as_idle_when_the_rest_asks_for_more() -> None:
    assert wanted(CPU, 3, used(900, 900, None)) == 4  # 1800 of 3000 = 60 %, 1.2 of 3 pods
    assert wanted(CPU, 3, used(700, 700, None)) == 3  # 46 %: the move would turn round


def test_missing_pods_count_as_busy_when_the_rest_asks_for_less() -> None:
    assert wanted(CPU, 3, used(100, 100, None)) == 3  # 1200 of 3000 = 40 %, 0.8 of 3 = 2.4, up to 3
    assert wanted(MEAN, 3, used(100, 100, None)) == 2  # at the target: 700 / 3 = 233m
    assert wanted(CPU, 6, used(100, 100, 100, 100, 100, None)) == 3  # 1500 of 6000 = 25 %
    over = spec(utilization_metric("cpu", 150), behavior=FREE)
    assert wanted(over, 2, used(300, None)) == 2  # a target above 100 %: at the target, 1800 of 2000 = 90 %
    assert wanted(over, 10, used(*[300] * 9, None)) == 3  # 4200 of 10000 = 42 %, 0.28 of 10


def test_exactly_at_the_target_missing_pods_change_nothing() -> None:
    assert wanted(CPU, 3, used(500, 500, None)) == 3
    assert wanted(MEAN, 3, used(500, 500, None)) == 3


def test_unready_pods_count_as_idle_upwards_and_not_at_all_downwards() -> None:
    seen = [*pods(2), pod("p2", phase="Pending")]
    assert wanted(CPU, 3, used(900, 900, None), seen) == 4
    assert wanted(CPU, 3, used(200, 200, None), seen) == 1  # 0.4 of the two that are ready


@pytest.mark.parametrize(
    ("facts", "unready"),
    [
        pytest.param({"ready": ""}, True, id="no-ready-condition"),
        pytest.param({"start_s": None}, True, id="not-started"),
        pytest.param({"start_s": NOON - 299, "ready": "False"}, True, id="young-and-not-ready"),
        pytest.param(
            {"start_s": NOON - 300, "ready": "False", "ready_since_s": NOON - 200}, False, id="no-longer-young"
        ),
        pytest.param({"start_s": NOON - 100, "ready_since_s": NOON - 39}, True, id="sample-too-old"),
        pytest.param({"start_s": NOON - 100, "ready_since_s": NOON - 40}, False, id="sample-just-whole"),
        pytest.param({"start_s": NOON - 3600, "ready": "False", "ready_since_s": NOON - 3571}, True, id="never-ready"),
        pytest.param({"start_s": NOON - 3600, "ready": "False", "ready_since_s": NOON - 3570}, False, id="was-ready"),
        pytest.param({"start_s": NOON - 100, "ready": "Unknown", "ready_since_s": NOON - 90}, False, id="unknown"),
        pytest.param({"phase": "Pending"}, True, id="pending"),
    ],
)
def test_for_cpu_a_pod_that_starts_is_unready(facts: dict[str, object], unready: bool) -> None:
    """p1 is idle: as unready it is left out downwards, else it halves the mean."""
    seen = [pod("p0"), pod("p1", **facts)]
    assert wanted(CPU, 2, used(500, 0), seen) == (2 if unready else 1)


def test_for_memory_only_pending_pods_are_unready() -> None:
    memory = spec(utilization_metric("memory", 50), behavior=FREE)
    seen = [pod("p0"), pod("p1", ready="False", start_s=NOON)]
    answers = MetricAnswers(
        resource=tuple(PodUsage(f"p{i}", LABELS, NOON, 30.0, (("c", {"memory": 800 * (i == 0)}),)) for i in range(2))
    )
    assert wanted(memory, 2, answers, seen) == 2  # 400 of 1000 each: 0.8 of two that are ready


def test_periods_of_the_controller_are_settings() -> None:
    young = [pod("p0"), pod("p1", start_s=NOON - 100, ready="False", ready_since_s=NOON - 90)]
    assert wanted(CPU, 2, used(500, 0), young) == 2
    assert wanted(CPU, 2, used(500, 0), young, flags=HpaController(cpu_initialization_s=50, initial_readiness_s=5)) == 1


def test_metrics_of_pods_that_are_gone_count_in_a_mean_but_not_in_utilisation() -> None:
    assert wanted(MEAN, 2, used(500, 500, 2000), pods(2)) == 4  # 1000m on average: 2 of the two that are ready
    assert wanted(CPU, 2, used(500, 500, 2000), pods(2)) == 2
    # in the second ratio's entries they count all the same
    assert wanted(CPU, 3, used(900, 900, None, 900), pods(3)) == 5  # 60 %, 1.2 of 4 entries


def test_one_container_without_the_resource_makes_its_pod_missing() -> None:
    half = PodUsage("p1", LABELS, NOON, 30.0, (("c", {"cpu": 100}), ("side", {"memory": 5})))
    answers = MetricAnswers(resource=(usage("p0", 900), half, usage("p2", 900)))
    assert wanted(CPU, 3, answers) == 4


def test_no_metrics_of_any_pod_that_counts_fails_the_metric() -> None:
    assert wanted(CPU, 2, used()) == "FailedGetResourceMetric"
    assert wanted(CPU, 2, used(500), [pod("p0", deleting=True), pod("p1")]) == "FailedGetResourceMetric"
    assert wanted(CPU, 2, used(500, 500), []) == "FailedGetResourceMetric"


def facts(*containers: tuple[str, dict[str, int]], pod_requests: dict[str, int] | None = None) -> list[PodFacts]:
    made = tuple(ContainerFacts(name, requests) for name, requests in containers)
    return [pod("p0", containers=made, pod_requests=pod_requests)]


def test_requests_are_of_all_containers_or_the_metric_fails() -> None:
    assert requests_of(facts(("a", {"cpu": 100}), ("b", {"cpu": 20})), "cpu", "") == {"p0": 120}
    assert requests_of(facts(("a", {"cpu": 100}), ("b", {})), "cpu", "a") == {"p0": 100}
    with pytest.raises(Exception, match="container b of pod p0 requests no cpu"):
        requests_of(facts(("a", {"cpu": 100}), ("b", {})), "cpu", "")
    with pytest.raises(Exception, match="pod p0 has no container x"):
        requests_of(facts(("a", {"cpu": 100})), "cpu", "x")


def test_a_pods_own_requests_count_unless_a_container_is_named() -> None:
    own = facts(("a", {"cpu": 100}), pod_requests={"cpu": 900})
    assert requests_of(own, "cpu", "") == {"p0": 900}
    assert requests_of(own, "cpu", "a") == {"p0": 100}
    with pytest.raises(Exception, match="pod p0 requests no memory"):
        requests_of(own, "memory", "")


def test_requests_of_nothing_fail_the_metric() -> None:
    assert wanted(CPU, 1, used(5), facts(("c", {"cpu": 0}))) == "FailedGetResourceMetric"


def test_numbers_are_rounded_and_bounded_as_go_does_it() -> None:
    assert [whole_replicas(value) for value in (1.0, 1.0001, -0.5, math.nan)] == [1, 2, 0, 0]
    assert [whole_replicas(value) for value in (1e12, math.inf, -math.inf)] == [2**31 - 1, 2**31 - 1, -(2**31)]
    assert [quotient(*pair) for pair in ((7, 2), (-7, 2), (7, -2), (-7, -2))] == [3, -3, -3, 3]
    assert not Tolerance(0.1, 0.1).covers(math.nan)
