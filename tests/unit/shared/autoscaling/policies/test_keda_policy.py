"""``keda``: triggers, polling, fall-back, and zero."""

from __future__ import annotations

import pytest

from shared.autoscaling.observation import Bounds
from shared.autoscaling.registry import make_policy
from shared.errors import ConfigError
from tests.autoscaling_builders import asked, moment, web

FREE_DOWN = {"scaleDown": {"stabilizationWindowSeconds": 0}}
NONE = Bounds(0, 50)


def keda(**settings: object):
    return make_policy("keda", {"behavior": FREE_DOWN, **settings})


def test_replicas_follow_what_waits_for_each_replica() -> None:
    assert asked(keda(), 0.0, web(4, queue=75.0)) == 8
    assert asked(keda(), 0.0, web(4, queue=15.0)) == 2
    assert asked(keda(), 0.0, web(4, queue=43.0)) == 4  # within tolerance
    assert asked(keda(queue=None, arrivals=100.0), 0.0, web(4, arrivals=650.0)) == 7


def test_of_several_triggers_the_largest_proposal_counts() -> None:
    both = {"queue": 10.0, "arrivals": 100.0, "cpu": 50}
    assert asked(keda(**both), 0.0, web(4, queue=10.0, arrivals=650.0, cpu=0.5)) == 7
    assert asked(keda(**both), 0.0, web(4, queue=10.0, arrivals=100.0, cpu=0.9)) == 8


def test_targets_by_service_and_a_service_without_one_is_not_named() -> None:
    policy = keda(queue=None, arrivals={"a": 100.0, "b": 50.0})
    seen = {name: web(2, arrivals=300.0) for name in "abc"}
    assert policy.decide(moment(0.0, **seen)) == {"a": 3, "b": 6}


def test_who_names_one_trigger_need_not_take_another_away() -> None:
    """An API server keeps no ``queue: null``."""
    assert keda().needs("web") == {"queue"}
    assert keda(arrivals=20.0).needs("web") == {"arrivals"}
    assert keda(cpu=50).needs("web") == frozenset()
    assert keda(queue=5.0, arrivals=20.0).needs("web") == {"queue", "arrivals"}


def test_triggers_are_polled_and_the_last_reading_holds_between() -> None:
    policy = keda()
    times = ((0.0, 40.0), (15.0, 80.0), (30.0, 80.0))
    assert [asked(policy, now, web(4, queue=queue)) for now, queue in times] == [4, 4, 8]


def test_a_trigger_that_fails_holds_until_more_failures_than_the_threshold() -> None:
    policy = keda(fallback={"replicas": 6, "failureThreshold": 2})
    assert asked(policy, 0.0, web(4, queue=40.0)) == 4
    assert [asked(policy, now, web(4, queue=None)) for now in (30.0, 60.0)] == [4, 4]
    assert asked(policy, 90.0, web(4, queue=None)) == 6
    assert asked(policy, 120.0, web(6, queue=10.0)) == 1  # it is back
    assert asked(keda(), 600.0, web(4, queue=None)) == 4  # without a fall-back it holds for good


@pytest.mark.parametrize(
    ("behavior", "few", "many"),
    [
        ("static", 6, 6),
        ("currentReplicas", 3, 12),
        ("currentReplicasIfHigher", 6, 12),
        ("currentReplicasIfLower", 3, 6),
    ],
)
def test_what_a_fall_back_asks_for(behavior: str, few: int, many: int) -> None:
    for replicas, wanted in ((3, few), (12, many)):
        policy = keda(fallback={"replicas": 6, "failureThreshold": 0, "behavior": behavior})
        assert asked(policy, 0.0, web(replicas, queue=None)) == wanted


def test_a_fall_back_of_one_trigger_takes_nothing_away_from_another() -> None:
    policy = keda(queue=10.0, cpu=50, fallback={"replicas": 2, "failureThreshold": 0})
    assert asked(policy, 0.0, web(6, queue=None, cpu=0.9)) == 11


def test_to_zero_only_after_the_cool_down_and_back_when_a_trigger_is_active() -> None:
    policy = keda(cooldown_s=300)
    assert asked(policy, 0.0, web(1, queue=5.0, bounds=NONE)) == 1
    assert [asked(policy, now, web(1, queue=0.0, bounds=NONE)) for now in (30.0, 270.0, 299.0)] == [1, 1, 1]
    assert asked(policy, 300.0, web(1, queue=0.0, bounds=NONE)) == 0
    assert asked(policy, 330.0, web(0, queue=0.0, bounds=NONE)) == 0
    assert asked(policy, 340.0, web(0, queue=90.0, bounds=NONE)) == 0  # not polled yet
    assert asked(policy, 360.0, web(0, queue=90.0, bounds=NONE)) == 1
    assert asked(policy, 370.0, web(1, queue=90.0, bounds=NONE)) == 1
    assert asked(policy, 375.0, web(1, queue=90.0, bounds=NONE)) == 5  # from here the HPA's: four more at once


def test_a_minimum_keeps_a_service_from_zero() -> None:
    policy = keda(cooldown_s=0)
    assert [asked(policy, now, web(2, queue=0.0)) for now in (0.0, 900.0)] == [1, 1]
    two = Bounds(2, 50)
    assert asked(keda(), 0.0, web(0, queue=1.0, bounds=two)) == 2


def test_a_trigger_that_cannot_be_read_never_sends_a_service_to_zero() -> None:
    policy = keda(cooldown_s=60)
    assert [asked(policy, 30.0 * n, web(3, queue=None, bounds=NONE)) for n in range(40)] == [3] * 40
    only_cpu = keda(queue=None, cpu=50, cooldown_s=0)
    assert [asked(only_cpu, now, web(3, cpu=0.0, bounds=NONE)) for now in (0.0, 900.0)] == [1, 1]


def test_at_zero_a_trigger_that_cannot_be_read_asks_for_the_fall_back() -> None:
    policy = keda(fallback={"replicas": 4, "failureThreshold": 1})
    assert [asked(policy, now, web(0, queue=None, bounds=NONE)) for now in (0.0, 30.0)] == [0, 4]


def test_activation_is_where_a_service_wakes() -> None:
    policy = keda(activation=5.0)
    assert [asked(policy, now, web(0, queue=q, bounds=NONE)) for now, q in ((0.0, 5.0), (30.0, 6.0))] == [0, 1]


def test_without_any_trigger_there_is_no_policy() -> None:
    with pytest.raises(ConfigError, match="policy keda: there is no trigger; give queue, arrivals or cpu"):
        keda(queue=None)
