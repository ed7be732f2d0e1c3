"""Offers, views and plans to the agents and the binder: messages out, events back.

Each call has one deadline and is not repeated here: the core decides what follows, and it must hear of every end. The
leader's own agent, where it has one, is called and not sent to; so is a binder that leads in our own process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from services.coordinator.core.events import (
    DecisionsReceived,
    Event,
    PlanAnswered,
    PlanFailed,
    RequestFailed,
    ViewAcked,
)
from services.coordinator.core.instructions import SendOffer, SendPlan, SendView
from services.coordinator.io.embedded_agent import URL, EmbeddedAgent
from shared.adapters.peers.client import PeerClient
from shared.errors import ConclaveError, PeerError, PeerRejected, PeerUnknown, WireError
from shared.model.units.unit import cause_id
from shared.ports import Clock
from shared.runtime.http.refusals import refusal_of
from shared.runtime.observe.hops import Hops
from shared.wire.codec import decode, encode
from shared.wire.messages import Decisions, Outcome, Plan, PlanResult, ViewAck

OFFERS, VIEWS, PLANS = "/v1/offers", "/v1/views", "/v1/plans"
PLAN_TIMEOUT_S = 5.0
"""The binder answers after 2 s at the latest, with what it knows by then."""

_OUTCOMES = {int(outcome): outcome.name.lower() for outcome in Outcome}

REMEMBERED = 16_384
"""Units whose first offer and plan are remembered for their trace; of those beyond, the oldest are forgotten."""


Binder = Callable[[Plan], Awaitable[PlanResult]]
"""A binder in our own process. Raises as the handler of its route does."""


async def handed(binder: Binder, plan: Plan) -> PlanResult:
    """A plan handed over by a call; every failure is what it would be of a call over HTTP, refused or unknown."""
    try:
        async with asyncio.timeout(PLAN_TIMEOUT_S):
            return await binder(plan)
    except TimeoutError as error:
        raise PeerUnknown(f"{PLANS}: no answer within {PLAN_TIMEOUT_S} s") from error
    except ConclaveError as error:
        refused = refusal_of(error)
        message = f"{PLANS}: {refused.status} {refused.code} {refused}"
        if refused.status >= 500:
            raise PeerUnknown(message) from error
        raise PeerRejected(
            message, code=refused.code, status=refused.status, retry_after_s=refused.retry_after_s
        ) from error


class Peers:
    """Carries out ``SendOffer``, ``SendView`` and ``SendPlan``. ``timeout_s``: the deadline of offers and views now."""

    def __init__(
        self,
        client: PeerClient,
        clock: Clock,
        post: Callable[[Event], None],
        *,
        timeout_s: Callable[[], float],
        hops: Hops | None = None,
        embedded: EmbeddedAgent | None = None,
        near: tuple[str, Binder] | None = None,
    ) -> None:
        """``near``: our own URL, and who takes the plans for it."""
        self._embedded = embedded
        self._near = near
        self._hops = hops or Hops()
        self._offered: dict[int, float] = {}
        self._planned: dict[int, float] = {}
        self._client = client
        self._clock = clock
        self._post = post
        self._timeout_s = timeout_s

    async def offer(self, send: SendOffer) -> None:
        """Ask one agent."""
        message_id = send.offer.message_id
        if self._hops.on:
            self._tell_offer(send)
        try:
            decisions = await self._decisions(send)
        except (PeerError, WireError) as error:
            self._post(RequestFailed(send.agent, message_id, error.code))
            return
        self._post(DecisionsReceived(send.agent, message_id, decisions))

    async def view(self, send: SendView) -> None:
        """Tell one agent a piece of its view."""
        message_id = send.update.message_id
        try:
            ack = await self._ack(send)
        except (PeerError, WireError) as error:
            self._post(RequestFailed(send.agent, message_id, error.code))
            return
        self._post(ViewAcked(send.agent, message_id, ack))

    async def _decisions(self, send: SendOffer) -> Decisions:
        if self._embedded is not None and send.url == URL:
            return self._embedded.decide(send.offer)
        body = await self._client.call(
            send.url, OFFERS, encode(send.offer), timeout_s=self._timeout_s(), service="agent"
        )
        return decode(body, Decisions)

    async def _ack(self, send: SendView) -> ViewAck:
        if self._embedded is not None and send.url == URL:
            return self._embedded.update(send.update)
        body = await self._client.call(
            send.url, VIEWS, encode(send.update), timeout_s=self._timeout_s(), service="agent"
        )
        return decode(body, ViewAck)

    async def plan(self, send: SendPlan) -> None:
        """Hand a plan to the binder."""
        plan_id, sent_at = send.plan.plan_id, self._clock()
        if self._hops.on:
            self._tell_plan(send.plan)
        try:
            result = await self._results(send)
        except PeerRejected as error:
            self._post(PlanFailed(plan_id, error.code, refused=True, retry_after_s=error.retry_after_s))
            return
        except (PeerError, WireError) as error:
            self._post(PlanFailed(plan_id, error.code, refused=False))
            return
        if self._hops.on:
            self._tell_answer(send.plan, result)
        self._post(PlanAnswered(plan_id, result, self._clock() - sent_at))

    async def _results(self, send: SendPlan) -> PlanResult:
        if self._near is not None and send.url == self._near[0]:
            return await handed(self._near[1], send.plan)
        body = await self._client.call(send.url, PLANS, encode(send.plan), timeout_s=PLAN_TIMEOUT_S, service="binder")
        return decode(body, PlanResult)

    def _tell_offer(self, send: SendOffer) -> None:
        term, now = send.offer.term, time.perf_counter()
        for unit in (unit for group in send.offer.groups for unit in group.units):
            self._hops.line("unit_offered", cause_id(term, unit), agent=send.agent)
            self._offered.setdefault(unit, now)
        _forget_oldest(self._offered)

    def _tell_plan(self, plan: Plan) -> None:
        now = time.perf_counter()
        for placement in plan.placements:
            cause, offered = cause_id(plan.term, placement.unit), self._offered.pop(placement.unit, None)
            self._hops.line("unit_planned", cause, pod_uid=placement.uid, node=placement.node, plan_id=plan.plan_id)
            self._planned.setdefault(placement.unit, now)
            if offered is not None:
                self._hops.span("offer", cause, now - offered)
        _forget_oldest(self._planned)

    def _tell_answer(self, plan: Plan, result: PlanResult) -> None:
        """The core logs what was not bound; here is what was, and the spans of all, once it is known."""
        placements, now = {placement.unit: placement for placement in plan.placements}, time.perf_counter()
        for one in result.results:
            placement = placements.get(one.unit)
            if placement is None or one.outcome == Outcome.UNRESOLVED:
                continue
            took_s = now - self._planned.pop(one.unit, now)
            cause, outcome = cause_id(plan.term, one.unit), _OUTCOMES.get(one.outcome, "unknown")
            pod = f"{placement.namespace}/{placement.name}"
            if one.outcome == Outcome.BOUND:
                self._hops.line("pod_placed", cause, pod_uid=placement.uid, pod=pod, node=one.node)
            self._hops.span("plan", cause, took_s, outcome=outcome, conflicts=one.conflicts)
            self._hops.span(
                "schedule", cause, took_s + placement.waited_us / 1e6, outcome=outcome, pod_uid=placement.uid,
                pod=pod, node=one.node, policy=placement.policy,
            )  # fmt: skip

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


def _forget_oldest(times: dict[int, float]) -> None:
    while len(times) > REMEMBERED:
        del times[next(iter(times))]
