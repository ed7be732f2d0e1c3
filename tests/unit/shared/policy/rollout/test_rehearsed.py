"""What a rehearsal said lies in the pointer: windows begin anew with it, and it goes with its policy."""

from __future__ import annotations

import msgspec

from shared.decide.stages import Stage
from shared.policy.rollout.judging import Kpi, RolloutSettings, RolloutWindow
from shared.policy.rollout.rollout import (
    BUILT_IN,
    PointerRollout,
    first_pointer,
    promote,
    publish,
    rehearse,
    rehearsed_of,
    roll_back,
    to_stage,
)
from shared.wire.records import PolicyPointer, PolicyRef, Rehearsed, decode_record

OLD, NEW = PolicyRef("frag", 1, "a" * 64), PolicyRef("marl-dqn", 2, "b" * 64)
GOOD = RolloutWindow(Kpi(value=1.0, decisions=50), Kpi(value=1.0, decisions=50), samples=50)


def shadow() -> PolicyPointer:
    published = publish(first_pointer(OLD), NEW, by="learner").after
    return to_stage(published, Stage.SHADOW, 0, reason="gate passed", by="learner").after


SAID = Rehearsed(policy=OLD.title, sha256=OLD.sha256, places="fgd", told="because")


def test_windows_count_anew_once_a_rehearsal_says_who_places():
    machine = PointerRollout(RolloutSettings(), shadow())
    assert [machine.closed(GOOD) for _ in range(2)] == [None, None]
    assert machine.row.good == 2
    machine.seen(rehearse(machine.pointer, [SAID], reason="because", by="rehearsal").after)
    assert machine.row.good == 0


def test_what_a_rehearsal_said_stays_through_every_step_and_goes_with_its_policy():
    before = rehearse(shadow(), [SAID], reason="because", by="rehearsal").after
    assert (before.active, before.candidate, before.stage, before.number) == (OLD, NEW, "shadow", shadow().number + 1)
    assert promote(before, reason="", by="ann").after.rehearsed == (SAID,)
    assert roll_back(before, reason="", by="ann").after.rehearsed == (SAID,)
    active = promote(before, to=Stage.ACTIVE, force=True, reason="", by="ann").after
    assert active.rehearsed == ()
    assert rehearsed_of(before, OLD) == SAID
    assert rehearsed_of(before, NEW) is None
    assert rehearsed_of(before, BUILT_IN) is None


def test_a_pointer_of_before_there_were_rehearsals_is_read_and_says_nothing():
    old = msgspec.json.decode(msgspec.json.encode(shadow()))
    del old["rehearsed"]
    assert decode_record(msgspec.json.encode(old), PolicyPointer) == shadow()
