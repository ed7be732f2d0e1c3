"""A plan for a binder of our own process is handed over by a call, and fails as it would over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from services.coordinator.core.events import Event, PlanAnswered, PlanFailed
from services.coordinator.core.instructions import SendPlan
from services.coordinator.io.peers import Binder, Peers
from shared.errors import LeadershipLost, StoreUnknown
from shared.runtime.http.refusals import RequestRefused
from shared.wire.messages import VERSION, Plan, PlanResult

OURS, ANOTHERS = "http://127.0.0.1:1", "http://127.0.0.1:2"
PLAN = Plan(VERSION, 1, 0, 7, 3, [])
RESULT = PlanResult(VERSION, 1, 1, 7, 3, [])


class Sent:
    """A client that notes to whom something was sent."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    async def call(self, url: str, *_: Any, **__: Any) -> bytes:
        self.urls.append(url)
        raise LookupError("sent")


async def plan(binder: Binder, url: str = OURS) -> tuple[list[Event], Sent]:
    posted: list[Event] = []
    client: Any = Sent()
    peers = Peers(client, lambda: 0.0, posted.append, timeout_s=lambda: 1.0, near=(OURS, binder))
    await peers.plan(SendPlan(url, PLAN))
    return posted, client


async def answers(_: Plan) -> PlanResult:
    return RESULT


async def test_it_is_handed_over_and_answered_without_a_message() -> None:
    posted, client = await plan(answers)
    assert (posted, client.urls) == ([PlanAnswered(3, RESULT, 0.0)], [])


async def test_a_binder_that_leads_elsewhere_is_sent_to() -> None:
    with pytest.raises(LookupError):
        await plan(answers, ANOTHERS)


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (RequestRefused("another leads", code="not_leader"), PlanFailed(3, "not_leader", refused=True)),
        (RequestRefused("over", code="stale_term"), PlanFailed(3, "stale_term", refused=True)),
        (RequestRefused("full", code="overloaded"), PlanFailed(3, "overloaded", refused=True, retry_after_s=1)),
        (RequestRefused("listing", code="not_ready"), PlanFailed(3, "peer_unknown", refused=False)),
        (LeadershipLost("leads no more"), PlanFailed(3, "peer_unknown", refused=False)),
        (StoreUnknown("etcd is silent"), PlanFailed(3, "peer_unknown", refused=False)),
    ],
)
async def test_what_may_have_had_an_effect_is_unknown_and_all_else_is_refused(
    error: Exception, failed: PlanFailed
) -> None:
    async def fails(_: Plan) -> PlanResult:
        raise error

    posted, _ = await plan(fails)
    assert posted == [failed]
