"""What is written on pod groups: by their API, the newest only, and never for ever against another writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from services.coordinator.core.instructions import EmitEvent, TellPodGroup
from services.coordinator.io import group_writes
from services.coordinator.io.group_writes import CONTESTED_TRIES, IN_FLIGHT, GroupWrites, patch_of
from shared.errors import KubeRejected, KubeUnknown
from shared.kube import pod_groups as kube
from shared.model.units.pod_group import GroupSource, PodGroup, group_key

WAITS = ("False", "Unschedulable", "0/3 nodes are available")
DONE = ("True", "Scheduled", "")


def group(
    source: GroupSource = GroupSource.NATIVE, version: str = "v1beta1", name: str = "g", **fields: Any
) -> PodGroup:
    api = {GroupSource.NATIVE: f"scheduling.k8s.io/{version}", GroupSource.PLUGINS: "scheduling.x-k8s.io/v1alpha1"}
    type_ = {"v1beta1": "PodGroupInitiallyScheduled", "v1alpha2": "PodGroupScheduled"}
    condition = (type_[version] if source is GroupSource.NATIVE else "", "", "", "")
    fields = {"condition": condition, "uid": f"uid-{name}", "generation": 2, **fields}
    version_ = api.get(source, "batch/v1")
    return PodGroup(group_key(source, "d", name), source, "d", name, api_version=version_, **fields)


class Server:
    """Takes patches, or answers with the errors it was given; ``hold`` keeps every call until it is let go."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, str, str, dict[str, Any]]] = []
        self.errors: list[Exception] = []
        self.found: kube.NativePodGroup | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_once = self.most_at_once = 0

    async def patch(self, resource: Any, *, name: str, patch: Any, strategy: str, **more: Any) -> None:
        assert more["subresource"] == "status"
        assert more["wait_when_busy"] is False
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.gate.wait()
        self.at_once -= 1
        if self.errors:
            raise self.errors.pop(0)
        self.patches.append((resource.api_version, name, strategy, patch))

    async def get(self, resource: Any, *, namespace: str, name: str) -> kube.NativePodGroup | None:
        return self.found


class Desk:
    """Writes on an event loop, with a clock and a timer of their own."""

    def __init__(self) -> None:
        self.server, self.now = Server(), 1000.0
        self.events: list[EmitEvent] = []
        self.timer: tuple[float, Callable[[], None]] | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.writes = GroupWrites(
            self.server, lambda: self.now, self._start, self.events.append, self._later  # type: ignore[arg-type]
        )  # fmt: skip

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.ensure_future(call))

    def _later(self, after_s: float, call: Callable[[], None]) -> Desk:
        self.timer = (self.now + after_s, call)
        return self

    def cancel(self) -> None:
        self.timer = None

    async def settle(self) -> None:
        """Until nothing runs any more."""
        while self.tasks:
            done, self.tasks = self.tasks, set()
            await asyncio.gather(*done)

    async def wait(self) -> None:
        """Until the timer has gone off and what it began has ended."""
        assert self.timer is not None
        (self.now, call), self.timer = self.timer, None
        call()
        await self.settle()

    async def tell(self, about: PodGroup, condition: tuple[str, str, str]) -> None:
        self.writes.submit(TellPodGroup(about, condition))
        await self.settle()


@pytest.mark.parametrize(
    ("version", "type_"), [("v1alpha2", "PodGroupScheduled"), ("v1beta1", "PodGroupInitiallyScheduled")]
)
async def test_a_native_group_gets_the_condition_of_its_version(version: str, type_: str) -> None:
    desk = Desk()
    await desk.tell(group(version=version), WAITS)
    [(api, name, strategy, patch)] = desk.server.patches
    assert (api, name, strategy) == (f"scheduling.k8s.io/{version}", "g", "strategic")
    [condition] = patch["status"]["conditions"]
    assert condition.pop("lastTransitionTime").endswith("Z")
    assert condition == {
        "type": type_, "status": "False", "reason": "Unschedulable", "message": WAITS[2], "observedGeneration": 2
    }  # fmt: skip
    assert patch["metadata"] == {"uid": "uid-g"}
    [event] = desk.events
    assert (event.type, event.reason, event.regarding[1]) == ("Warning", "FailedScheduling", "PodGroup")


