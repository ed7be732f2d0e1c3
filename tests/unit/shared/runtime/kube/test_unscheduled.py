"""A pod is told why it is pending whatever else changes of it, and never once it is bound (ADR 0014)."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import KubeRejected
from shared.ports import BindRequest
from shared.runtime.kube.unscheduled import FIRST, NOTHING, ShownCondition, mark_unscheduled
from tests.builders import make_pod
from tests.fake_kube import AsyncKube, FakeKube


class Scene:
    """One pod ``p0`` at an API server."""

    def __init__(self, *conditions: dict[str, str]) -> None:
        self.server = FakeKube()
        self.kube = AsyncKube(self.server)
        self.uid = self.server.add_pod(make_pod("p0"))
        if conditions:
            self.server.pods["default/p0"]["status"]["conditions"] = list(conditions)

    async def mark(self, message: str = "full", *, shown: ShownCondition = NOTHING, **rest: Any) -> bool:
        named = {"namespace": "default", "name": "p0", "uid": self.uid, "reason": "Unschedulable", **rest}
        return await mark_unscheduled(self.kube, message=message, shown=shown, **named)

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.server.pods["default/p0"]["status"]
        return status

    def bind(self) -> None:
        pod = self.server.pods["default/p0"]["metadata"]
        self.server.bind(BindRequest("default", "p0", pod["uid"], pod["resourceVersion"], "n0"))


async def test_a_fresh_pod_is_told_by_one_request():
    scene = Scene()
    assert await scene.mark()
    [condition] = scene.status["conditions"]
    assert condition.pop("lastTransitionTime")
    assert condition == {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"
    }  # fmt: skip
    assert scene.kube.calls == ["patch"]


async def test_a_pod_told_before_keeps_the_time_of_its_transition():
    scene = Scene()
    await scene.mark("one")
    scene.status["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    assert await scene.mark("two", shown=FIRST)
    [condition] = scene.status["conditions"]
    assert (condition["message"], condition["lastTransitionTime"]) == ("two", "2026-01-01T00:00:00Z")
    assert scene.kube.calls == ["patch", "patch"]


async def test_a_pod_that_others_change_all_the_time_is_told_by_one_request():
    scene = Scene()
    for number in range(5):
        scene.server.touch_pod("p0")
        assert await scene.mark(f"{number}", shown=FIRST if number else NOTHING)
    assert scene.kube.calls == ["patch"] * 5


@pytest.mark.parametrize("shown", [NOTHING, FIRST])
async def test_a_pod_bound_meanwhile_keeps_what_its_binding_says(shown: ShownCondition):
    scene = Scene()
    if shown is FIRST:
        await scene.mark()
    scene.bind()
    before = scene.server.pods["default/p0"]
    assert not await scene.mark("late", shown=shown, nominated="n1")
    assert scene.server.pods["default/p0"] == before


async def test_a_pod_created_anew_under_the_name_is_not_told_of_the_one_before():
    scene = Scene()
    scene.server.remove_pod("p0")
    scene.server.add_pod(make_pod("p0"))
    assert not await scene.mark("late")
    assert "conditions" not in scene.status


async def test_a_pod_that_is_gone_is_nothing_to_fail_for():
    scene = Scene()
    scene.server.remove_pod("p0")
    assert not await scene.mark()


@pytest.mark.parametrize(
    ("conditions", "shown"),
    [
        pytest.param([{"type": "example.com/ready", "status": "True"}], NOTHING, id="only-others"),
        pytest.param(
            [{"type": "example.com/ready", "status": "True"}, {"type": "PodScheduled", "status": "False"}], FIRST,
            id="behind-others",
        ),
        pytest.param([{"type": "PodScheduled", "status": "Unknown"}], FIRST, id="neither-true-nor-false"),
        pytest.param([{"type": "PodScheduled", "status": "False"}], NOTHING, id="told-by-another"),
    ],
)  # fmt: skip
async def test_conditions_that_nobody_expected_are_read_and_kept(
    conditions: list[dict[str, str]], shown: ShownCondition
):
    scene = Scene(*conditions)
    assert await scene.mark("full", shown=shown)
    assert [c["type"] for c in scene.status["conditions"][: len(conditions)]] == [c["type"] for c in conditions]
    [told] = [c for c in scene.status["conditions"] if c["type"] == "PodScheduled"]
    assert (told["status"], told["reason"], told["message"]) == ("False", "Unschedulable", "full")
    assert scene.kube.calls == ["patch", "get", "patch"]


async def test_a_nomination_and_a_message_are_one_patch_and_a_nomination_can_be_taken_back():
    scene = Scene()
    await scene.mark(nominated="n1")
    assert scene.status["nominatedNodeName"] == "n1"
    await scene.mark("again", shown=FIRST)
    assert scene.status["nominatedNodeName"] == "n1"
    await scene.mark("again", shown=FIRST, nominated="")
    assert not scene.status["nominatedNodeName"]


@pytest.mark.parametrize("status", [429, 403])
async def test_other_refusals_are_told_at_once(status: int):
    scene = Scene()
    scene.server.patch_answers = [KubeRejected("no", status=status, retry_after_s=3.0)]
    with pytest.raises(KubeRejected) as caught:
        await scene.mark()
    assert caught.value.retry_after_s == 3.0
    assert scene.kube.calls == ["patch"]


async def test_a_patch_that_is_refused_each_time_ends():
    scene = Scene()
    scene.server.patch_answers = [KubeRejected("conflict", status=409) for _ in range(9)]
    with pytest.raises(KubeRejected):
        await scene.mark()
    assert scene.kube.calls == ["patch", "get"] * 3
