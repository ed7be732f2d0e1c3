"""Each checker of the six watch promises is seen to fail on the history that it is there for."""

from shared.ports import KeyValue, StoreEvent, WatchBatch
from tests.faults.watch_checks import (
    check_atomic,
    check_bookmarkable,
    check_ordered,
    check_reliable,
    check_resumable,
    check_unique,
)


def batch(*events, revision=None):
    made = tuple(StoreEvent(KeyValue(key, b"", mod, mod)) for key, mod in events)
    return WatchBatch(made, revision if revision is not None else max((mod for _, mod in events), default=0))


GOOD = [batch(("a", 2), ("b", 2)), batch(("a", 3)), batch(revision=9)]
WRITTEN = {2: {"a", "b"}, 3: {"a"}}


def test_a_good_history_passes_all_six():
    assert check_ordered(GOOD) == []
    assert check_unique(GOOD) == []
    assert check_atomic(GOOD) == []
    assert check_reliable(GOOD, WRITTEN) == []
    assert check_bookmarkable(GOOD, WRITTEN) == []
    assert check_resumable(GOOD[:1], GOOD[1:], WRITTEN) == []


def test_events_out_of_order_are_found():
    assert check_ordered([batch(("a", 3)), batch(("a", 2))])


def test_a_batch_behind_its_own_events_is_found():
    assert check_ordered([batch(("a", 3), revision=2)])


def test_a_repeated_event_is_found():
    assert check_unique([batch(("a", 2)), batch(("a", 2))])


def test_a_split_revision_is_found():
    assert check_atomic([batch(("a", 2)), batch(("b", 2))])


def test_a_missing_and_an_invented_event_are_found():
    assert len(check_reliable([batch(("a", 2), ("c", 2))], {2: {"a", "b"}, 3: {"a"}})) == 2


def test_a_gap_at_the_seam_of_two_watches_is_found():
    assert check_resumable(GOOD[:1], GOOD[2:], WRITTEN)


def test_a_bookmark_that_ran_ahead_is_found():
    assert check_bookmarkable([batch(revision=3), *GOOD], WRITTEN)