def test_a_status_that_stays_keeps_the_time_of_its_last_transition() -> None:
    known = group(condition=("PodGroupInitiallyScheduled", "False", "SchedulerError", "x"))
    patch = patch_of(TellPodGroup(known, WAITS), "now", known=known)
    assert patch is not None
    assert "lastTransitionTime" not in patch["status"]["conditions"][0]
    turned = patch_of(TellPodGroup(known, DONE), "now", known=known)
    assert turned is not None
    assert turned["status"]["conditions"][0]["lastTransitionTime"] == "now"


async def test_a_condition_that_is_not_there_after_all_is_written_whole() -> None:
    desk = Desk()
    desk.server.errors = [KubeRejected("lastTransitionTime: Required value", status=422)]
    await desk.tell(group(condition=("PodGroupInitiallyScheduled", "False", "SchedulerError", "x")), WAITS)
    assert "lastTransitionTime" in desk.server.patches[0][3]["status"]["conditions"][0]


async def test_scheduled_once_is_never_taken_back_in_v1beta1() -> None:
    desk = Desk()
    for version, writes in (("v1beta1", 0), ("v1alpha2", 1)):
        await desk.tell(group(version=version, name=version, condition=("x", "True", "Scheduled", "")), WAITS)
        assert len(desk.server.patches) == writes
    assert len(desk.events) == 2  # people are told all the same


async def test_what_the_group_says_already_costs_no_write() -> None:
    desk = Desk()
    await desk.tell(group(condition=("PodGroupInitiallyScheduled", *WAITS)), WAITS)
    assert desk.server.patches == []


@pytest.mark.parametrize(
    ("phase", "condition", "written"),
    [
        ("", WAITS, "Pending"),
        ("Pending", WAITS, None),
        ("Pending", DONE, "Scheduled"),
        ("Scheduled", WAITS, "Pending"),
        ("Running", WAITS, None),
        ("Finished", DONE, None),
    ],
)
async def test_a_plugins_group_gets_a_phase_up_to_scheduled(phase: str, condition: Any, written: str | None) -> None:
    desk = Desk()
    await desk.tell(group(GroupSource.PLUGINS, condition=("", phase, "", "")), condition)
    patches = [(strategy, patch["status"]) for _, _, strategy, patch in desk.server.patches]
    assert patches == ([] if written is None else [("merge", {"phase": written})])


async def test_a_job_gets_an_event_alone() -> None:
    desk = Desk()
    await desk.tell(group(GroupSource.JOB), ("False", "InvalidGang", "metadata.annotations[x]: bad"))
    [event] = desk.events
    assert (desk.server.patches, event.reason, event.regarding) == ([], "InvalidGang", ("batch/v1", "Job"))


async def test_numbers_alone_make_no_new_event() -> None:
    desk = Desk()
    await desk.tell(group(), WAITS)
    await desk.tell(group(), ("False", "Unschedulable", "0/4 nodes are available"))
    assert len(desk.server.patches) == 2
    assert len(desk.events) == 1


async def test_the_newest_news_of_a_group_replace_those_that_wait() -> None:
    desk = Desk()
    desk.server.gate.clear()
    desk.writes.submit(TellPodGroup(group(), WAITS))
    await asyncio.sleep(0)
    for number in range(5):
        desk.writes.submit(TellPodGroup(group(), ("False", "Unschedulable", f"try {number}")))
    assert desk.writes.waiting == 2
    desk.server.gate.set()
    await desk.settle()
    assert [p[3]["status"]["conditions"][0]["message"] for p in desk.server.patches] == [WAITS[2], "try 4"]


async def test_a_bounded_number_is_out_at_a_time() -> None:
    desk = Desk()
    desk.server.gate.clear()
    for number in range(3 * IN_FLIGHT):
        desk.writes.submit(TellPodGroup(group(name=f"g{number}"), WAITS))
    await asyncio.sleep(0)
    desk.server.gate.set()
    await desk.settle()
    assert desk.server.most_at_once == IN_FLIGHT
    assert len(desk.server.patches) == 3 * IN_FLIGHT


@pytest.mark.parametrize(
    ("error", "pause_s"),
    [
        (KubeRejected("busy", status=429, retry_after_s=7.0), 7.0),
        (KubeUnknown("no answer"), group_writes.PAUSE_S),
        (KubeUnknown("503", retry_after_s=9.0), 9.0),
    ],
)
async def test_a_busy_or_silent_server_is_left_alone_and_told_later(error: Exception, pause_s: float) -> None:
    desk = Desk()
    desk.server.errors = [error]
    await desk.tell(group(), WAITS)
    await desk.tell(group(name="h"), WAITS)
    assert desk.server.patches == []
    assert desk.timer is not None
    assert desk.timer[0] == pytest.approx(1000.0 + pause_s)
    await desk.wait()
    assert sorted(name for _, name, _, _ in desk.server.patches) == ["g", "h"]


