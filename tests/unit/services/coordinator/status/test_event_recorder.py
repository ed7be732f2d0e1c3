"""Every event is written, continued or counted with its like; urgent ones first, none faster than the rate."""

from __future__ import annotations

from services.coordinator.core.instructions import EmitEvent
from services.coordinator.status.event_recorder import (
    CAPACITY,
    COMBINE_S,
    CROWDED_S,
    EVENTS_BURST,
    EVENTS_PER_S,
    HELD_BACK,
    REFRESH_S,
    SERIES_KEPT,
    TRIES,
    EventRecorder,
    EventSeries,
)


def failed_scheduling(pod: str, kind: str = "cpu", note: str = "0/3 nodes") -> EmitEvent:
    return EmitEvent(
        f"uid-{pod}", "default", pod, "1", "Warning", "FailedScheduling", "Scheduling", note, kind=frozenset({kind})
    )  # fmt: skip


def scheduled(pod: str, namespace: str = "default") -> EmitEvent:
    return EmitEvent(f"uid-{pod}", namespace, pod, "", "Normal", "Scheduled", "Binding", f"assigned {pod}")


def write_all(recorder: EventRecorder, now: float) -> list[EventSeries]:
    """Everything that may be written at this time, at once."""
    written = []
    while (series := recorder.next(now)) is not None:
        recorder.written(series, now)
        written.append(series)
    return written


def test_every_bound_pod_gets_its_own_event_at_a_bounded_rate() -> None:
    recorder, now, written = EventRecorder(), 1000.0, []
    for number in range(1000):
        assert recorder.add(scheduled(f"p{number}"), now)
    while recorder.waiting:
        written += write_all(recorder, now)
        at = recorder.wake_at()
        now = at if at is not None else now
    assert len({series.event.uid for series in written}) == 1000
    assert now - 1000.0 >= (1000 - EVENTS_BURST) / EVENTS_PER_S - 0.02
    assert recorder.combined == recorder.lost == 0


def written_until(recorder: EventRecorder, start: float, end: float, *, crowded: bool) -> list[tuple[float, str]]:
    """When each event is written, and of which reason, if what may be is written at once and waited for otherwise."""
    now, written = start, []
    while now <= end:
        while (series := recorder.next(now, lambda: crowded)) is not None:
            recorder.written(series, now)
            written.append((now, series.event.reason))
        at = recorder.wake_at()
        if at is None:
            break
        assert at > now, "who waits is woken when there is something to do, and not before"
        now = at
    return written


def test_while_bindings_crowd_a_tenth_of_the_events_of_bound_pods_are_written_and_the_rest_after_them() -> None:
    recorder = EventRecorder()
    for number in range(500):
        recorder.add(scheduled(f"p{number}"), 1000.0)
    crowded = written_until(recorder, 1000.0, 1010.0 + CROWDED_S / 2, crowded=True)
    assert len(crowded) == 1 + 10 * EVENTS_PER_S // 10
    after = written_until(recorder, 1010.0 + CROWDED_S, 2000.0, crowded=False)
    assert len(crowded) + len(after) == 500
    assert after[-1][0] - after[0][0] <= (500 - EVENTS_BURST) / EVENTS_PER_S


def test_bindings_that_crowd_for_ever_hold_back_so_many_events_and_have_none_combined() -> None:
    recorder, now = EventRecorder(), 1000.0
    for number in range(3 * CAPACITY):
        now += 1.6 / EVENTS_PER_S
        assert recorder.add(scheduled(f"p{number}"), now)
        while (series := recorder.next(now, lambda: True)) is not None:
            recorder.written(series, now)
    assert recorder.combined == recorder.lost == 0
    assert HELD_BACK <= recorder.waiting <= HELD_BACK + EVENTS_PER_S * CROWDED_S


def test_events_of_pending_pods_and_victims_wait_for_no_bindings() -> None:
    recorder = EventRecorder()
    for number in range(20):
        recorder.add(scheduled(f"a{number}"), 1000.0)
        recorder.add(failed_scheduling(f"b{number}"), 1000.0)
    at_once = written_until(recorder, 1000.0, 1000.0, crowded=True)
    assert [reason for _, reason in at_once] == ["FailedScheduling"] * 20 + ["Scheduled"]


def test_pending_pods_and_victims_go_before_bound_pods() -> None:
    recorder = EventRecorder()
    preempted = EmitEvent("uid-v", "default", "v", "", "Normal", "Preempted", "Preempting", "by p")
    for event in (scheduled("a"), failed_scheduling("b"), preempted):
        recorder.add(event, 1000.0)
    assert [s.event.reason for s in write_all(recorder, 1000.0)] == ["FailedScheduling", "Preempted", "Scheduled"]


def test_the_same_again_is_a_series_and_not_another_event() -> None:
    recorder = EventRecorder()
    recorder.add(failed_scheduling("p"), 1000.0)
    [first] = write_all(recorder, 1000.0)
    recorder.add(failed_scheduling("p", note="0/4 nodes"), 1010.0)
    [again] = write_all(recorder, 1010.0)
    assert again is first
    assert (again.count, again.last_at, again.event.note) == (2, 1010.0, "0/3 nodes")


