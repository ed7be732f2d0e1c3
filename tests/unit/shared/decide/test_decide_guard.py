"""The guard of whatever decides: what it answers, how long a failing policy rests, and what is told of it."""

from __future__ import annotations

import pytest

from shared.decide.guard import Failure, Faulty, Guard, GuardLimits


class Policy:
    """Answers what it is asked; a number above 0 is seconds that it takes first."""

    def __init__(self) -> None:
        self.now, self.asked = 0.0, 0

    def decide(self, takes_s: float, wrong: Exception | None = None) -> str:
        self.asked += 1
        self.now += takes_s
        if wrong is not None:
            raise wrong
        return "answer"


class Unprintable(Exception):
    """Even its text is a bug."""

    def __str__(self) -> str:
        raise ZeroDivisionError


def guarded(**limits: object) -> tuple[Policy, Guard[..., str]]:
    policy = Policy()
    chosen = GuardLimits(**{"deadline_s": 1.0, "patience": 3, "rest": 4, **limits})  # type: ignore[arg-type]
    return policy, Guard(policy.decide, chosen, clock=lambda: policy.now)


@pytest.mark.parametrize(
    ("wrong", "failure", "problem"),
    [
        (ZeroDivisionError("no pods"), Failure.EXCEPTION, "ZeroDivisionError: no pods"),
        (Faulty(Failure.NAN), Failure.NAN, "nan"),
        (Faulty(Failure.SHAPE, "no mapping"), Failure.SHAPE, "no mapping"),
        (Unprintable(), Failure.EXCEPTION, "Unprintable"),
        (ValueError("x" * 9999), Failure.EXCEPTION, "ValueError: " + "x" * 244),
    ],
)
def test_an_answer_that_cannot_be_used_is_none_and_is_counted_and_told(wrong, failure, problem):
    _, guard = guarded()
    assert guard.ask(0.0, wrong) is None
    assert (guard.failures, guard.failure, guard.problem) == ({failure: 1}, failure, problem)
    assert guard.ask(0.0) == "answer"
    assert (guard.failure, guard.problem) == (None, "")


def test_it_rests_after_its_patience_and_after_each_failed_try():
    policy, guard = guarded(rest=4)
    asked = []
    for _ in range(13):
        guard.ask(0.0, ValueError())
        asked.append(policy.asked)
    assert asked == [1, 2, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 5]
    for _ in range(4):
        assert guard.ask(0.0) is None
    assert guard.ask(0.0) == "answer"
    assert guard.ask(0.0, ValueError()) is None
    assert guard.resting == 0, "one good answer ends the row"


@pytest.mark.parametrize("rest", [0, 1, 100])
def test_it_rests_for_as_many_decisions_as_its_limits_say(rest: int):
    policy, guard = guarded(patience=1, rest=rest)
    for _ in range(rest + 2):
        guard.ask(0.0, ValueError())
    assert policy.asked == 2


@pytest.mark.parametrize(("takes_s", "rests"), [(0.99, False), (2.9, False), (3.0, True), (300.0, True)])
def test_one_late_answer_counts_for_as_many_as_it_took_deadlines(takes_s: float, rests: bool):
    _, guard = guarded()
    assert guard.ask(takes_s) == "answer"
    assert bool(guard.resting) is rests


def test_a_failure_counts_once_however_long_it_took():
    _, guard = guarded()
    for resting in (0, 0, 4):
        assert guard.ask(3.5, ValueError()) is None
        assert guard.resting == resting
    assert guard.failures == {Failure.EXCEPTION: 3}
    policy, guard = guarded()
    guard.attempt(lambda: policy.decide(3.5, ValueError("no pods")))
    assert (guard.failures, guard.problem, guard.resting) == ({Failure.EXCEPTION: 1}, "ValueError: no pods", 0)


def test_a_late_answer_is_not_taken_where_the_domain_does_not_let_it_stand():
    _, guard = guarded(late_stands=False)
    assert guard.ask(1.5) is None
    assert (guard.failure, guard.problem) == (Failure.TIMEOUT, "took 1.5 s; 1 s are allowed")
    _, guard = guarded(late_stands=True)
    assert guard.ask(1.5) == "answer"


def test_of_an_attempt_no_answer_is_wanted_and_what_goes_wrong_counts():
    policy, guard = guarded(patience=2)
    guard.attempt(lambda: policy.decide(0.0, ValueError()))
    assert guard.failures == {Failure.EXCEPTION: 1}
    guard.attempt(lambda: policy.decide(1.0))
    assert guard.resting
    asked = policy.asked
    guard.attempt(lambda: policy.decide(0.0))
    assert policy.asked == asked, "who rests is not told either"


def test_without_the_guard_the_failure_reaches_the_caller():
    with pytest.raises(ValueError, match="bug"):
        Policy().decide(0.0, ValueError("bug"))
