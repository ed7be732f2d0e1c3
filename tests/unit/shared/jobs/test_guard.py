"""A policy that fails or is late: what was decided stands, then ``elastic`` decides, then it gets another try."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.decide.guard import GuardLimits
from shared.jobs.guard import JobsGuard
from shared.jobs.observation import JobAllocation, JobObservation, JobsObservation, NodeObservation

SEEN = JobsObservation(
    now=0.0, nodes=(NodeObservation(name="n0", gpus=4),),
    jobs=(JobObservation(name="a", submitted=0.0, minimum=1, maximum=4, requested=2, batch=8),),
)  # fmt: skip


class Policy:
    """Answers what it is told; a number is seconds that it takes first."""

    name = "mine"

    def __init__(self, answer: Any, takes_s: float = 0.0) -> None:
        self.answer, self.takes_s, self.now, self.asked = answer, takes_s, 0.0, 0

    def reset(self, seed: int) -> None: ...

    def decide(self, seen: JobsObservation) -> Any:
        self.asked += 1
        self.now += self.takes_s
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def guard(policy: Policy, clock: Callable[[], float] | None = None) -> JobsGuard:
    limits = GuardLimits(deadline_s=1.0, patience=3, rest=4)
    return JobsGuard(policy, clock=clock or (lambda: policy.now), limits=limits)


def ask(guarded: JobsGuard) -> tuple[dict[str, int], str, str]:
    found = guarded.decide(SEEN, ours={"a"}, may_stop=())
    return {name: wish.workers for name, wish in found.allowed.changes.items()}, found.by, found.problem


GOOD = {"a": JobAllocation(workers=3)}


@pytest.mark.parametrize("answer", [ZeroDivisionError("no jobs"), None, 7, {"a": 3}, [("a", 3)]])
def test_what_is_no_decision_changes_nothing_and_is_told(answer: Any):
    changes, by, problem = ask(guard(Policy(answer)))
    assert (changes, by) == ({}, "")
    assert problem.startswith("mine: ")


def test_after_its_patience_elastic_decides_and_then_it_is_asked_again():
    policy = Policy(ZeroDivisionError("no jobs"))
    guarded = guard(policy)
    for _ in range(3):
        assert ask(guarded)[0] == {}
    for _ in range(4):
        changes, by, problem = ask(guarded)
        assert (changes, by) == ({"a": 4}, "elastic")
        assert "no jobs; elastic decides" in problem
    policy.answer = GOOD
    assert ask(guarded) == ({"a": 3}, "mine", "")
    assert policy.asked == 4


def test_a_late_answer_stands_and_counts_for_as_many_deadlines_as_it_took():
    policy = Policy(GOOD, takes_s=3.5)
    guarded = guard(policy)
    changes, by, problem = ask(guarded)
    assert (changes, by, problem) == ({"a": 3}, "mine", "mine: took 3.5 s; 1 s are allowed")
    assert guarded.resting


def test_without_a_clock_nothing_is_late():
    policy = Policy(GOOD, takes_s=100.0)
    guarded = guard(policy, clock=lambda: 0.0)
    for _ in range(9):
        assert ask(guarded) == ({"a": 3}, "mine", "")


def test_what_others_own_is_not_changed():
    assert (
        guard(Policy({**GOOD, "group:x": JobAllocation(workers=1)}))
        .decide(SEEN, ours=set(), may_stop=())
        .allowed.changes
        == {}
    )
