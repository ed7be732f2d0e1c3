"""One time per key, the earliest that was asked for."""

from __future__ import annotations

from services.coordinator.core.due import FORGOTTEN_KEPT, Due


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


def test_of_many_that_are_due_so_many_are_told_at_once() -> None:
    due = Due()
    for key in "abc":
        due.later(key, 1.0)
    assert (due.take(1.0, 2), due.next_at(), due.take(1.0, 2)) == (["a", "b"], 1.0, ["c"])


def test_what_is_forgotten_is_not_told_and_takes_no_room() -> None:
    due = Due()
    for number in range(1000):
        due.later(str(number), 1.0 + number)
        if number != 500:
            due.forget(str(number))
    assert "7" not in due
    assert len(due._heap) <= 2 * FORGOTTEN_KEPT
    assert due.take(2000.0) == ["500"]
