"""What pods are told: the newest news, the most urgent pods first, and nothing twice, late, lost or of a placed pod."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from msgspec.structs import replace

from services.coordinator.core.events import ConditionFailed
from services.coordinator.core.instructions import EmitEvent, PatchCondition
from services.coordinator.core.state import NEVER, CoordinatorState, CoreSettings
from services.coordinator.status.reporter import (
    MAX_BACKOFF_S,
    NOMINATION_TRIES,
    NOMINATIONS_MORE,
    REPEATS_PER_S,
    StatusReporter,
)
from shared.model.pod import Pod
from shared.scheduling.reasons import SCHEDULER_ERROR, UNSCHEDULABLE
from tests.builders import make_pod

FULL = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s)."
FULLER = "0/4 nodes are available: 3 node(s) had untolerated taint(s), 1 Insufficient cpu."
OTHER = "0/3 nodes are available: 3 Insufficient memory."


class Desk:
    """Notices with a clock; ``out`` holds patches that are not answered yet."""

    def __init__(self, *, in_flight: int = 4, repeat_s: float = 60.0) -> None:
        settings = CoreSettings(notices_in_flight=in_flight, notice_repeat_s=repeat_s)
        self.state = CoordinatorState(1, "conclave", "kube-default", settings, Random(0))
        self.state.now = 100.0
        self.notices = StatusReporter(self.state)
        self.out: dict[str, PatchCondition] = {}
        self.sent: list[PatchCondition] = []
        self.events: list[EmitEvent] = []

    def tell(
        self, name: str, message: str = FULL, *, reason: str = UNSCHEDULABLE, nominated: str | None = None,
        after_s: float = 0.0,
    ) -> Pod:  # fmt: skip
        pod = make_pod(name).pod()
        self.notices.tell(pod, reason, message, nominated=nominated, after_s=after_s)
        return pod

    def step(self) -> list[str]:
        """What goes out now, by uid."""
        self.notices.step()
        taken, self.state.out = self.state.out, []
        patches = [one for one in taken if isinstance(one, PatchCondition)]
        self.events += [one for one in taken if isinstance(one, EmitEvent)]
        self.sent += patches
        for patch in patches:
            assert patch.uid not in self.out, "two patches of one pod at once"
            self.out[patch.uid] = patch
        return [patch.uid for patch in patches]

    def written(self, uid: str) -> None:
        del self.out[uid]
        self.notices.written(uid)

    def failed(self, uid: str, **how: bool | float) -> None:
        del self.out[uid]
        self.notices.failed(ConditionFailed(uid, **how))  # type: ignore[arg-type]

    def all_written(self) -> None:
        while self.step() or self.out:
            for uid in list(self.out):
                self.written(uid)

    def wait(self) -> float:
        """Let time pass to when the notices want to be asked again; how long that was."""
        at = self.notices.wake_at()
        assert at is not None
        waited, self.state.now = at - self.state.now, max(at, self.state.now)
        return waited


# --- one newest write per pod ---------------------------------------------------------------------------------------


def test_later_news_replace_those_that_are_not_out_yet() -> None:
    desk = Desk(in_flight=1)
    busy, pod = desk.tell("busy"), desk.tell("p")
    assert desk.step() == [busy.uid]
    desk.tell("p", OTHER)
    desk.tell("p", "newest", nominated="n1")
    desk.written(busy.uid)
    assert desk.step() == [pod.uid]
    assert (desk.out[pod.uid].message, desk.out[pod.uid].nominated) == ("newest", "n1")
    desk.written(pod.uid)
    assert desk.step() == []


def test_news_that_come_while_a_patch_is_out_follow_it() -> None:
    desk = Desk()
    pod = desk.tell("p")
    desk.step()
    desk.tell("p", OTHER)
    desk.tell("p", "newest")
    assert desk.step() == []
    desk.written(pod.uid)
    assert desk.step() == [pod.uid]
    assert desk.out[pod.uid].message == "newest"


def test_news_taken_back_before_they_are_out_are_not_written() -> None:
    desk = Desk()
    pod = desk.tell("p")
    desk.all_written()
    desk.tell("q")
    desk.tell("p", OTHER)
    desk.tell("p", FULL)
    assert desk.step() == [make_pod("q").pod().uid]
    assert len([patch for patch in desk.sent if patch.uid == pod.uid]) == 1


def test_what_the_pod_shows_already_is_not_written() -> None:
    desk = Desk()
    pod = replace(make_pod("p").pod(), condition=("False", UNSCHEDULABLE, FULL))
    desk.notices.tell(pod, UNSCHEDULABLE, FULL)
    assert desk.step() == []


# --- whose turn it is -----------------------------------------------------------------------------------------------


def test_nominations_go_before_first_notices_and_those_before_repeats() -> None:
    desk = Desk(in_flight=1)
    old = desk.tell("old")
    desk.all_written()
    desk.tell("busy")
    desk.step()
    desk.tell("old", OTHER)
    first = desk.tell("first")
    preemptor = desk.tell("preemptor", nominated="n1")
    order = desk.step()
    while desk.out:
        for uid in list(desk.out):
            desk.written(uid)
        order += desk.step()
    assert order == [preemptor.uid, first.uid, old.uid]


def test_a_nomination_does_not_wait_for_room() -> None:
    desk = Desk(in_flight=2)
    for number in range(10):
        desk.tell(f"p{number}")
    assert len(desk.step()) == 2
    pods = [desk.tell(f"preemptor{number}", nominated="n1") for number in range(NOMINATIONS_MORE)]
    assert desk.step() == [pod.uid for pod in pods]


def test_a_pod_told_again_keeps_its_place_in_the_queue() -> None:
    desk = Desk(in_flight=1)
    desk.tell("busy")
    desk.step()
    first, second = desk.tell("a"), desk.tell("b")
    desk.tell("a", OTHER)
    desk.written(next(iter(desk.out)))
    assert desk.step() == [first.uid]
    desk.written(first.uid)
    assert desk.step() == [second.uid]


# --- news -----------------------------------------------------------------------------------------------------------


def test_newer_counts_go_after_a_while_as_what_they_are_then() -> None:
    desk = Desk(repeat_s=60)
    pod = desk.tell("p")
    desk.all_written()
    for number in range(50):
        desk.state.now += 1.0
        desk.tell(
            "p", f"0/{number} nodes are available: {number} Insufficient cpu, 1 node(s) had untolerated taint(s)."
        )
        assert desk.step() == []
    assert desk.wait() == pytest.approx(10.0)
    assert desk.step() == [pod.uid]
    assert desk.out[pod.uid].message.startswith("0/49")


def test_a_new_reason_is_told_at_once() -> None:
    desk = Desk(repeat_s=60)
    pod = desk.tell("p")
    desk.all_written()
    desk.tell("p", OTHER)
    assert desk.step() == [pod.uid]
    desk.written(pod.uid)
    desk.tell("p", OTHER, reason=SCHEDULER_ERROR)
    assert desk.step() == [pod.uid]


def test_the_order_of_reasons_is_no_news() -> None:
    desk = Desk(repeat_s=60)
    desk.tell("p", FULL)
    desk.all_written()
    desk.tell("p", FULLER)
    assert desk.step() == []
    assert desk.notices.wake_at() == desk.state.now + 60


def test_newer_counts_of_very_many_pods_go_at_a_bounded_rate() -> None:
    desk = Desk(in_flight=64, repeat_s=1)
    for number in range(200):
        desk.tell(f"p{number}", FULL)
    desk.all_written()
    desk.state.now += 5
    for number in range(200):
        desk.tell(f"p{number}", FULLER)
    began, written = desk.state.now, len(desk.sent)
    while len(desk.sent) < written + 200:
        for uid in desk.step():
            desk.written(uid)
        if len(desk.sent) < written + 200:
            desk.wait()
    assert desk.state.now - began == pytest.approx(200 / REPEATS_PER_S, rel=0.05)


def test_a_retold_reason_makes_one_event_and_a_new_one_another() -> None:
    desk = Desk(repeat_s=10)
    desk.tell("p")
    desk.tell("p", nominated="n1")
    desk.all_written()
    desk.tell("p", FULLER)
    desk.wait()
    desk.all_written()
    desk.tell("p", OTHER)
    desk.all_written()
    kinds = [event.kind for event in desk.events]
    assert len(kinds) == 3
    assert kinds[0] == kinds[1] != kinds[2]


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_failed_patch_is_made_again_with_the_newest_news_and_others_do_not_wait() -> None:
    desk = Desk()
    pod = desk.tell("p")
    desk.step()
    desk.failed(pod.uid, throttled=True, retry_after_s=7.0)
    desk.tell("p", OTHER)
    other = desk.tell("q")
    assert desk.step() == [other.uid]
    desk.written(other.uid)
    assert desk.wait() == pytest.approx(7.0)
    assert desk.step() == [pod.uid]
    assert desk.out[pod.uid].message == OTHER


def test_a_patch_that_fails_for_ever_is_tried_ever_more_rarely_and_never_given_up() -> None:
    desk = Desk()
    pod = desk.tell("p")
    pauses = []
    for _ in range(12):
        assert desk.step() == [pod.uid]
        desk.failed(pod.uid, refused=True)
        pauses.append(desk.wait())
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_BACKOFF_S
    desk.all_written()
    assert desk.notices.wake_at() == NEVER


def test_a_throttled_api_server_is_asked_less_at_a_time_and_more_again_when_it_answers() -> None:
    desk = Desk(in_flight=8)
    for number in range(40):
        desk.tell(f"p{number}")
    for uid in desk.step():
        desk.failed(uid, throttled=True, retry_after_s=100.0)
    assert len(desk.step()) == 1
    while len(desk.out) != 8:
        desk.written(next(iter(desk.out)))
        desk.step()


def test_a_nomination_is_tried_again_then_given_up_and_the_message_is_still_told() -> None:
    desk = Desk()
    pod = desk.tell("p", nominated="n1")
    for _ in range(NOMINATION_TRIES):
        assert desk.step() == [pod.uid]
        assert desk.out[pod.uid].nominated == "n1"
        desk.failed(pod.uid, throttled=True)
        desk.wait()
    assert desk.step() == [pod.uid]
    assert desk.out[pod.uid].nominated is None


def test_a_refused_nomination_is_given_up_at_once() -> None:
    desk = Desk()
    pod = desk.tell("p", nominated="n1")
    desk.step()
    desk.failed(pod.uid, refused=True)
    desk.wait()
    assert desk.step() == [pod.uid]
    assert desk.out[pod.uid].nominated is None


def test_a_newer_nomination_survives_the_failure_of_the_one_before() -> None:
    desk = Desk()
    pod = desk.tell("p", nominated="n1")
    desk.step()
    desk.tell("p", nominated="n2")
    desk.failed(pod.uid, refused=True)
    desk.wait()
    assert desk.step() == [pod.uid]
    assert desk.out[pod.uid].nominated == "n2"


def test_a_new_nomination_does_not_wait_for_the_backoff_of_an_older_message() -> None:
    desk = Desk()
    pod = desk.tell("p")
    desk.step()
    desk.failed(pod.uid, throttled=True, retry_after_s=30.0)
    desk.tell("p", nominated="n1")
    assert desk.step() == [pod.uid]


@pytest.mark.parametrize("written", [False, True], ids=["waits", "written"])
def test_a_nomination_that_is_over_is_told_to_be_so_only_where_it_was_told(written: bool) -> None:
    desk = Desk()
    pod = desk.tell("p", nominated="n1", after_s=1.0)
    assert desk.step() == []
    if written:
        desk.wait()
        assert desk.step() == [pod.uid]
        desk.written(pod.uid)
    desk.notices.withdraw_nomination(pod)
    assert desk.step() == [pod.uid], "or else what keeps it is told now, as nothing waits for a node"
    assert desk.out[pod.uid].nominated == ("" if written else None)


@pytest.mark.parametrize("refused", [False, True])
def test_a_nomination_that_may_have_been_written_without_an_answer_is_told_to_be_over(*, refused: bool) -> None:
    desk = Desk()
    pod = desk.tell("p", nominated="n1")
    desk.step()
    desk.failed(pod.uid, refused=refused)
    desk.notices.withdraw_nomination(pod)
    desk.wait()
    assert desk.step() == [pod.uid]
    assert desk.out[pod.uid].nominated == (None if refused else "")


def test_a_nomination_taken_back_leaves_the_pause_that_the_api_server_asked_for() -> None:
    desk = Desk()
    pod = desk.tell("p", nominated="n1")
    desk.step()
    desk.failed(pod.uid, refused=True, retry_after_s=7.0)
    desk.tell("p", OTHER)
    desk.notices.withdraw_nomination(pod)
    assert desk.step() == []
    assert desk.wait() == pytest.approx(7.0)


def test_a_status_says_for_good_what_was_told_last_and_nothing_that_is_to_be_taken_back() -> None:
    desk = Desk()
    pod = desk.tell("p", nominated="n1", after_s=1.0)
    told = partial(desk.notices.has_told, pod.uid)
    assert not told("n1"), "it is told later"
    desk.wait()
    desk.step()
    assert told("n1")
    assert not told("n2")
    desk.written(pod.uid)
    assert told("n1")
    desk.notices.clear_nomination(pod)
    assert not told("n1"), "it is to be taken back"
    desk.step()
    desk.tell("p", nominated="n1", after_s=5.0)
    assert not told("n1"), "that is on its way"
    desk.written(pod.uid)
    assert not told("n1"), "the watch may show it still"


def test_a_nomination_on_its_way_that_is_over_is_told_to_be_so_after_it() -> None:
    desk = Desk()
    pod = desk.tell("p", nominated="n1")
    desk.step()
    desk.notices.withdraw_nomination(pod)
    desk.written(pod.uid)
    assert desk.step() == [pod.uid]
    assert desk.out[pod.uid].nominated == ""


def test_a_nomination_to_be_taken_back_is_so_though_another_came_and_went_meanwhile() -> None:
    desk = Desk()
    pod = desk.tell("p", nominated="n1")
    desk.step()
    desk.written(pod.uid)
    desk.notices.clear_nomination(pod)
    desk.tell("p", nominated="n2", after_s=1.0)
    desk.notices.withdraw_nomination(pod)
    assert desk.step() == [pod.uid]
    assert desk.out[pod.uid].nominated == ""


# --- pods that leave ------------------------------------------------------------------------------------------------


def test_what_waits_for_a_pod_that_is_placed_is_taken_back_and_told_when_it_comes_back() -> None:
    desk = Desk(in_flight=1)
    desk.tell("busy")
    desk.step()
    pod = desk.tell("p", nominated="n1")
    desk.notices.placing(pod.uid)
    desk.written(next(iter(desk.out)))
    assert desk.step() == []
    desk.tell("p", OTHER)
    assert desk.step() == []
    desk.notices.unplaced(pod.uid)
    assert desk.step() == [pod.uid]
    assert (desk.out[pod.uid].message, desk.out[pod.uid].nominated) == (OTHER, "n1")


def test_of_a_pod_that_is_bound_or_gone_nothing_is_left() -> None:
    desk = Desk()
    pod = desk.tell("p")
    desk.step()
    desk.tell("p", OTHER)
    desk.notices.forget(pod.uid)
    desk.failed(pod.uid, throttled=True)
    assert desk.step() == []
    assert desk.notices.wake_at() == NEVER
    assert desk.notices.waiting == 0


def test_ten_thousand_pods_told_ten_times_cost_one_patch_each() -> None:
    desk = Desk(in_flight=1)
    for round_ in range(10):
        for number in range(10_000):
            desk.tell(f"p{number}", f"0/{round_} nodes are available: {round_} Insufficient cpu.")
    assert desk.notices.waiting == 10_000
    desk.all_written()
    assert len(desk.sent) == 10_000
