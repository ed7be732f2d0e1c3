"""Offers, views and plans to the agents and the binder: messages out, events back.

Each call has one deadline and is not repeated here: the core decides what follows, and it must hear of every end.
"""

from __future__ import annotations

from collections.abc import Callable

from services.coordinator.events import DecisionsReceived, Event, PlanAnswered, PlanFailed, RequestFailed, ViewAcked
from services.coordinator.instructions import SendOffer, SendPlan, SendView
from shared.adapters.peer_client import PeerClient
from shared.errors import PeerError, PeerRejected, WireError
from shared.ports import Clock
from shared.wire.codec import decode, encode
from shared.wire.messages import Decisions, PlanResult, ViewAck

OFFERS, VIEWS, PLANS = "/v1/offers", "/v1/views", "/v1/plans"
PLAN_TIMEOUT_S = 5.0
"""The binder answers after 2 s at the latest, with what it knows by then."""


class Peers:
    """Carries out ``SendOffer``, ``SendView`` and ``SendPlan``."""

    def __init__(self, client: PeerClient, clock: Clock, post: Callable[[Event], None], *, timeout_s: float) -> None:
        self._client = client
        self._clock = clock
        self._post = post
        self._timeout_s = timeout_s

    async def offer(self, send: SendOffer) -> None:
        """Ask one agent."""
        message_id = send.offer.message_id
        try:
            body = await self._client.call(send.url, OFFERS, encode(send.offer), timeout_s=self._timeout_s)
            decisions = decode(body, Decisions)
        except (PeerError, WireError) as error:
            self._post(RequestFailed(send.agent, message_id, error.code))
            return
        self._post(DecisionsReceived(send.agent, message_id, decisions))

    async def view(self, send: SendView) -> None:
        """Tell one agent a piece of its view."""
        message_id = send.update.message_id
        try:
            body = await self._client.call(send.url, VIEWS, encode(send.update), timeout_s=self._timeout_s)
            ack = decode(body, ViewAck)
        except (PeerError, WireError) as error:
            self._post(RequestFailed(send.agent, message_id, error.code))
            return
        self._post(ViewAcked(send.agent, message_id, ack))

    async def plan(self, send: SendPlan) -> None:
        """Hand a plan to the binder."""
        plan_id, sent_at = send.plan.plan_id, self._clock()
        try:
            body = await self._client.call(send.url, PLANS, encode(send.plan), timeout_s=PLAN_TIMEOUT_S)
            result = decode(body, PlanResult)
        except PeerRejected as error:
            self._post(PlanFailed(plan_id, error.code, refused=True, retry_after_s=error.retry_after_s))
            return
        except (PeerError, WireError) as error:
            self._post(PlanFailed(plan_id, error.code, refused=False))
            return
        self._post(PlanAnswered(plan_id, result, self._clock() - sent_at))

    def figures(self) -> dict[str, int]:
        """Bytes of bodies per hop."""
        routes = self._client.traffic.routes
        sent = {name: routes[name].bytes_sent if name in routes else 0 for name in (OFFERS, VIEWS, PLANS)}
        received = {name: routes[name].bytes_received if name in routes else 0 for name in (OFFERS, VIEWS, PLANS)}
        return {
            "offer_bytes": sent[OFFERS],
            "view_bytes": sent[VIEWS],
            "decision_bytes": received[OFFERS] + received[VIEWS],
            "plan_bytes": sent[PLANS],
            "plan_result_bytes": received[PLANS],
        }