async def test_a_refusal_is_the_end_of_it_and_others_go_on() -> None:
    desk = Desk()
    desk.server.errors = [KubeRejected("gone", status=404)]
    await desk.tell(group(), WAITS)
    await desk.tell(group(name="h"), WAITS)
    assert [name for _, name, _, _ in desk.server.patches] == ["h"]
    assert desk.writes.waiting == 0


def shown(uid: str = "uid-g", status: str = "") -> kube.NativePodGroup:
    """The group as the API server has it."""
    said = [{"type": "PodGroupInitiallyScheduled", "status": status, "reason": "x", "message": "y"}] if status else []
    meta = {"name": "g", "namespace": "d", "uid": uid, "generation": 3}
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"conditions": said}}, kube.PodGroupV1beta1)


async def test_a_conflict_is_read_and_written_again() -> None:
    desk = Desk()
    desk.server.errors, desk.server.found = [KubeRejected("changed", status=409)], shown(status="False")
    await desk.tell(group(), WAITS)
    assert desk.server.patches == []
    await desk.wait()
    [condition] = desk.server.patches[0][3]["status"]["conditions"]
    assert (condition["message"], condition["observedGeneration"]) == (WAITS[2], 3)
    assert "lastTransitionTime" not in condition  # it says False already


@pytest.mark.parametrize("found", [None, shown(uid="uid-anew"), shown(status="True")])
async def test_a_conflict_with_what_is_gone_made_anew_or_done_is_the_end_of_it(
    found: kube.NativePodGroup | None,
) -> None:
    desk = Desk()
    desk.server.errors, desk.server.found = [KubeRejected("changed", status=409)], found
    await desk.tell(group(), WAITS)
    assert (desk.server.patches, desk.writes.waiting) == ([], 0)


async def test_what_is_forbidden_is_tried_again_slowly_and_said_once() -> None:
    desk = Desk()
    desk.server.errors = [KubeRejected("no right", status=403)] * 4
    with capture_logs() as lines:
        await desk.tell(group(), WAITS)
        await desk.tell(group(name="h"), WAITS)
        assert desk.timer is not None
        assert desk.timer[0] == pytest.approx(1000.0 + group_writes.FORBIDDEN_S)
        await desk.wait()
        await desk.wait()
    assert [line["event"] for line in lines] == ["pod_group_status_forbidden"]
    assert sorted(name for _, name, _, _ in desk.server.patches) == ["g", "h"]


async def rounds_against_another_writer(desk: Desk) -> int:
    """Somebody takes our condition away again and again; how often it is written."""
    for _ in range(50):
        await desk.tell(group(), WAITS)
        desk.now += 1.0
    while desk.timer is not None:
        await desk.wait()
        await desk.tell(group(), WAITS)
    return len(desk.server.patches)


async def test_it_does_not_fight_another_writer_for_ever() -> None:
    desk = Desk()
    assert await rounds_against_another_writer(desk) == CONTESTED_TRIES
    await desk.tell(group(), DONE)
    assert len(desk.server.patches) == CONTESTED_TRIES + 1


async def test_what_is_contested_rests_once_however_often_it_is_told() -> None:
    desk = Desk()
    for _ in range(100):
        await desk.tell(group(), WAITS)
    assert len(desk.writes._rests) == 1
    await desk.tell(group(), DONE)  # other news do not rest
    assert len(desk.server.patches) == 2
    assert desk.writes.waiting == 0


async def test_a_group_that_is_made_anew_under_its_name_is_told_at_once() -> None:
    desk = Desk()
    await desk.tell(group(), WAITS)
    await desk.tell(group(uid="uid-anew"), WAITS)
    assert len(desk.server.patches) == 2
    assert len(desk.events) == 2


async def test_without_the_pause_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation of the test above."""
    monkeypatch.setattr(GroupWrites, "_note", lambda self, work: None)
    desk = Desk()
    for _ in range(50):
        await desk.tell(group(), WAITS)
    assert len(desk.server.patches) == 50


async def test_a_closed_desk_writes_nothing() -> None:
    desk = Desk()
    desk.writes.close()
    await desk.tell(group(), WAITS)
    assert desk.server.patches == []


def test_a_job_never_has_a_patch() -> None:
    assert patch_of(TellPodGroup(replace(group(GroupSource.JOB), uid=""), WAITS), "now") is None