def test_a_series_that_goes_on_is_written_now_and_then_with_nothing_lost() -> None:
    recorder, writes = EventRecorder(), []
    for number in range(100):
        recorder.add(failed_scheduling("p"), 1000.0 + 30 * number)
        writes += [series.count for series in write_all(recorder, 1000.0 + 30 * number)]
    assert writes == [1, 2, 22, 42, 62, 82]
    assert REFRESH_S == 20 * 30


def test_another_reason_of_the_pod_is_another_event() -> None:
    recorder = EventRecorder()
    recorder.add(failed_scheduling("p"), 1000.0)
    recorder.add(failed_scheduling("p", kind="memory"), 1000.0)
    recorder.add(failed_scheduling("q"), 1000.0)
    assert len(write_all(recorder, 1000.0)) == 3


def test_the_same_again_before_it_is_written_is_one_write() -> None:
    recorder = EventRecorder()
    for second in range(5):
        recorder.add(failed_scheduling("p"), 1000.0 + second)
    [series] = write_all(recorder, 1005.0)
    assert (series.count, series.first_at, series.last_at) == (5, 1000.0, 1004.0)


def test_the_same_again_while_it_is_out_follows_it() -> None:
    recorder = EventRecorder()
    recorder.add(failed_scheduling("p"), 1000.0)
    series = recorder.next(1000.0)
    assert series is not None
    recorder.add(failed_scheduling("p"), 1001.0)
    assert recorder.next(1001.0) is None
    recorder.written(series, 1002.0)
    assert [s.count for s in write_all(recorder, 1002.0)] == [2]


def test_only_what_there_is_no_room_for_is_combined_and_counted() -> None:
    recorder, now = EventRecorder(), 1000.0
    for number in range(CAPACITY):
        assert recorder.add(scheduled(f"p{number}"), now)
    for number in range(30):
        assert not recorder.add(scheduled(f"late{number}", f"ns{number % 2}"), now)
    assert recorder.combined == 30
    now += COMBINE_S
    combined = [series for series in write_all(recorder, now) if "combined" in series.event.note]
    assert [series.event.namespace for series in combined] == ["ns0", "ns1"]
    assert all("of 15 pods" in series.event.note for series in combined)


def test_an_event_that_fails_is_written_later_and_all_wait_as_long_as_the_server_asks() -> None:
    recorder = EventRecorder()
    recorder.add(scheduled("a"), 1000.0)
    recorder.add(scheduled("b"), 1000.0)
    series = recorder.next(1000.0)
    assert series is not None
    recorder.failed(series, 1000.0, retry_after_s=9.0)
    assert recorder.next(1008.0) is None
    assert recorder.wake_at() == 1009.0
    assert {s.event.name for s in write_all(recorder, 1009.0)} == {"a", "b"}


def test_an_event_that_always_fails_is_lost_at_last_and_counted() -> None:
    recorder, now = EventRecorder(), 1000.0
    recorder.add(scheduled("a"), now)
    for _ in range(TRIES):
        series = recorder.next(now)
        assert series is not None
        recorder.failed(series, now)
        now += 100.0
    assert recorder.next(now) is None
    assert (recorder.lost, recorder.waiting) == (1, 0)


def test_a_refused_event_is_lost_at_once_and_holds_nobody_up() -> None:
    recorder = EventRecorder()
    recorder.add(scheduled("a"), 1000.0)
    recorder.add(scheduled("b"), 1000.0)
    series = recorder.next(1000.0)
    assert series is not None
    recorder.failed(series, 1000.0, refused=True)
    assert [s.event.name for s in write_all(recorder, 1000.0)] == ["b"]
    assert recorder.lost == 1


def test_an_event_that_lived_out_its_time_is_created_anew_with_its_count() -> None:
    recorder = EventRecorder()
    recorder.add(failed_scheduling("p"), 1000.0)
    [series] = write_all(recorder, 1000.0)
    series.name = "p.1"
    recorder.add(failed_scheduling("p"), 9000.0)
    again = recorder.next(9000.0)
    assert again is series
    recorder.vanished(series)
    [anew] = write_all(recorder, 9000.0)
    assert (anew.name, anew.count) == ("", 2)


def test_what_is_remembered_of_written_events_is_bounded() -> None:
    recorder, now = EventRecorder(), 1000.0
    for number in range(SERIES_KEPT + 500):
        now += 1.0
        recorder.add(failed_scheduling(f"p{number}"), now)
        write_all(recorder, now)
    recorder.add(failed_scheduling("p0"), now)
    recorder.add(failed_scheduling(f"p{SERIES_KEPT}"), now)
    assert [series.count for series in write_all(recorder, now + 1)] == [1, 2]


def test_two_combined_events_that_begin_with_the_same_pod_are_out_at_the_same_time() -> None:
    recorder = EventRecorder()

    def seen(uid: str, kind: str) -> EmitEvent:
        kinds = frozenset({kind})
        return EmitEvent(uid, "default", uid, "1", "Warning", "FailedScheduling", "Scheduling", "no node", kind=kinds)

    for number in range(CAPACITY):
        recorder.add(seen(f"uid-{number}", "full"), 0.0)
    out = []
    for turn, kind in enumerate(("cpu", "memory")):
        assert not recorder.add(seen("uid-x", kind), turn * COMBINE_S)
        out.append(recorder.next((turn + 1) * COMBINE_S))
    assert [series is not None and series.event.uid for series in out] == ["uid-x", "uid-x"]
    for series in out:
        assert series is not None
        recorder.written(series, 20.0)
    assert recorder.waiting == CAPACITY
