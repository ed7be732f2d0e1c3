"""When the learner trains, gates and publishes. Pure."""

from __future__ import annotations

import pytest

from lab.serve.core import (
    Gate,
    Gated,
    HistoryRead,
    LearnerCore,
    Phase,
    PointerSeen,
    Publish,
    Published,
    Taken,
    Train,
    Trained,
)
from shared.wire.records import PolicyPointer, PolicyRef

ACTIVE = PolicyRef("marl-dqn", 3, "a" * 64)


def core(pointer: PolicyPointer | None = None) -> LearnerCore:
    machine = LearnerCore("marl-dqn", min_transitions=100, gate_margin=0.02)
    machine.handle(PointerSeen(pointer or PolicyPointer(active=ACTIVE)))
    return machine


def test_enough_transitions_are_trained_on_gated_and_published_as_the_next_version():
    machine = core()
    assert machine.handle(Taken(99)) == []
    assert machine.handle(Taken(1)) == [Train(ACTIVE, 4)]
    assert machine.handle(Trained()) == [Gate(ACTIVE)]
    assert machine.handle(Gated(0.01)) == [Publish(4, 0.01)]
    assert machine.handle(Published()) == []
    assert machine.phase is Phase.COLLECTING
    assert machine.outcomes == {"published": 1}


def test_after_publishing_nothing_is_begun_before_the_pointer_is_seen():
    machine = core()
    for event in (Taken(100), Trained(), Gated(0.0), Taken(500)):
        machine.handle(event)
    assert machine.handle(Published()) == []
    candidate = PolicyRef("marl-dqn", 4, "b" * 64)
    assert machine.handle(PointerSeen(PolicyPointer(active=ACTIVE, candidate=candidate, stage="shadow"))) == []
    assert machine.handle(PointerSeen(PolicyPointer(active=candidate))) == [Train(candidate, 5)]


def test_one_thing_at_a_time_and_what_comes_meanwhile_counts_for_the_next():
    machine = core()
    machine.handle(Taken(100))
    assert machine.handle(Taken(500)) == []
    assert machine.handle(Trained("diverged")) == []
    assert machine.handle(Taken(1)) == [Train(ACTIVE, 4)]


@pytest.mark.parametrize(
    ("gained", "outcome"),
    [
        (Gated(-0.03), "refused by the gate"),
        (Gated(float("nan")), "refused by the gate"),
        (Gated(0.5, "unusable verdicts"), "gate failed"),
    ],
)
def test_what_the_gate_refuses_is_never_published(gained, outcome):
    machine = core()
    machine.handle(Taken(100))
    machine.handle(Trained())
    assert machine.handle(gained) == []
    assert machine.outcomes == {outcome: 1}


def test_with_the_gate_open_anything_is_published():
    machine = LearnerCore("marl-dqn", min_transitions=1, gate_margin=1.0)
    machine.handle(PointerSeen(PolicyPointer(active=ACTIVE)))
    machine.handle(Taken(1))
    machine.handle(Trained())
    assert machine.handle(Gated(-0.9)) == [Publish(4, -0.9)]


def test_nothing_is_trained_while_a_candidate_is_on_its_way():
    machine = core(PolicyPointer(active=ACTIVE, candidate=PolicyRef("marl-dqn", 4, "b" * 64), stage="shadow"))
    assert machine.handle(Taken(1000)) == []
    assert machine.handle(PointerSeen(PolicyPointer(active=ACTIVE))) == [Train(ACTIVE, 5)]


@pytest.mark.parametrize("pointer", [None, PolicyPointer(active=PolicyRef("kube-default", 1))])
def test_nothing_is_trained_where_another_policy_is_active(pointer):
    machine = LearnerCore("marl-dqn", min_transitions=1, gate_margin=0.02)
    machine.handle(PointerSeen(pointer))
    assert machine.handle(Taken(10)) == []


def test_a_version_once_seen_is_never_given_again():
    machine = core(PolicyPointer(active=ACTIVE, candidate=PolicyRef("marl-dqn", 9, "b" * 64), stage="shadow"))
    machine.handle(PointerSeen(PolicyPointer(active=ACTIVE)))
    assert machine.handle(Taken(100)) == [Train(ACTIVE, 10)]


def test_answers_that_nobody_waits_for_change_nothing():
    machine = core()
    assert machine.handle(Trained()) == []
    assert machine.handle(Gated(1.0)) == []
    assert machine.phase is Phase.COLLECTING


def test_a_version_that_was_withdrawn_before_the_learner_started_is_not_given_again():
    machine = core()
    withdrawn = PolicyPointer(active=ACTIVE, candidate=PolicyRef("marl-dqn", 7, "d" * 64), stage="shadow")
    other = PolicyPointer(active=PolicyRef("lb", 30, "e" * 64))
    assert machine.handle(HistoryRead((withdrawn, other))) == []
    assert machine.handle(Taken(100)) == [Train(ACTIVE, 8)]
