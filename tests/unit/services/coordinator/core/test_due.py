"""One time per key, the earliest that was asked for."""

from __future__ import annotations

from services.coordinator.core.due import Due


def test_the_earliest_time_counts_and_is_told_once() -> None:
    due = Due()
    due.later("a", 5.0)
    due.later("a", 3.0)
    due.later("a", 9.0)
    due.later("b", 4.0)
    assert due.next_at() == 3.0
    assert due.take(2.0) == []
    assert due.take(5.0) == ["a", "b"]
    assert due.take(99.0) == []


def test_what_asks_again_for_the_same_moment_is_told_the_next_time() -> None:
    due = Due()
    due.later("a", 1.0)
    for key in due.take(1.0):
        due.later(key, 1.0)
    assert due.take(1.0) == ["a"]
