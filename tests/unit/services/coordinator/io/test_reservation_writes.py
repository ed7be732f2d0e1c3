"""What is told of a Reservation that could not be made."""

from __future__ import annotations

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from services.coordinator.core.instructions import KeepRoom
from services.coordinator.io.reservation_writes import ReservationWrites
from shared.errors import KubeError, KubeRejected, KubeUnknown
from shared.ports import KubeApi

GOING = "unable to create new content in namespace n because it is being terminated"


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (KubeUnknown("no answer"), "warning"),
        (KubeRejected("reservations.conclave.io is forbidden", status=403), "warning"),
        (KubeRejected(GOING, status=403), "debug"),
        (KubeRejected("it is there", status=409), "debug"),
    ],
)
async def test_nobody_is_called_for_room_in_a_namespace_that_goes(error: KubeError, level: str) -> None:
    class Refusing:
        async def get(self, *_: Any, **__: Any) -> None:
            """The pod is gone by then."""

        async def create(self, *_: Any, **__: Any) -> None:
            raise error

    writes = ReservationWrites(cast("KubeApi", Refusing()), may_act=lambda: True, reached=lambda _: None)
    with capture_logs() as logs:
        await writes.reserve(KeepRoom("n", "r", {}, {}))
    assert [(line["event"], line["log_level"]) for line in logs] == [("room_not_kept", level)]
