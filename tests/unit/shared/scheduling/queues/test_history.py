"""Past use is halved by its half-life, exactly and the same everywhere."""

from __future__ import annotations

import pytest

from shared.scheduling.queues.history import SCALE, UsageHistory, decayed, remaining
from shared.wire.records import QueueHistoryRecord, decode_record, encode_record
from tests.unit.shared.scheduling.queues.queue_trees import World, queue


@pytest.mark.parametrize(("elapsed_s", "expected"), [(0, 1.0), (10, 0.5), (20, 0.25), (5, 0.5**0.5), (35, 0.5**3.5)])
def test_what_remains_is_a_power_of_two(elapsed_s, expected):
    assert remaining(elapsed_s, 10.0) / 2**64 == pytest.approx(expected, abs=1e-9)


def test_after_very_long_nothing_remains():
    assert remaining(1e9, 1.0) == 0


def test_a_use_that_stays_becomes_the_past():
    world = World(queue("a", half_life_s=64.0), cpu=100)
    world.run("a", cpu=40)
    for second in range(0, 2000, 2):
        world.tree.advance(float(second))
    assert world.tree.history.past["a"]["cpu"] == pytest.approx(40 * SCALE, rel=1e-3)


def test_a_use_that_ended_a_half_life_ago_counts_half():
    world = World(queue("a", half_life_s=64.0), cpu=100)
    world.tree.history.load({"a": {"cpu": 40 * SCALE}}, 0.0)
    for second in range(65):
        world.tree.advance(float(second))
    assert world.tree.history.past["a"]["cpu"] == pytest.approx(20 * SCALE, rel=1e-3)


def test_between_two_steps_nothing_moves():
    world = World(queue("a", half_life_s=6400.0), cpu=100)
    world.run("a", cpu=40)
    world.tree.advance(0.0)
    world.tree.advance(99.0)
    assert world.tree.history.past == {}
    world.tree.advance(100.0)
    assert world.tree.history.past["a"]["cpu"] > 0


def test_a_queue_that_is_made_anew_has_no_past():
    world = World(queue("a", half_life_s=64.0), cpu=100)
    world.tree.history.load({"a": {"cpu": 40 * SCALE}}, 0.0)
    world.tree.drop_queue("a")
    world.tree.advance(64.0)
    world.tree.put_queue(queue("a", half_life_s=64.0))
    world.run("a", cpu=40)
    world.tree.advance(6400.0)  # not as if it had used that all the time
    assert world.tree.history.past == {}


def test_past_use_is_kept_over_a_restart():
    before = World(queue("a", half_life_s=100.0), cpu=100)
    before.run("a", cpu=50)
    before.tree.advance(0.0)
    before.tree.advance(500.0)
    kept = before.tree.history.past
    after = World(queue("a", half_life_s=100.0), queue("b"), cpu=100)
    after.tree.history.load({name: decayed(amounts, 100.0, 100.0) for name, amounts in kept.items()}, 7.0)
    after.wait("a", cpu=1)
    [key] = after.wait("b", cpu=1)
    assert after.next() == key
    assert after.tree.history.past["a"]["cpu"] == pytest.approx(kept["a"]["cpu"] / 2, rel=1e-3)


def test_a_queue_that_gives_up_its_half_life_forgets():
    world = World(queue("a", half_life_s=10.0), cpu=100)
    world.tree.history.load({"a": {"cpu": 5000}}, 0.0)
    world.tree.put_queue(queue("a"))
    world.tree.advance(100.0)
    assert world.tree.history.past == {}


def test_history_without_queues_is_empty():
    assert UsageHistory().past == {}


def test_a_record_is_read_as_it_was_written_and_fades_in_between():
    history = UsageHistory()
    history.load({"a": {"memory": 2**60}, "b": {"cpu": 1000}}, 0.0)
    value = encode_record(history.record(7, 1_000))
    record = decode_record(value, QueueHistoryRecord)
    assert record == QueueHistoryRecord(time=1_000, past={"a": {"memory": 2**60}, "b": {"cpu": 1000}}, term=7)
    after = UsageHistory()
    after.resume(record, {"a": 50.0}, 1_100, 3.0)
    assert after.past == {"a": {"memory": 2**58}}


def test_a_record_from_the_future_does_not_grow():
    after = UsageHistory()
    after.resume(QueueHistoryRecord(time=2_000, past={"a": {"cpu": 8}}), {"a": 50.0}, 1_000, 3.0)
    assert after.past == {"a": {"cpu": 8}}
