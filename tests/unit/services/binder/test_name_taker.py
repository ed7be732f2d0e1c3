"""That a Reservation cannot be written holds up no Binding."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, cast

import pytest
import structlog

from services.binder.core.events import BindingAccepted, Event
from services.binder.core.instructions import Bind
from services.binder.io.api_calls import ApiCalls
from shared.errors import KubeError, KubeRejected, KubeUnknown
from shared.ports import BindRequest
from shared.runtime.observe.metrics import ReservoirQuantiles
from shared.runtime.process.failpoints import Failpoints
from tests.unit.services.binder.binder_world import AlwaysValid


@pytest.mark.parametrize("error", [KubeUnknown("500: failed calling webhook"), KubeRejected("gone", status=404)])
async def test_a_taker_that_cannot_be_named_is_bound_all_the_same(error: KubeError) -> None:
    heard: list[Event] = []
    sent: list[str] = []

    class Api:
        async def patch(self, *_: Any, **__: Any) -> None:
            raise error

        async def bind(self, request: BindRequest, **_: Any) -> None:
            sent.append(request.name)

    def post(events: Iterable[Event]) -> None:
        heard.extend(events)

    log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    calls = ApiCalls(
        cast("Any", Api()), post, leadership=AlwaysValid(), failpoints=Failpoints(), bind_timeout_s=5.0,
        bind_ms=ReservoirQuantiles(), bind_seconds=None, log=log,
    )  # fmt: skip
    request = BindRequest("default", "p", "u", "1", "n1", {})
    await calls.bind(Bind(1, request, "c", room=("default", "r", "ru")))
    assert sent == ["p"]
    assert heard == [BindingAccepted("u", 1)]
