"""Windows, policies and bounds: from what the metrics ask for to what is done."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.autoscaling.hpa.limits import settle, with_scale_event
from shared.autoscaling.hpa.model import (
    Behavior,
    HpaController,
    HpaObjectSpec,
    Memory,
    Recommendation,
    ScaleEvent,
    ScalingPolicy,
    ScalingRules,
)
from tests.hpa_builders import FREE, NOON, rules, spec

PLAIN = spec()
FLAGS = HpaController()


def done(
    given: HpaObjectSpec,
    current: int,
    wanted: int,
    memory: Memory = Memory(),  # noqa: B008
    now: float = NOON,
) -> tuple[int, str]:
    found = settle(given, memory, current=current, wanted=wanted, now=now, flags=FLAGS)
    return found.replicas, found.limited.reason


def remembering(*seen: tuple[int, float]) -> Memory:
    """(replicas, age) of each recommendation."""
    return Memory(recommendations=tuple(Recommendation(replicas, NOON - age) for replicas, age in seen))


def test_without_behavior_a_rise_is_at_most_a_doubling_or_four() -> None:
    assert done(PLAIN, 1, 9) == (4, "ScaleUpLimit")
    assert done(PLAIN, 5, 50) == (10, "ScaleUpLimit")
    assert done(spec(maximum=7), 5, 50) == (7, "TooManyReplicas")
    assert done(spec(minimum=3), 5, 1) == (3, "TooFewReplicas")
    assert done(PLAIN, 90, 1) == (1, "DesiredWithinRange")  # downwards there is no limit


def test_without_behavior_the_highest_of_the_window_counts_its_end_included() -> None:
    assert done(PLAIN, 8, 2, remembering((6, 300.0), (9, 300.1))) == (6, "DesiredWithinRange")
    found = settle(PLAIN, remembering((6, 0.0)), current=8, wanted=2, now=NOON, flags=HpaController(down_window_s=0))
    assert found.replicas == 6  # a window of 0 still knows this instant
    assert found.able.reason == "ScaleDownStabilized"


def test_with_behavior_windows_are_strict() -> None:
    held = spec(behavior=Behavior(rules(window_s=60), rules(("Percent", 100, 15), window_s=60)))
    assert done(held, 8, 2, remembering((6, 59.9))) == (6, "DesiredWithinRange")
    assert done(held, 8, 2, remembering((6, 60.0))) == (2, "DesiredWithinRange")
    assert done(held, 4, 9, remembering((6, 59.9))) == (6, "DesiredWithinRange")
    assert done(held, 4, 9, remembering((6, 60.0))) == (9, "DesiredWithinRange")
    assert done(held, 4, 9, remembering((3, 1.0))) == (4, "DesiredWithinRange")  # holds, and does not turn round


def test_a_missing_down_window_is_the_controllers() -> None:
    flagged = spec(behavior=Behavior(rules(), rules(("Percent", 100, 15), window_s=None)))
    assert done(flagged, 8, 2, remembering((6, 299.0))) == (6, "DesiredWithinRange")


def test_what_was_held_is_said_by_the_direction_that_was_wanted() -> None:
    held = spec(behavior=Behavior(rules(window_s=60), rules(window_s=60)))
    for wanted, reason in ((9, "ScaleUpStabilized"), (2, "ScaleDownStabilized")):
        found = settle(held, remembering((5, 1.0)), current=5, wanted=wanted, now=NOON, flags=FLAGS)
        assert (found.replicas, found.able.reason) == (5, reason)


def test_a_recommendation_takes_the_place_of_the_last_expired_one() -> None:
    seen = remembering((1, 400.0), (2, 350.0), (3, 10.0))
    kept = settle(PLAIN, seen, current=3, wanted=9, now=NOON, flags=FLAGS).recommendations
    assert [one.replicas for one in kept] == [1, 9, 3]
    young = settle(PLAIN, remembering((3, 10.0)), current=3, wanted=9, now=NOON, flags=FLAGS).recommendations
    assert [one.replicas for one in young] == [3, 9]


@pytest.mark.parametrize(
    ("select", "up", "down"),
    [("Max", 20, 0), ("Min", 13, 8), ("Disabled", 10, 10)],
)
def test_the_policy_that_allows_most_or_least_or_none(select: str, up: int, down: int) -> None:
    """From 10: 3 pods, or 100 % upwards; 2 pods, or all downwards."""
    both = Behavior(
        rules(("Pods", 3, 60), ("Percent", 100, 60), select=select),
        rules(("Pods", 2, 60), ("Percent", 100, 60), select=select),
    )
    assert done(spec(minimum=0, behavior=both), 10, 99)[0] == up
    assert done(spec(minimum=0, behavior=both), 10, 0)[0] == down


def test_percents_are_rounded_up_upwards_and_truncated_downwards() -> None:
    ten = spec(behavior=Behavior(rules(("Percent", 10, 60)), rules(("Percent", 10, 60))))
    assert done(ten, 3, 9) == (4, "ScaleUpLimit")  # 3.3
    assert done(ten, 3, 1) == (2, "ScaleDownLimit")  # 2.7


def test_a_period_begins_with_what_there_was_before_its_changes() -> None:
    two = spec(behavior=Behavior(rules(("Pods", 2, 60)), rules(("Pods", 2, 60))))
    memory = Memory(ups=(ScaleEvent(2, NOON - 30),))
    assert done(two, 6, 9, memory) == (6, "ScaleUpLimit")  # from 4: 6 have been reached
    assert done(two, 6, 9, memory, NOON + 30) == (8, "ScaleUpLimit")  # exactly 60 s old: over
    mixed = Memory(ups=(ScaleEvent(2, NOON - 30),), downs=(ScaleEvent(5, NOON - 10),))
    assert done(two, 6, 99, mixed) == (11, "ScaleUpLimit")  # from 9: what was taken may come back
    assert done(two, 6, 1, mixed) == (6, "ScaleDownLimit")  # from 9: 7 would be above, and a fall never rises


def test_scale_events_are_kept_with_behavior_alone_and_replaced_when_they_expire() -> None:
    assert with_scale_event(PLAIN, Memory(), before=2, after=4, now=NOON) == ((), ())
    minute = spec(behavior=Behavior(rules(("Pods", 2, 60), ("Pods", 1, 30)), rules(("Pods", 2, 15))))
    memory = Memory(ups=(ScaleEvent(1, NOON - 61), ScaleEvent(2, NOON - 60)), downs=(ScaleEvent(3, NOON - 1),))
    ups, downs = with_scale_event(minute, memory, before=2, after=6, now=NOON)
    assert (ups, downs) == ((ScaleEvent(4, NOON), ScaleEvent(2, NOON - 60)), memory.downs)
    ups, downs = with_scale_event(minute, memory, before=6, after=2, now=NOON)
    assert (ups, downs) == (memory.ups, (ScaleEvent(3, NOON - 1), ScaleEvent(4, NOON)))


policies = st.builds(
    ScalingPolicy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 300), st.sampled_from([15, 60, 1800])
)
directions = st.builds(
    ScalingRules,
    st.lists(policies, min_size=1, max_size=3).map(tuple),
    st.sampled_from(["Max", "Min", "Disabled"]),
    st.sampled_from([0, 60, 300]),
)
behaviors = st.none() | st.builds(Behavior, directions, directions)
ages = st.integers(0, 400).map(float)
memories = st.builds(
    lambda seen, ups, downs: Memory(
        recommendations=tuple(Recommendation(n, NOON - age) for n, age in seen),
        ups=tuple(ScaleEvent(n, NOON - age) for n, age in ups),
        downs=tuple(ScaleEvent(n, NOON - age) for n, age in downs),
    ),
    *(st.lists(st.tuples(st.integers(1, 60), ages), max_size=5) for _ in range(3)),
)


@settings(max_examples=150, deadline=None)
@given(behaviors, memories, st.integers(1, 20), st.integers(0, 40), st.integers(0, 60), st.integers(0, 200))
def test_bounds_hold_and_no_limit_turns_a_move_round(
    behavior: Behavior | None, memory: Memory, minimum: int, more: int, place: int, wanted: int
) -> None:
    maximum = minimum + more
    current = minimum + place % (more + 1)
    limited = HpaObjectSpec(minimum=minimum, maximum=maximum, metrics=(), behavior=behavior)
    found = settle(limited, memory, current=current, wanted=wanted, now=NOON, flags=FLAGS)
    assert minimum <= found.replicas <= maximum
    if behavior is not None:
        assert found.replicas >= current or wanted < current
        assert found.replicas <= current or wanted > current
    else:
        assert found.replicas >= current or wanted < current
    assert Recommendation(wanted, NOON) in found.recommendations


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(0, 60), st.integers(0, 60), st.floats(300.001, 10_000))
def test_a_recommendation_older_than_every_window_changes_nothing(
    current: int, wanted: int, old: int, age: float
) -> None:
    held = spec(behavior=Behavior(rules(window_s=300), rules(("Percent", 100, 15), window_s=300)))
    for given_spec in (PLAIN, held, spec(behavior=FREE)):
        assert done(given_spec, current, wanted, remembering((old, age))) == done(given_spec, current, wanted)
