"""The rollout: step by step on proof, back by itself on three worse windows, at once on a hard failure."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.decide.guard import Failure
from shared.decide.stages import Stage, WindowVerdict
from shared.errors import ConfigError, TooFewWindows
from shared.policy.rollout.judging import Kpi, RolloutSettings, RolloutWindow, judge
from shared.policy.rollout.rollout import (
    BUILT_IN,
    PointerRollout,
    candidate_for,
    deciding_goal,
    first_pointer,
    promote,
    publish,
    roll_back,
    to_stage,
)
from shared.wire.records import PolicyPointer, PolicyRef, decode_record

OLD, NEW = PolicyRef("marl-dqn", 1, "a" * 64), PolicyRef("marl-dqn", 2, "b" * 64)
SETTINGS = RolloutSettings(promotion="auto")
BY_HAND = RolloutSettings()
GOOD = RolloutWindow(Kpi(value=1.0, decisions=50), Kpi(value=1.0, decisions=50), samples=50)
BAD = RolloutWindow(Kpi(value=0.979, decisions=50), Kpi(value=1.0, decisions=50), samples=50)


def shadow() -> PolicyPointer:
    published = publish(first_pointer(OLD), NEW, by="learner").after
    return to_stage(published, Stage.SHADOW, 0, reason="gate passed", by="learner").after


def rollout(pointer: PolicyPointer) -> PointerRollout:
    return PointerRollout(SETTINGS, pointer)


def run(machine: PointerRollout, windows: list[RolloutWindow]) -> list[PolicyPointer]:
    """Feed windows; every change is written and seen. The pointers in order."""
    pointers = []
    for window in windows:
        change = machine.closed(window)
        if change is not None:
            assert change.before == machine.pointer
            machine.seen(change.after)
            pointers.append(change.after)
    return pointers


def test_a_good_candidate_goes_from_shadow_to_active_in_fifteen_windows():
    pointers = run(rollout(shadow()), [GOOD] * 15)
    assert [(p.stage, p.percent) for p in pointers] == [
        ("canary", 1), ("canary", 10), ("canary", 50), ("canary", 100), ("active", 0),
    ]  # fmt: skip
    assert (pointers[-1].active, pointers[-1].previous, pointers[-1].candidate) == (NEW, OLD, None)
    assert [p.number for p in pointers] == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("good_before", [0, 3, 6, 9, 12])
def test_three_worse_windows_in_a_row_withdraw_the_candidate_at_any_stage(good_before):
    machine = rollout(shadow())
    run(machine, [GOOD] * good_before)
    assert run(machine, [BAD, BAD]) == []
    [back] = run(machine, [BAD])
    assert (back.active, back.candidate, back.stage, back.percent) == (OLD, None, "active", 0)
    assert "worse in 3 windows in a row: value 0.979 against 1" in back.reason


def test_two_worse_windows_and_a_good_one_start_again():
    machine = rollout(shadow())
    assert run(machine, [BAD, BAD, GOOD, BAD, BAD, GOOD]) == []
    assert machine.row.good == 1


def test_with_the_safeguard_off_a_worse_candidate_stays():
    machine = PointerRollout(RolloutSettings(bad_windows=10**9, promotion="auto"), shadow())
    assert run(machine, [BAD] * 50) == []
    assert machine.pointer.candidate == NEW


@pytest.mark.parametrize("failure", [Failure.NAN, Failure.SHAPE, Failure.EXCEPTION, Failure.DIGEST])
@pytest.mark.parametrize("good_before", [0, 5, 14])
def test_a_hard_failure_withdraws_the_candidate_at_once(failure, good_before):
    machine = rollout(shadow())
    run(machine, [GOOD] * good_before)
    change = machine.failed([(NEW, failure)])
    assert change is not None
    assert (change.after.active, change.after.candidate) == (OLD, None)
    assert change.after.reason == f"marl-dqn@2 failed: {failure}"


def test_a_timeout_alone_does_not_end_a_rollout():
    assert rollout(shadow()).failed([(NEW, Failure.TIMEOUT)]) is None


def test_an_active_policy_that_fails_hard_gives_way_to_the_previous_one():
    machine = rollout(PolicyPointer(active=NEW, previous=OLD))
    change = machine.failed([(NEW, Failure.NAN)])
    assert change is not None
    assert (change.after.active, change.after.previous) == (OLD, None)
    machine.seen(change.after)
    last = machine.failed([(OLD, Failure.EXCEPTION)])
    assert last is not None
    assert last.after.active == BUILT_IN


def test_failures_of_policies_that_do_not_decide_any_more_change_nothing():
    assert rollout(PolicyPointer(active=OLD)).failed([(NEW, Failure.NAN)]) is None
    assert rollout(first_pointer(BUILT_IN)).failed([(BUILT_IN, Failure.NAN)]) is None


def test_an_active_policy_that_agents_do_not_have_gives_way_though_it_has_no_weights():
    unknown = PolicyRef("of-a-later-release", 1)
    change = rollout(PolicyPointer(active=unknown, previous=OLD)).failed([(unknown, Failure.DIGEST)])
    assert change is not None
    assert change.after.active == OLD
    assert rollout(PolicyPointer(active=unknown)).failed([(unknown, Failure.NAN)]) is None


@pytest.mark.parametrize("unloaded", [Failure.DIGEST, Failure.RELEASE])
def test_amid_an_upgrade_the_active_policy_stays_where_others_judge_by_it(unloaded: Failure) -> None:
    machine = rollout(PolicyPointer(active=NEW, previous=OLD))
    assert machine.failed([(NEW, unloaded)], others=True) is None
    assert machine.failed([(NEW, Failure.NAN)], others=True) is not None
    change = machine.failed([(NEW, unloaded)])  # what the pointer names is to be what decides
    assert change is not None
    assert change.after.active == OLD
    assert rollout(shadow()).failed([(NEW, unloaded)], others=True) is not None  # a candidate goes at once


def test_a_window_with_too_few_samples_proves_nothing():
    thin = RolloutWindow(Kpi(value=0.0), Kpi(value=1.0), samples=SETTINGS.min_samples - 1)
    machine = rollout(shadow())
    assert run(machine, [thin] * 10) == []
    assert (machine.row.good, machine.row.bad) == (0, 0)


def test_a_new_leader_counts_windows_anew_but_goes_on_from_the_stage():
    first = rollout(shadow())
    run(first, [GOOD] * 5)
    second = rollout(first.pointer)
    assert (second.pointer.percent, second.row.good) == (1, 0)


def test_windows_of_another_stage_do_not_count():
    machine = rollout(shadow())
    run(machine, [BAD, BAD])
    machine.seen(to_stage(machine.pointer, Stage.CANARY, 50, reason="by hand", by="operator").after)
    assert run(machine, [BAD]) == []


@pytest.mark.parametrize(
    ("candidate", "active", "told"),
    [
        pytest.param(Kpi(value=0.981), Kpi(value=1.0), "", id="value within the margin"),
        pytest.param(Kpi(value=float("nan")), Kpi(value=1.0), "value nan", id="value not a number"),
        pytest.param(Kpi(value=-1.03), Kpi(value=-1.0), "value -1.03", id="negative values"),
        pytest.param(Kpi(1, decisions=20, fallbacks=1), Kpi(1, decisions=20), "fallbacks 5.0%", id="fallbacks"),
        pytest.param(Kpi(1, decisions=9, fallbacks=9), Kpi(1, decisions=20), "", id="too few decisions to say"),
        pytest.param(Kpi(1, placements=10, rejected=1), Kpi(1, placements=10, rejected=1), "", id="as often rejected"),
        pytest.param(Kpi(1, placements=10, rejected=2), Kpi(1, placements=10), "rejected 20.0%", id="rejected"),
        pytest.param(Kpi(1, p99_ms=21), Kpi(1, p99_ms=1), "p99 of a decision 21.0 ms", id="slow"),
        pytest.param(Kpi(1, p99_ms=19), Kpi(1, p99_ms=1), "", id="slower but allowed"),
        pytest.param(Kpi(1, p99_ms=30), Kpi(1, p99_ms=30), "", id="a slow machine"),
    ],
)
def test_what_makes_a_window_bad(candidate, active, told):
    verdict, reason = judge(RolloutWindow(candidate, active, samples=50), SETTINGS)
    assert reason.startswith(told) if told else reason == ""
    assert verdict is (WindowVerdict.BAD if told else WindowVerdict.GOOD)


def test_an_operator_may_step_back_and_forth_but_not_beyond_what_there_is():
    with pytest.raises(ConfigError, match="there is no candidate"):
        to_stage(first_pointer(OLD), Stage.SHADOW, 0, reason="", by="operator")
    with pytest.raises(ConfigError, match="does not belong to stage"):
        to_stage(shadow(), Stage.CANARY, 0, reason="", by="operator")
    with pytest.raises(ConfigError, match="does not belong to stage"):
        to_stage(shadow(), Stage.SHADOW, 10, reason="", by="operator")
    with pytest.raises(ConfigError, match="nothing to roll back to"):
        roll_back(first_pointer(BUILT_IN), reason="", by="operator")
    with pytest.raises(ConfigError, match="is active already"):
        publish(first_pointer(OLD), OLD, by="learner")


def test_a_learner_does_not_replace_a_candidate_that_is_in_the_canary():
    canary = to_stage(shadow(), Stage.CANARY, 10, reason="", by="operator").after
    with pytest.raises(ConfigError, match="marl-dqn@2 is in the canary"):
        publish(canary, PolicyRef("marl-dqn", 3, "c" * 64), by="learner")


def at(percent: int, candidate: PolicyRef = NEW) -> PolicyPointer:
    return PolicyPointer(active=OLD, candidate=candidate, stage="canary", percent=percent)


@given(st.uuids())
def test_a_pod_in_a_small_canary_is_in_every_larger_one(uid):
    seen = [candidate_for(str(uid), at(percent)) for percent in (1, 10, 50, 100)]
    assert seen == sorted(seen)
    assert seen[-1]
    assert not candidate_for(str(uid), shadow())


@pytest.mark.parametrize("percent", [1, 10, 50])
def test_the_canary_takes_its_share_of_pods(percent):
    share = sum(candidate_for(f"uid-{number}", at(percent)) for number in range(20_000)) / 20_000
    assert share == pytest.approx(percent / 100, abs=0.01)


def test_another_candidate_gets_other_pods():
    mine = {n for n in range(2000) if candidate_for(f"u{n}", at(10))}
    others = {n for n in range(2000) if candidate_for(f"u{n}", at(10, PolicyRef("marl-dqn", 3, "c" * 64)))}
    assert mine != others


@given(st.lists(st.sampled_from(["good", "bad", "fail", "rollback", "publish"]), max_size=60))
def test_whatever_happens_the_active_policy_changes_only_as_it_may(steps):
    """R1 and R2 over random histories."""
    machine, versions = rollout(first_pointer(OLD)), 1
    for step in steps:
        before, change = machine.pointer, None
        try:
            match step:
                case "good" | "bad":
                    change = machine.closed(GOOD if step == "good" else BAD)
                case "fail" if before.candidate is not None:
                    change = machine.failed([(before.candidate, Failure.NAN)])
                case "rollback":
                    change = roll_back(before, reason="by hand", by="operator")
                case "publish":
                    versions += 1
                    published = publish(before, PolicyRef("marl-dqn", versions, f"{versions:064d}"), by="learner")
                    change = to_stage(published.after, Stage.SHADOW, 0, reason="gate passed", by="learner")
        except ConfigError:
            continue
        if change is None:
            continue
        after = change.after
        machine.seen(after)
        if after.active != before.active:
            crowned = before.percent == 100 and after.active == before.candidate and after.previous == before.active
            assert crowned or after.active in (before.previous, BUILT_IN)
        assert (after.candidate is None) == (after.stage == Stage.ACTIVE)
        assert (after.stage == Stage.CANARY) == (after.percent > 0)


def test_unless_told_otherwise_a_candidate_stays_at_its_step_however_good_it_is():
    machine = PointerRollout(BY_HAND, shadow())
    assert run(machine, [GOOD] * 100) == []
    assert (machine.pointer.stage, machine.row.good) == ("shadow", 100)


@pytest.mark.parametrize(
    ("said", "setting", "goes_on"),
    [("", "manual", False), ("", "auto", True), ("manual", "auto", False), ("auto", "manual", True), ("?", "", False)],
)
def test_the_candidates_own_promotion_counts_before_the_setting(said, setting, goes_on):
    pointer = msgspec.structs.replace(shadow(), promotion=said)
    machine = PointerRollout(RolloutSettings(promotion=setting), pointer)
    assert bool(run(machine, [GOOD] * 3)) is goes_on


def test_by_hand_too_it_goes_by_itself_when_it_is_worse_or_fails():
    machine = PointerRollout(BY_HAND, shadow())
    [back] = run(machine, [BAD] * 3)
    assert back.candidate is None
    change = PointerRollout(BY_HAND, shadow()).failed([(NEW, Failure.NAN)])
    assert change is not None
    assert change.after.candidate is None


def promoted(pointer: PolicyPointer, **how) -> PolicyPointer:
    return promote(pointer, reason="by hand", by="olga", **how).after


def test_an_operator_promotes_one_step_at_a_time():
    pointer, steps = shadow(), []
    while pointer.candidate is not None:
        pointer = promoted(pointer)
        steps.append((pointer.stage, pointer.percent))
    assert steps == [("canary", 1), ("canary", 10), ("canary", 50), ("canary", 100), ("active", 0)]
    assert (pointer.active, pointer.previous, pointer.by) == (NEW, OLD, "olga")
    published = publish(first_pointer(OLD), NEW, by="learner").after
    assert [PointerRollout(RolloutSettings(), one).next for one in (pointer, published)] == [None, ("shadow", 0)]


@pytest.mark.parametrize(
    ("at", "how", "then"),
    [
        pytest.param(0, {"to": Stage.CANARY}, ("canary", 1), id="to the canary"),
        pytest.param(1, {"to": Stage.CANARY}, ("canary", 10), id="further in it"),
        pytest.param(25, {}, ("canary", 50), id="from a share that is no step"),
        pytest.param(0, {"percent": 30}, ("canary", 30), id="to a share"),
        pytest.param(0, {"to": Stage.ACTIVE, "force": True}, ("active", 0), id="to active at once"),
    ],
)
def test_a_promotion_may_name_its_stage(at, how, then):
    pointer = to_stage(shadow(), Stage.CANARY, at, reason="", by="").after if at else shadow()
    after = promoted(pointer, **how)
    assert (after.stage, after.percent) == then


@pytest.mark.parametrize("how", [{"to": Stage.ACTIVE}, {"percent": 100}])
def test_good_windows_of_shadow_alone_hand_nobody_all_and_who_forces_it_is_recorded(how):
    with pytest.raises(TooFewWindows, match="promote it to canary 1 % first, or force it"):
        promoted(shadow(), **how)
    assert promoted(shadow(), force=True, **how).forced


@pytest.mark.parametrize(
    ("at", "how", "told"),
    [
        pytest.param(100, {"to": Stage.CANARY}, "in the canary at 100 % already", id="no further canary"),
        pytest.param(50, {"percent": 10}, "activate it with a smaller one to go back", id="a step back"),
        pytest.param(50, {"percent": 50}, "at 50 % already", id="the same share"),
        pytest.param(50, {"to": Stage.ACTIVE, "percent": 60}, "belongs to the stage canary", id="active has no share"),
        pytest.param(50, {"percent": 101}, "101 % does not belong", id="more than all"),
    ],
)
def test_what_is_no_step_forward_is_refused(at, how, told):
    pointer = to_stage(shadow(), Stage.CANARY, at, reason="", by="").after
    with pytest.raises(ConfigError, match=told):
        promoted(pointer, **how)


def test_without_a_candidate_there_is_nothing_to_promote():
    with pytest.raises(ConfigError, match="there is no candidate to promote"):
        promoted(first_pointer(OLD))


def test_what_was_said_of_a_candidate_goes_with_it():
    told = msgspec.structs.replace(shadow(), promotion="auto", goal="packing")
    other = PolicyRef("marl-dqn", 3, "c" * 64)
    for after in (
        roll_back(told, reason="", by="").after,
        promoted(told, to=Stage.ACTIVE, force=True),
        publish(told, other, by="learner").after,
    ):
        assert (after.promotion, after.goal) == ("", "")
    assert (promoted(told).promotion, promoted(told).goal) == ("auto", "packing")


def test_a_pointer_of_an_earlier_version_is_read_and_stays_at_its_step():
    old = (
        b'{"active":{"name":"marl-dqn","version":1,"sha256":"a"},"previous":null,"candidate":{"name":"marl-dqn",'
        b'"version":2,"sha256":"b"},"stage":"canary","percent":10,"number":7,"reason":"not worse","by":"rollout"}'
    )
    pointer = decode_record(old, PolicyPointer)
    assert pointer is not None
    assert (pointer.percent, pointer.promotion, pointer.goal) == (10, "", "")
    machine = PointerRollout(BY_HAND, pointer)
    assert run(machine, [GOOD] * 10) == []
    assert deciding_goal(pointer, BY_HAND) == "neutral"


def test_the_operators_goal_decides_and_an_unknown_one_is_the_neutral_one():
    assert deciding_goal(msgspec.structs.replace(shadow(), goal="packing"), BY_HAND) == "packing"
    assert deciding_goal(shadow(), RolloutSettings(goal="room")) == "room"
    assert deciding_goal(msgspec.structs.replace(shadow(), goal="of a later release"), BY_HAND) == "neutral"


def test_windows_judged_by_another_goal_do_not_count():
    machine = rollout(shadow())
    run(machine, [BAD, BAD])
    machine.seen(msgspec.structs.replace(machine.pointer, goal="packing"))
    assert run(machine, [BAD]) == []


def test_a_value_that_chance_explains_neither_promotes_nor_withdraws():
    unsure = RolloutWindow(Kpi(value=0.9), Kpi(value=1.0), samples=50, error=0.05)
    assert judge(unsure, SETTINGS)[0] is WindowVerdict.UNSURE
    machine = rollout(shadow())
    assert run(machine, [GOOD, GOOD, unsure] * 10) == []
    assert machine.row.good == 0
    [back] = run(machine, [BAD, unsure, BAD, unsure, BAD])
    assert back.candidate is None


def noisy(rng: np.random.Generator, count: int, *, worse_by: float = 0.0) -> RolloutWindow:
    """Both choose with the same luck; the candidate is worse by so much on average."""
    theirs = rng.beta(4, 2, count)
    mine = np.clip(rng.beta(4, 2, count) - worse_by, 0, 1)
    error = float(np.std(mine - theirs, ddof=1)) / count**0.5
    return RolloutWindow(Kpi(float(mine.mean())), Kpi(float(theirs.mean())), samples=count, error=error)


def withdrawn_after(settings: RolloutSettings, *, windows: int, worse_by: float = 0.0) -> int:
    """After how many windows of 20 samples a candidate at its step is withdrawn; all of them: it never is."""
    rng, machine = np.random.default_rng(3), PointerRollout(settings, shadow())
    for number in range(windows):
        if machine.closed(noisy(rng, 20, worse_by=worse_by)) is not None:
            return number
    return windows


def test_a_candidate_as_good_as_the_active_one_waits_for_its_operator_for_a_day():
    """Three windows of 20 samples in a row were bad by chance within the hour."""
    day = 2880
    assert withdrawn_after(BY_HAND, windows=day) == day
    assert withdrawn_after(RolloutSettings(noise=0.0), windows=day) < 120


def test_a_candidate_that_is_much_worse_goes_within_minutes_all_the_same():
    assert withdrawn_after(BY_HAND, windows=2880, worse_by=0.4) <= 5
