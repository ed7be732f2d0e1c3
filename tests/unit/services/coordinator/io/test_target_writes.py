"""Statuses of LatencyTargets are written as merge patches; what fails is left to the next look, without a loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from services.coordinator.io.target_writes import REFUSED_S, keep
from services.coordinator.usage.target_status import TellTarget
from shared.errors import KubeRejected, KubeUnknown
from tests.patience import PATIENCE_S


class Api:
    """Takes patches, or answers with an error."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.patches: list[dict[str, Any]] = []
        self.came = asyncio.Event()

    async def patch(self, resource: Any, **call: Any) -> None:
        self.patches.append(call)
        self.came.set()
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error


async def kept(api: Api, *, looks: int, clock: list[float], uids: tuple[str, ...] = ("u1",)) -> int:
    """Look so many times; how often it was asked what is due."""
    asked, enough = 0, asyncio.Event()

    def due(now_s: float, now: str) -> list[TellTarget]:
        nonlocal asked
        asked += 1
        assert now.endswith("Z")
        return [TellTarget("shop", uid, {"nodesMeasuring": 1}) for uid in uids]

    def time() -> float:
        clock[0] += 1.0
        if clock[0] >= looks:
            enough.set()
        return clock[0]

    task = asyncio.create_task(keep(api, due, clock=time, every_s=0.0))  # type: ignore[arg-type]
    async with asyncio.timeout(PATIENCE_S):
        await enough.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return asked


async def test_a_status_is_a_merge_patch_of_the_object_it_was_made_for() -> None:
    api = Api()
    await kept(api, looks=2, clock=[0.0])
    call = api.patches[0]
    assert (call["name"], call["subresource"], call["strategy"]) == ("shop", "status", "merge")
    assert call["patch"] == {"metadata": {"uid": "u1"}, "status": {"nodesMeasuring": 1}}


async def test_a_write_that_fails_ends_nothing() -> None:
    api = Api(KubeUnknown("no answer"), KubeRejected("gone", status=404))
    assert await kept(api, looks=20, clock=[0.0]) > 2


async def test_where_the_role_may_not_write_it_is_tried_rarely() -> None:
    api = Api(*[KubeRejected("forbidden", status=403)] * 100)
    assert await kept(api, looks=int(REFUSED_S) + 20, clock=[0.0]) == 2


async def test_where_the_definition_has_no_status_yet_it_is_tried_rarely() -> None:
    api = Api(*[KubeRejected("not found", status=404)] * 100)
    assert await kept(api, looks=int(REFUSED_S) + 20, clock=[0.0], uids=("u1", "u2")) == 3


async def test_objects_that_were_deleted_meanwhile_keep_no_other_from_being_told() -> None:
    api = Api(*[KubeRejected("not found", status=404), None] * 100)
    assert await kept(api, looks=40, clock=[0.0], uids=("u1", "u2")) > 10
