"""The steps of a roll-out: which comes next, what each asks for, and what windows in a row say."""

from __future__ import annotations

from random import Random

import pytest

from shared.decide.stages import RolloutStep, Stage, WindowRow, WindowVerdict, forced, left_out, next_step, step_to
from shared.errors import ConfigError, TooFewWindows


@pytest.mark.parametrize("shares", [(), (10,), (1, 10, 50, 100), (99,), (3, 4, 5)])
def test_a_candidate_goes_through_shadow_and_each_share_to_all(shares: tuple[int, ...]):
    step, gone = RolloutStep(Stage.CANDIDATE), []
    while step.stage is not Stage.ACTIVE:
        step = next_step(*step, shares)
        gone.append(step)
    assert gone == [
        RolloutStep(Stage.SHADOW),
        *(RolloutStep(Stage.CANARY, share) for share in shares),
        RolloutStep(Stage.ACTIVE),
    ]


def test_a_share_that_the_domain_does_not_name_goes_on_to_the_next_larger_one():
    assert next_step(Stage.CANARY, 17, (1, 10, 50)) == RolloutStep(Stage.CANARY, 50)


@pytest.mark.parametrize(
    ("to", "share", "step"),
    [
        (None, None, RolloutStep(Stage.CANARY, 50)),
        (Stage.ACTIVE, None, RolloutStep(Stage.ACTIVE)),
        (Stage.CANARY, None, RolloutStep(Stage.CANARY, 50)),
        (None, 11, RolloutStep(Stage.CANARY, 11)),
        (Stage.CANARY, 99, RolloutStep(Stage.CANARY, 99)),
    ],
)
def test_an_operator_may_name_the_step(to: Stage | None, share: int | None, step: RolloutStep):
    assert step_to(Stage.CANARY, 10, (1, 10, 50), title="mine@1", to=to, share=share) == step


@pytest.mark.parametrize(("to", "share"), [(Stage.ACTIVE, 50), (None, 10), (None, 1), (Stage.SHADOW, 50)])
def test_what_is_no_step_forward_is_refused(to: Stage | None, share: int | None):
    with pytest.raises(ConfigError, match=r"^(percent: belongs|policy: mine@1 is in the canary at 10 % already)"):
        step_to(Stage.CANARY, 10, (1, 10, 50), title="mine@1", to=to, share=share)


@pytest.mark.parametrize(
    "step", [RolloutStep(Stage.CANARY, 1), RolloutStep(Stage.CANARY, 100), RolloutStep(Stage.ACTIVE)]
)
def test_without_windows_a_step_is_refused_or_forced_and_says_so(step: RolloutStep):
    with pytest.raises(TooFewWindows, match="none yet"):
        forced(step, "none yet", force=False)
    assert forced(step, "none yet", force=True)
    assert not forced(step, "", force=True), "what windows speak for is not forced, whatever was asked"


@pytest.mark.parametrize("step", [RolloutStep(Stage.ACTIVE), RolloutStep(Stage.CANARY, 100)])
def test_nobody_is_handed_all_who_was_in_no_canary_where_there_are_canaries(step: RolloutStep):
    for stage in (Stage.SHADOW, Stage.CANDIDATE):
        assert left_out(stage, 0, step, (1, 100), title="mine@1").startswith("mine@1 has decided for nobody yet")
    assert left_out(Stage.CANARY, 1, step, (1, 100), title="mine@1") == "", "it may go on by greater steps"
    assert left_out(Stage.SHADOW, 0, RolloutStep(Stage.CANARY, 50), (1, 100), title="mine@1") == ""
    assert left_out(Stage.SHADOW, 0, step, (step.percent,) if step.percent else (), title="mine@1") == "", (
        "none to skip"
    )


def test_into_shadow_where_windows_begin_none_are_needed():
    assert not forced(RolloutStep(Stage.SHADOW), "none yet", force=False)


def test_a_bad_window_ends_the_good_ones_a_good_one_the_bad_ones_and_an_unsure_one_the_good_ones_alone():
    row = WindowRow()
    for verdict, counts in (
        (WindowVerdict.GOOD, (1, 0)), (WindowVerdict.GOOD, (2, 0)), (WindowVerdict.UNSURE, (0, 0)), (WindowVerdict.BAD,
        (0, 1)),
        (WindowVerdict.UNSURE, (0, 1)), (WindowVerdict.BAD, (0, 2)), (WindowVerdict.GOOD, (1, 0)), (WindowVerdict.BAD,
        (0, 1)),
    ):  # fmt: skip
        row.add(verdict, "" if verdict is WindowVerdict.GOOD else "slower")
        assert (row.good, row.bad) == counts
    assert row.reasons == ["slower"]


def test_good_and_bad_windows_in_a_row_are_never_both_counted():
    rng = Random(7)
    row = WindowRow()
    for _ in range(500):
        row.add(rng.choice(list(WindowVerdict)), "why")
        assert not (row.good and row.bad)
        assert len(row.reasons) == row.bad


@pytest.mark.parametrize("needed", [1, 3, 100])
def test_what_is_lacking_is_told_with_the_last_windows_verdict(needed: int):
    row = WindowRow()
    assert row.lacking("mine@1", needed) == f"mine@1 has 0 of {needed} good windows in a row at this step"
    row.add(WindowVerdict.BAD, "slower")
    assert row.lacking("mine@1", needed).endswith("at this step, the last one bad: slower")
    for _ in range(needed):
        row.add(WindowVerdict.GOOD)
    assert row.lacking("mine@1", needed) == ""
