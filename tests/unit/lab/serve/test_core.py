"""When the learner trains, gates and publishes. Pure."""

from __future__ import annotations

import pytest

from lab.serve.core import (
    GateVerdict,
    GateWeights,
    HistoryRead,
    LearnerCore,
    LearnerPhase,
    LearnerPointerSeen,
    Publish,
    Published,
    Train,
    Trained,
    TransitionsTaken,
)
from shared.wire.records import PolicyPointer, PolicyRef

ACTIVE = PolicyRef("marl-dqn", 3, "a" * 64)


def core(pointer: PolicyPointer | None = None) -> LearnerCore:
    machine = LearnerCore("marl-dqn", min_transitions=100, gate_margin=0.02)
    machine.handle(LearnerPointerSeen(pointer or PolicyPointer(active=ACTIVE)))
    return machine


def test_enough_transitions_are_trained_on_gated_and_published_as_the_next_version():
    machine = core()
    assert machine.handle(TransitionsTaken(99)) == []
    assert machine.handle(TransitionsTaken(1)) == [Train(ACTIVE, 4)]
    assert machine.handle(Trained()) == [GateWeights(ACTIVE)]
    assert machine.handle(GateVerdict(0.01)) == [Publish(4, 0.01)]
    assert machine.handle(Published()) == []
    assert machine.phase is LearnerPhase.COLLECTING
    assert machine.outcomes == {"published": 1}


def test_after_publishing_nothing_is_begun_before_the_pointer_is_seen():
    machine = core()
    for event in (TransitionsTaken(100), Trained(), GateVerdict(0.0), TransitionsTaken(500)):
        machine.handle(event)
    assert machine.handle(Published()) == []
    candidate = PolicyRef("marl-dqn", 4, "b" * 64)
    assert machine.handle(LearnerPointerSeen(PolicyPointer(active=ACTIVE, candidate=candidate, stage="shadow"))) == []
    assert machine.handle(LearnerPointerSeen(PolicyPointer(active=candidate))) == [Train(candidate, 5)]


def test_one_thing_at_a_time_and_what_comes_meanwhile_counts_for_the_next():
    machine = core()
    machine.handle(TransitionsTaken(100))
    assert machine.handle(TransitionsTaken(500)) == []
    assert machine.handle(Trained("diverged")) == []
    assert machine.handle(TransitionsTaken(1)) == [Train(ACTIVE, 4)]


@pytest.mark.parametrize(
    ("gained", "outcome"),
    [
        (GateVerdict(-0.03), "refused by the gate"),
        (GateVerdict(float("nan")), "refused by the gate"),
        (GateVerdict(0.5, "unusable verdicts"), "gate failed"),
    ],
)
def test_what_the_gate_refuses_is_never_published(gained, outcome):
    machine = core()
    machine.handle(TransitionsTaken(100))
    machine.handle(Trained())
    assert machine.handle(gained) == []
    assert machine.outcomes == {outcome: 1}


def test_with_the_gate_open_anything_is_published():
    machine = LearnerCore("marl-dqn", min_transitions=1, gate_margin=1.0)
    machine.handle(LearnerPointerSeen(PolicyPointer(active=ACTIVE)))
    machine.handle(TransitionsTaken(1))
    machine.handle(Trained())
    assert machine.handle(GateVerdict(-0.9)) == [Publish(4, -0.9)]


def test_nothing_is_trained_while_a_candidate_is_on_its_way():
    machine = core(PolicyPointer(active=ACTIVE, candidate=PolicyRef("marl-dqn", 4, "b" * 64), stage="shadow"))
    assert machine.handle(TransitionsTaken(1000)) == []
    assert machine.handle(LearnerPointerSeen(PolicyPointer(active=ACTIVE))) == [Train(ACTIVE, 5)]


@pytest.mark.parametrize("pointer", [None, PolicyPointer(active=PolicyRef("kube-default", 1))])
def test_nothing_is_trained_where_another_policy_is_active(pointer):
    machine = LearnerCore("marl-dqn", min_transitions=1, gate_margin=0.02)
    machine.handle(LearnerPointerSeen(pointer))
    assert machine.handle(TransitionsTaken(10)) == []


def test_a_version_once_seen_is_never_given_again():
    machine = core(PolicyPointer(active=ACTIVE, candidate=PolicyRef("marl-dqn", 9, "b" * 64), stage="shadow"))
    machine.handle(LearnerPointerSeen(PolicyPointer(active=ACTIVE)))
    assert machine.handle(TransitionsTaken(100)) == [Train(ACTIVE, 10)]


def test_answers_that_nobody_waits_for_change_nothing():
    machine = core()
    assert machine.handle(Trained()) == []
    assert machine.handle(GateVerdict(1.0)) == []
    assert machine.phase is LearnerPhase.COLLECTING


def test_a_version_that_was_withdrawn_before_the_learner_started_is_not_given_again():
    machine = core()
    withdrawn = PolicyPointer(active=ACTIVE, candidate=PolicyRef("marl-dqn", 7, "d" * 64), stage="shadow")
    other = PolicyPointer(active=PolicyRef("lb", 30, "e" * 64))
    assert machine.handle(HistoryRead((withdrawn, other))) == []
    assert machine.handle(TransitionsTaken(100)) == [Train(ACTIVE, 8)]
