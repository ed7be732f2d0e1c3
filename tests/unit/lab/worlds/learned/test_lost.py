"""Minutes lost: each pattern is told by what shows it, the worse before the milder, and a sound service loses none."""

from __future__ import annotations

import pytest

from lab.worlds.learned.lost import HINTS, PATTERNS, lost_minutes, table_of
from lab.worlds.learned.series import HEADER
from tests.learned_twins import recorded_bytes

SOUND = {
    "replicas": 3, "ready": 3, "starting": 0, "pending": 0, "arrivals": 50, "served": 50, "failed": 0, "queue": 0,
    "latency_s": 0.1, "cpu_cores": 0.2, "cpu_request": 0.5, "maximum": 5, "objective_s": 0.5,
}  # fmt: skip


def series(*, minutes: int = 3, calls: str = "", **changed: object) -> bytes:
    """Service a as changed, which calls b, which is sound: a moment each minute."""
    lines = [",".join(HEADER)]
    for at in range(minutes):
        for name, own in (("a", {"calls": calls, **changed}), ("b", {})):
            row = {"scenario": "live", "episode": "1", "time_s": 60 * at, "service": name, **SOUND, **own}
            lines.append(",".join(str(row.get(column, "")) for column in HEADER))
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize(
    ("pattern", "changed"),
    [
        ("pending", {"ready": 2, "pending": 1, "crash_loop": 1}),
        ("out of memory", {"ready": 2, "starting": 1, "oom_killed": 1, "crash_loop": 1}),
        ("crash loop", {"ready": 2, "starting": 1, "crash_loop": 1, "hung": 1}),
        ("hang", {"ready": 2, "starting": 1, "hung": 1}),
        ("saturated", {"failed": 20, "cpu_cores": 0.45}),
        ("saturated", {"replicas": 5, "ready": 5, "latency_s": 2.0}),
        ("starting", {"ready": 2, "starting": 1}),
        ("unexplained", {"failed": 20}),
    ],
)
def test_each_pattern_is_told_by_what_shows_it(pattern: str, changed: dict[str, object]):
    (loss,) = lost_minutes(series(**changed), "s.csv")
    assert (loss.service, loss.pattern, loss.minutes, loss.of_minutes) == ("a", pattern, 3.0, 3.0)


def test_a_sound_service_that_fails_with_one_that_it_calls_lost_its_minutes_to_that_one():
    rows = series(calls="b", failed=20).decode().replace(",b,3,3,0,0,", ",b,3,2,1,0,")
    assert [(one.service, one.pattern) for one in lost_minutes(rows.encode(), "s.csv")] == [
        ("a", "dependency failed"), ("b", "starting"),
    ]  # fmt: skip


def test_who_loses_nothing_is_not_in_the_table():
    assert lost_minutes(series(), "s.csv") == []
    assert table_of([]) == ["no minute was lost"]


def test_a_gap_counts_as_one_step_and_not_as_lost():
    rows = series(minutes=4, ready=2, starting=1).decode().replace(",180,", ",9000,")
    assert lost_minutes(rows.encode(), "s.csv")[0].minutes == 4.0


def test_the_largest_loss_comes_first_with_what_helps():
    losses = lost_minutes(recorded_bytes(("mixed",), 600), "s.csv")
    assert [one.minutes for one in losses] == sorted((one.minutes for one in losses), reverse=True)
    assert {one.pattern for one in losses} <= set(PATTERNS) == set(HINTS)
    assert HINTS[losses[0].pattern] in table_of(losses)[1]
