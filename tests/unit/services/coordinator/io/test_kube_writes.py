"""Conditions, lookups and events over an API server in memory: each answer of it becomes the event that it means."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from services.coordinator.core.events import ConditionFailed, ConditionWritten, Event, PodFetched
from services.coordinator.core.instructions import EmitEvent, FetchPod, PatchCondition
from services.coordinator.io.kube_writes import KubeWrites
from services.coordinator.status.event_recorder import EVENTS_BURST
from shared.errors import KubeError, KubeRejected, KubeUnknown
from shared.ports import BindRequest
from tests.builders import make_pod
from tests.fake_kube import AsyncKube, FakeKube, at_once


class Timer:
    def cancel(self) -> None:
        return None


class Desk:
    """Writes whose calls are carried out at once; time stands still unless told."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, None]], None] = at_once) -> None:
        self.server = FakeKube()
        self.kube = AsyncKube(self.server)
        self.heard: list[Event] = []
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.crowded = False
        self.writes = KubeWrites(
            self.kube, self.heard.append, controller="conclave", instance="c0", clock=lambda: self.now, start=run,
            may_act=lambda: True, crowded=lambda: self.crowded, call_later=self._later,
        )  # fmt: skip
        self.uid = self.server.add_pod(make_pod("p0"))

    def _later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers = [(self.now + delay_s, call)]
        return Timer()

    def wait(self) -> None:
        """The next timer is due."""
        [(self.now, call)], self.timers = self.timers, []
        call()

    def patch(self, message: str = "full", nominated: str | None = None) -> None:
        self.writes.submit(
            PatchCondition(self.uid, "default", "p0", "Unschedulable", message, nominated=nominated)
        )  # fmt: skip

    def event(self, note: str = "full", *, reason: str = "FailedScheduling") -> None:
        kind = "Normal" if reason == "Scheduled" else "Warning"
        self.writes.submit(EmitEvent(self.uid, "default", "p0", "1", kind, reason, "Scheduling", note, "7-1"))


def test_a_condition_that_is_written_is_answered_so_and_its_nomination_goes_with_it() -> None:
    desk = Desk()
    desk.patch(nominated="n1")
    assert desk.heard == [ConditionWritten(desk.uid)]
    status = desk.server.pods["default/p0"]["status"]
    assert (status["nominatedNodeName"], status["conditions"][0]["message"]) == ("n1", "full")


def test_of_a_bound_pod_nothing_is_written() -> None:
    desk = Desk()
    pod = desk.server.pods["default/p0"]["metadata"]
    desk.server.bind(BindRequest("default", "p0", desk.uid, pod["resourceVersion"], "n0"))
    desk.patch(nominated="n1")
    assert desk.heard == [ConditionWritten(desk.uid)]
    assert desk.server.pods["default/p0"]["status"]["conditions"] == [{"type": "PodScheduled", "status": "True"}]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            KubeRejected("busy", status=429, retry_after_s=5.0), {"throttled": True, "retry_after_s": 5.0}, id="429"
        ),
        pytest.param(KubeRejected("busy", status=429), {"throttled": True}, id="429-without-a-time"),
        pytest.param(KubeRejected("no", status=403), {"refused": True}, id="403"),
        pytest.param(KubeUnknown("silence"), {"throttled": True}, id="time-out"),
        pytest.param(
            KubeUnknown("503", retry_after_s=2.0), {"throttled": True, "retry_after_s": 2.0}, id="503-with-a-time"
        ),
    ],
)
def test_a_condition_that_fails_is_answered_by_why(error: KubeError, expected: dict[str, Any]) -> None:
    desk = Desk()
    desk.server.patch_answers = [error]
    desk.patch()
    assert desk.heard == [ConditionFailed(desk.uid, **expected)]


def test_a_condition_that_others_keep_changing_is_neither_refused_nor_throttled() -> None:
    desk = Desk()
    desk.server.patch_answers = [KubeRejected("conflict", status=409) for _ in range(3)]
    desk.patch()
    assert desk.heard == [ConditionFailed(desk.uid)]


def test_a_lookup_tells_a_pod_from_another_of_its_name() -> None:
    desk = Desk()
    desk.writes.submit(FetchPod("another-uid", "default", "p0"))
    desk.kube.faults["get"] = ["drop_reply"]
    desk.writes.submit(FetchPod(desk.uid, "default", "p0"))
    desk.writes.submit(FetchPod(desk.uid, "default", "p0"))
    assert desk.heard[:2] == [PodFetched("another-uid", None), PodFetched(desk.uid, None, failed=True)]
    assert isinstance(desk.heard[2], PodFetched)
    assert desk.heard[2].pod is not None


def test_the_same_event_again_continues_the_series_of_the_first() -> None:
    desk = Desk()
    for _ in range(3):
        desk.event()
    [event] = desk.kube.events
    assert (event["reason"], event["regarding"]["name"], event["note"]) == ("FailedScheduling", "p0", "full")
    assert event["metadata"]["annotations"] == {"conclave.io/cause-id": "7-1"}
    assert event["series"]["count"] == 2
    assert event["series"]["lastObservedTime"] >= event["eventTime"]


def test_a_created_event_whose_answer_was_lost_is_not_created_twice() -> None:
    desk = Desk()
    desk.kube.faults["create"] = ["drop_reply"]
    desk.event()
    desk.wait()
    assert len(desk.kube.events) == 1
    assert desk.writes.recorder.waiting == desk.writes.recorder.lost == 0


def test_an_event_that_expired_is_created_anew() -> None:
    desk = Desk()
    desk.event()
    desk.kube.events.clear()
    desk.event()
    [event] = desk.kube.events
    assert event["series"]["count"] == 2


def test_events_beyond_the_burst_are_written_when_their_time_comes() -> None:
    desk = Desk()
    for number in range(EVENTS_BURST + 5):
        desk.event(f"assigned {number}", reason=f"R{number}")
    assert len(desk.kube.events) == EVENTS_BURST
    while desk.timers:
        desk.wait()
    assert len(desk.kube.events) == EVENTS_BURST + 5


def test_events_of_bound_pods_wait_while_many_bindings_are_under_way() -> None:
    desk = Desk()
    desk.crowded = True
    for number in range(5):
        desk.writes.submit(
            EmitEvent(f"uid-{number}", "default", f"p{number}", "1", "Normal", "Scheduled", "Binding", "assigned")
        )
    assert len(desk.kube.events) == 1
    desk.crowded = False
    desk.wait()
    assert len(desk.kube.events) == 5


def test_after_the_term_no_event_is_written() -> None:
    desk = Desk()
    desk.writes.close()
    desk.event()
    assert desk.kube.events == []
